"""Properties of a declared sink of any kind. Ask here instead of comparing classes."""

from __future__ import annotations

from typing import ClassVar, Self

from onlyonce.api.declaration import NO_FUNCTION, NONE, Named, Several
from onlyonce.core.errors import Refused
from onlyonce.core.file_names import Naming
from onlyonce.core.locations import Location
from onlyonce.core.ownership import Place
from onlyonce.core.windows import Window

HISTORY = "history"


class DeclaredSink:
    """The properties of every sink. A kind overrides those that differ.

    module           what implements the kind (`onlyonce.sinks.targets.Implementation`), loaded when it is first used
    is_external      rows are sent by way of the outbox, so they can't be withdrawn
    is_own           the user's class does the work, and may read any variable that an option names
    writes_files     each pane of a window is a set of files, complete when it is written, and never changed
    replaces_open    one commit can replace the upserted rows of all open windows, so sessions may have early panes
    starts_over      the appended or upserted rows of an output with state can be computed again from the start
    package          the package that writes the rows, in `onlyonce deliver` if it sends them; empty if none is needed
    database_kind    the kind of database that its `connection` names (`onlyonce.commitlog.units.KINDS`); empty if none
    not_in_names     the characters that the name of a column can't have
    not_in_crashtest why a crash test can't write to a copy of the target; empty if it can
    lookup_module    the module that reads a table of this kind as a lookup; empty if no lookup can
    keeps_versions   the table has its earlier versions itself, so a lookup needs no copies
    sql_dialect      the SQL in which people query the `table`: postgresql, mysql or spark; empty if there is no table
    is_leaf          no other sink or source is declared within it
    one_of           a declaration needs one of these options; the usual one comes first
    """

    module: ClassVar[str]
    is_external: ClassVar[bool] = False
    is_own: ClassVar[bool] = False
    writes_files: ClassVar[bool] = False
    replaces_open: ClassVar[bool] = False
    starts_over: ClassVar[bool] = False
    package: ClassVar[str] = ""
    database_kind: ClassVar[str] = ""
    not_in_names: ClassVar[str] = ""
    not_in_crashtest: ClassVar[str] = ""
    lookup_module: ClassVar[str] = ""
    keeps_versions: ClassVar[bool] = False
    sql_dialect: ClassVar[str] = ""
    is_leaf: ClassVar[bool] = True
    one_of: ClassVar[tuple[str, ...]] = ()

    # Options that some kinds have. They decide results.
    write: str  # how rows are written
    keys: Several[str] = NONE
    sequence_by: Several[str] = NONE  # decides which row of a key is newest; empty: the last write wins
    delete_when: str | None = None  # marks the rows that are removed
    order_by: Several[str] = NONE
    headers: Several[str] = NONE
    names: Named = NO_FUNCTION  # the function that names files
    format: str = ""  # of its files
    table: str | None  # its name in SQL, of a kind with an sql_dialect

    @property
    def kind(self) -> str:
        """Return the name of the kind, for a message."""
        return type(self).__name__

    @property
    def row_id(self) -> tuple[str, ...]:
        """Return the columns in which no two rows of the table agree. In a history each version of a key is a row."""
        return (*self.keys, *(self.sequence_by if self.write == HISTORY else ()))

    @property
    def in_words(self) -> str:
        """Return how rows are written, for a page."""
        return self.write

    @property
    def at_default(self) -> bool:
        """Return whether the place follows from the names of pipeline and output."""
        return False

    def moved_to_default(self) -> Self:
        """Return the sink at its default place; unchanged if it has none."""
        return self

    def dataset(self, place: Place, url: str | None) -> tuple[str, str]:
        """Return the namespace and name of a place in OpenLineage. `url`: its database's, if that is known here."""
        kind, _, where = place.text.partition(":")
        return kind, where

    def delta_table(self, place: Place) -> Location | None:
        """Return where the Delta table of a place is; None if the sink has no Delta table."""
        return None

    @property
    def scratch_variable(self) -> str | None:
        """Return the variable of a PostgreSQL database that a crash test replaces with a scratch database."""
        return None

    @property
    def doubles_at_least_once(self) -> bool:
        """Return whether a kill may leave rows twice in a pipeline with mode='at_least_once'."""
        return False

    def check_length(self, output: str) -> None:
        """Raise Refused if a name that the sink makes of an output's name can be too long."""

    def try_names(self, naming: Naming, subject: str, window: Window | None, data: str) -> None:
        """Call the function that names files for some windows, panes and shards. Raise Refused."""


def check_sink(kind: str, sink: DeclaredSink) -> None:
    """Raise Refused for options of `sequence_by`, `delete_when` and `write` that can't work together."""
    if sink.sequence_by and sink.write not in ("upsert", HISTORY):
        raise Refused(
            f"{kind}: sequence_by with write={sink.write!r}",
            hint="sequence_by puts the rows of a key in order: write='upsert' or 'history'",
        )
    if sink.write == HISTORY and not sink.sequence_by:
        raise Refused(
            f"{kind}: write='history' without sequence_by",
            hint="sequence_by=… names the columns that put the versions of a key in order",
        )
    if twice := [name for name in sink.sequence_by if name in sink.keys]:
        raise Refused(f"{kind}: {twice[0]!r} is a key and in sequence_by", hint="rows of one key differ in sequence_by")
    if sink.delete_when and not sink.sequence_by:
        raise Refused(
            f"{kind}: delete_when={sink.delete_when!r} without sequence_by",
            data="an older change that comes later would bring a deleted row back",
            hint="sequence_by=… names the columns that put the changes of a key in order",
        )
    if sink.delete_when in (*sink.keys, *sink.sequence_by):
        raise Refused(
            f"{kind}: {sink.delete_when!r} says which rows are deleted, and is a key or in sequence_by",
            hint="give it a column of its own, a boolean",
        )
