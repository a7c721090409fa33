"""Checks that a Delta table can take the rows of a batch, before the batch's unit is committed.

A table that refuses the rows refuses them at each replay too. If the unit were committed, the batch could neither be
written nor withdrawn.

Who calls it: `sink_delta`. Errors: InvariantBroken for two rows with the same keys, Refused for rows that break a
constraint of the table. Not promised: that the write succeeds, for a disk may be full. `onlyonce lineage new` then
withdraws the unit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.declare.outputs.newest import HISTORY, deletes, newest_by
from onlyonce.declare.pipeline import Output
from onlyonce.model.errors import InvariantBroken, Refused
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import VALID_FROM
from onlyonce.session.names import quoted
from onlyonce.sinks.delta import delta_files, delta_inside, delta_rows
from onlyonce.sinks.delta.delta_rows import GENERATED
from onlyonce.storage import opening
from onlyonce.storage.table_files import Held

CONSTRAINT = "delta.constraints."


class Merges(Protocol):
    """A change whose rows keep columns of the rows that are in the table."""

    def files(self, table: DeltaTable) -> list[Held]:
        """See `changing.Plan`."""

    def merged(self, table: DeltaTable, files: Sequence[Held]) -> DataFrame:
        """Return the rows that would be written."""


def check(
    output: Output, path: Location, rows: DataFrame, stored: DataFrame, plan: Callable[[], Merges] | None = None
) -> None:
    """Raise for rows that can't be written.

    `stored`: those of them that will be in the table. `plan`: makes the change, if it keeps what the rows do not give.
    """
    if output.sink.write in ("upsert", HISTORY):
        _check_keys(output, rows)
        _check_order(output, rows)
    table = opening.table(path)
    there = delta_rows.schema(table)
    given = {*delta_rows.spelled(stored, there).columns}
    written = delta_rows.as_stored(stored, there)
    asked = conditions(table, there, written, given)
    if plan and asked and {*there.names} - given:
        change = plan()
        written = change.merged(table, change.files(table))
    for name, condition in asked.items():
        # Delta lets in what is true; neither false nor null.
        if wrong := written.filter(~F.coalesce(F.expr(condition), F.lit(False))).limit(1).collect():
            raise Refused(
                f"output {output.name}: the table {path} does not take {wrong[0].asDict()}: {name} ({condition})",
                data="nothing of this batch was written to the table",
                hint="let the transform give rows that the table takes, or take that constraint out of the table",
            )


def conditions(table: DeltaTable, there: StructType, written: DataFrame, given: Collection[str] = ()) -> dict[str, str]:
    """What a row must be, by the table's constraints and its columns; of those that the table generates where the
    output has `given` them."""
    return (
        _own(table, there, given)
        | delta_inside.conditions(there, written.schema)
        | delta_files.conditions(there, table.metadata().partition_columns)
    )


def _own(table: DeltaTable, there: StructType, given: Collection[str]) -> dict[str, str]:
    checks = {
        f"constraint {key.removeprefix(CONSTRAINT)}": text
        for key, text in table.metadata().configuration.items()
        if key.startswith(CONSTRAINT)
    }
    checks |= {
        f"column {field.name} is NOT NULL": f"{quoted(field.name)} IS NOT NULL" for field in there if not field.nullable
    }
    checks |= {
        f"column {field.name} is generated": (
            f"{quoted(field.name)} <=> CAST({field.metadata[GENERATED]} AS {field.dataType.simpleString()})"
        )
        for field in there
        if GENERATED in field.metadata and field.name in given
    }
    return checks


def _check_keys(output: Output, rows: DataFrame) -> None:
    identity = (*output.sink.keys, *(newest_by(output.sink) if output.sink.write == HISTORY else ()))
    twice = rows.groupBy(*map(quoted, identity)).count().filter("count > 1").limit(1).collect()
    if twice:
        raise InvariantBroken(
            f"output {output.name}: two rows of one batch have the keys {twice[0].asDict()}",
            data="nothing of this batch was written to the table",
            hint="the keys must identify a row of the transform's result: group by all of them",
        )


def _check_order(output: Output, rows: DataFrame) -> None:
    if (told := deletes(output.sink)) and (wrong := rows.filter(F.col(quoted(told)).isNull()).limit(1).collect()):
        raise Refused(
            f"output {output.name}: {told!r}, which says whether a row is deleted, is null in {wrong[0].asDict()}",
            data="nothing of this batch was written to the table",
            hint="let the function say true or false of each row",
        )
    for name in (*newest_by(output.sink), *([VALID_FROM] if output.sink.write == HISTORY else [])):
        if wrong := rows.filter(F.col(quoted(name)).isNull()).limit(1).collect():
            raise Refused(
                f"output {output.name}: {name!r}, by which rows are put in order, is null in {wrong[0].asDict()}",
                data="nothing of this batch was written to the table",
                hint="give each row its place in the order",
            )
