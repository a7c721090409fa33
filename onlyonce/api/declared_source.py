"""Properties of a declared source of any kind. Ask here instead of comparing classes."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from onlyonce.core.encodings import UTF_8
from onlyonce.core.locations import Location, in_openlineage

Start = Literal["earliest", "latest"] | datetime
EARLIEST: Literal["earliest"] = "earliest"
LATEST: Literal["latest"] = "latest"


class DeclaredSource:
    """The properties of every source. A kind overrides those that differ.

    found_by   how new input is found (`onlyonce.sources.discovery.FINDERS`); empty for a topic, which Spark asks
    is_topic   its records are messages, identified by partition and offset
    is_table   its records are rows of a table's versions
    is_own     the user's class reads it, and may read any variable that an option names
    is_pulled  `onlyonce pull` writes its inbox
    has_inbox  its input is files of a folder, or objects of a store
    in_ranges  an entry of its manifest is a range of a file or part
    in_several it may be one of several sources of a pipeline
    is_leaf    no other sink or source is declared within it
    one_of     a declaration needs one of these options; the usual one comes first
    """

    found_by: ClassVar[str] = ""
    is_topic: ClassVar[bool] = False
    is_table: ClassVar[bool] = False
    is_own: ClassVar[bool] = False
    is_pulled: ClassVar[bool] = False
    has_inbox: ClassVar[bool] = False
    in_ranges: ClassVar[bool] = False
    in_several: ClassVar[bool] = True
    is_leaf: ClassVar[bool] = True
    one_of: ClassVar[tuple[str, ...]] = ()

    @property
    def inbox(self) -> str | None:
        """Return the declared inbox; None if the source has none or uses the default inbox."""
        return None

    @property
    def path(self) -> str | None:
        """Return the declared path of a table; None if the source is no table, or has a name in a catalog."""
        return None

    @property
    def max_files_a_batch(self) -> int | None:
        """Return how many files, or parts, one batch reads from at most; None for a topic."""
        return None

    @property
    def start(self) -> Start | int:
        """Return where the first run begins: a number is the version of a table."""
        return EARLIEST

    @property
    def links(self) -> bool:
        """Return whether a symbolic link in the inbox is followed."""
        return False

    @property
    def header(self) -> bool:
        """Return whether the first line of a file names its columns."""
        return False

    @property
    def recursive(self) -> bool:
        """Return whether the files in folders below the inbox are read too."""
        return False

    @property
    def delimiter(self) -> str:
        """Return what separates the values of a line of CSV."""
        return ","

    @property
    def null(self) -> tuple[str, ...]:
        """Return the words for null in CSV."""
        return ()

    @property
    def encoding(self) -> str:
        """Return the encoding of lines."""
        return UTF_8

    @property
    def in_store(self) -> bool:
        """Return whether the inbox is a prefix of an object store."""
        return False

    @property
    def reads(self) -> str | None:
        """Return what no second source of the pipeline may read, in words; None if nothing is known to be the same."""
        return f"the inbox {self.inbox}" if self.inbox else None

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Return the declared columns that do not come from a field of a record: a key, a header, an id."""
        return ()

    @property
    def has_no_names(self) -> str | None:
        """Return why a column can't have another name in the source (`aliases`), in words; None if it can."""
        return None

    @property
    def typed_by(self) -> str | None:
        """Return what gives the types of the source's columns, in words; None if they are only declared."""
        return None

    def described(self, inbox: str) -> str:
        """Return where the source's records come from, in Markdown. `inbox`: its folder."""
        raise NotImplementedError

    def dataset(self, at: Location | None) -> tuple[str, str] | None:
        """Return the source's namespace and name in OpenLineage; None if it has none. `at`: its inbox or table."""
        return in_openlineage(at) if at else None

    @property
    def makes_inbox(self) -> bool:
        """Return whether a run makes a missing inbox: the default one, or one that `onlyonce pull` writes."""
        return self.has_inbox and (self.inbox is None or self.is_pulled)

    @property
    def start_to_resolve(self) -> bool:
        """Return whether the first run must find out where the declared start is, and store it in the manifest."""
        return self.start != EARLIEST
