"""Choose an output's sink, claim its target before its table is made, and notice if the table was deleted or replaced.

docs/specification/target.md. The log knows the targets of this platform. Another platform's target has a note in the
table or folder (`ownership`). External sinks are not claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from onlyonce.api import target_identity
from onlyonce.api.declared_sink import DeclaredSink
from onlyonce.api.joins_and_state import Lookup
from onlyonce.api.pipeline import Output, Pipeline, target
from onlyonce.commitlog import units
from onlyonce.commitlog.dropping import Targets
from onlyonce.context import Query, RunContext
from onlyonce.core import ownership
from onlyonce.core.backfill import OpenSpan, Span
from onlyonce.core.batch import Batch, Plan
from onlyonce.core.column_types import Types
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.ownership import Place
from onlyonce.core.units import Content
from onlyonce.core.windows import Bounds
from onlyonce.database.connect import Database, Scope
from onlyonce.sinks import target_kinds
from onlyonce.sinks.base.held_values import Lengths
from onlyonce.sinks.base.stored import Stored

if TYPE_CHECKING:
    import pandas as pd


def _made_again(pipeline: Pipeline, output: Output) -> str:
    """Return how the table of an output is made again. A pipeline's only output is renamed, since it needs one."""
    several = len(pipeline.outputs) > 1
    return (
        "make it again from `events`: "
        + ("take the output out of" if several else f"give the output another name than {output.name} in")
        + f" the declaration, onlyonce drop {pipeline.name} --output {output.name} --tables --yes, and "
        + ("declare it again" if several else f"onlyonce run {pipeline.name}")
    )


@contextmanager
def claimed(context: RunContext, output: Output) -> Iterator[None]:
    """Claim the target around the making of an output's table: no other output may have it, however it is spelled.

    A table that was made once is not made again silently. Raise Refused for a target of another output or platform, and
    for a deleted or replaced table. Raise InvariantBroken if the table is lost that the platform keeps next to it.
    Raise Retryable while the target's database or store is unreachable.
    """
    declared, suffix = Place(target(context.pipeline, output)), context.target_suffix()
    if declared.of_target is None:
        yield
        return
    identity, place = target_identity.identity(declared, _database, suffix), declared.of_run(suffix)
    at = target_kinds.functions(place)
    made = Targets(context.database).claim(context.instance, output.name, place, identity)
    again = _made_again(context.pipeline, output)
    if made.at is not None and not at.is_there(place):
        raise Refused(
            f"output {output.name}: {place.where} is gone; it was there since {made.at:%Y-%m-%d %H:%M}",
            data="nothing was written: a new table would hold the newest rows only, while the log says that all "
            "are there",
            hint=f"put it back from a copy; or {again}",
        )
    if made.table_id is not None:
        ownership.refuse_replaced(
            f"output {output.name}: {place.where}",
            made.table_id,
            at.table_id(place),
            f"put the old table back from a copy; or {again}, which removes this table",
        )
    ownership.refuse_other_owner(at.note(place), context.platform, output.name, place.where)
    if kept := target_identity.kept_beside(place, output):
        query = output.made_beside or output.name
        # The log is asked before the table: a table that it vouches for then was made, whatever another driver does.
        vouched = Targets(context.database).has_kept(context.instance, output.name, query, declared)
        if vouched and not at.is_there(kept.place):
            raise InvariantBroken(
                f"output {output.name}: {kept.place.where} is gone; it keeps {kept.what} {place.where}",
                data=f"nothing was written: with a new, empty one {kept.without}",
                hint=f"put it back from a backup; or {again}",
            )
    yield
    if made.at is None:
        if not at.note(place):  # a team's comment stays
            at.put_note(place, ownership.owner_note(context.platform))
        # Two platforms may have written it at the same time.
        ownership.refuse_other_owner(at.note(place), context.platform, output.name, place.where)
        Targets(context.database).made(context.instance, output.name, at.table_id(place))


def _database(variable: str | None) -> str:
    """Return the identity of the database that a variable names, whatever its address."""
    return Targets(Database(units.url_of(variable))).database()


# The interface of a sink, and the choice of an output's sink.


class SinkWriter(Protocol):
    """One output's sink under one driver. Each method may be called again for the same batch."""

    def prepare(self, schema: StructType) -> None:
        """Before the first batch, make the target if it is missing, and check that it fits. Raise Refused."""

    def lengths(self) -> Lengths:
        """Return the columns of the table that take values up to a length, after `prepare`."""

    def write(self, batch: Batch, rows: DataFrame, content: Content) -> int:
        """Commit the rows of a batch as units. Rows that are already written are compared, not written again.

        Write the rows of an at-least-once batch without units, and return how many rows the target has one time too
        often.
        """

    def landed(self, plan: Plan) -> bool:
        """Return whether an attempt at an at-least-once batch has written anything."""

    def replace(self, batch: Batch, rows: DataFrame, content: Content, span: Span) -> None:
        """Replace the rows whose windows start in the span in one commit: a reader sees all new rows or none."""

    def end(self, scope: Scope, batch: Batch) -> None:
        """Check, in the transaction that ends the batch, that the batch's units are in the platform's log."""


@runtime_checkable
class WritesInDriver(Protocol):
    """A sink whose writer can take the rows of a small batch from the driver.

    Spark's tasks write the rows of a large batch with the same function.
    """

    def exported(self, batch: Batch, rows: DataFrame) -> DataFrame | None:
        """Return the rows as the writer gets them, with their HASH; None if Spark's tasks must write them."""

    def write(self, batch: Batch, rows: DataFrame | pa.Table, content: Content) -> int:
        """Write like every sink. `rows` are a frame from the function, or the rows of `exported` in memory."""


@runtime_checkable
class WritesPanes(Protocol):
    """A sink that never changes what it has of a window: each pane is written next to the panes before it."""

    def check_panes(self, windows: Collection[Bounds]) -> None:
        """Raise Refused if the sink can't take the next panes of these windows.

        The sinks of outputs that are made from a root's rows are asked before the rows of the root are written. Else
        a batch would stay half written.
        """

    def write_panes(
        self, batch: Batch, rows: DataFrame, content: Content, fired: Collection[Bounds]
    ) -> Collection[Bounds]:
        """Commit the rows of a batch as panes of the windows that have fired.

        If the function gives no rows for a fired window that has an earlier pane, write an empty pane. Else a reader
        would take the earlier pane for the newest. Return the windows of these empty panes.
        """


@runtime_checkable
class ReplacesOpen(Protocol):
    """A sink that can replace the rows of all open windows (`DeclaredSink.replaces_open`)."""

    def replace_open(self, batch: Batch, rows: DataFrame, content: Content, span: OpenSpan) -> None:
        """Replace the rows of the windows in the span in one commit. The batch has one partition.

        A pane of all open sessions is written so: rows of sessions that have changed since the last pane are deleted.
        """


class Implementation(Protocol):
    """The functions of a sink kind's module. The declaration names it, so it is loaded when it is first used."""

    def writer(self, context: RunContext, query: Query, output: Output) -> SinkWriter:
        """Return the writer of an output's declared sink."""

    def stored(self, database: Database, sink: DeclaredSink, where: str) -> Stored:
        """Return what a target or the table of a lookup stores; `where` is the target as a string."""

    def types_there(self, pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
        """Return the types that the sink stores for the columns, and the types of the existing table; None if there is
        none.

        Raise Refused if the rows can't be written to it.
        """

    def frame(self, pipeline: Pipeline, output: Output, instance: str) -> pd.DataFrame:
        """Return the rows of an instance's output in memory. Raise Refused if there are none that can be read."""


def implementation(sink: DeclaredSink) -> Implementation:
    """Return the module of a sink's kind."""
    return cast(Implementation, import_module(sink.module))


def writer_for(context: RunContext, query: Query, output: Output) -> SinkWriter:
    """Return the writer of an output's declared sink."""
    return implementation(output.sink).writer(context, query, output)


def stored_of(database: Database, pipeline: Pipeline, output: Output) -> Stored:
    """Return what the target of an output stores."""
    return implementation(output.sink).stored(database, output.sink, target(pipeline, output))


def stored_of_lookup(database: Database, lookup: Lookup) -> Stored:
    """Return what the table of a lookup stores. The table is only read and never cleaned."""
    return implementation(lookup.table).stored(database, lookup.table, lookup.table.target(""))
