"""Write rows into data files of a user's Delta table with Arrow, and check before that the table takes the rows.

The module has three parts:

1. `write` writes the files. Spark's tasks call the writer for many rows, and the driver calls it for few.
2. `inside_conditions` returns the conditions for NOT NULL inside nested columns.
3. `check_fit` refuses rows that break a rule of the table, before the batch's unit is committed.

All files of an attempt are in a folder of its own, under unique names. No commit names a file of a failed attempt.

The values of the partition columns are in the commit, where Delta's readers look for them, and not in the names of
folders as in Hive. As a folder's name a value could be too long, and two values could share a name: Hive's name for
null may also be a string's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from typing import Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from onlyonce.api.pipeline import Output
from onlyonce.api.sinks import HISTORY
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import OO_PARTITION, VALID_FROM
from onlyonce.engine import encoding, session, worker
from onlyonce.engine.session import quoted
from onlyonce.engine.worker import Batches
from onlyonce.failpoints import passing
from onlyonce.sinks.base import content
from onlyonce.sinks.base.content import Check, Tally
from onlyonce.sinks.delta import delta_rows
from onlyonce.sinks.delta.delta_rows import GENERATED
from onlyonce.tables import arrow_files, opening, own_tables, stores
from onlyonce.tables.own_tables import DataFile
from onlyonce.tables.table_files import Held

PARTITION = OO_PARTITION
"""The column with the values of a row's partition columns: a JSON array of strings and nulls, as in Delta's log."""
BYTES, ROW_GROUP = 1 << 27, 1 << 17
"""A file is closed after this number of bytes of rows in memory. A row group has this number of rows."""
RESULT = "path string, partition string, tally binary"
ARROW = pa.schema({"path": pa.string(), "partition": pa.string(), "tally": pa.binary()})
"""A task's result, once for Spark and once for Arrow: a row for each file with its path and partition, and a row
with the tally of the rows that it has written."""


def placed(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Add the column PARTITION to rows of a table with the partition columns `by`. Without such columns do nothing."""
    return (
        rows.withColumn(PARTITION, encoding.strings(F.col(quoted(name)).cast("string") for name in by)) if by else rows
    )


def conditions(there: StructType, by: Sequence[str]) -> dict[str, str]:
    """Return conditions (SQL by name) for rows whose values in partition columns a reader gets back unchanged.

    Delta reads an empty string in a partition column as null.
    """
    return {
        f"partition column {name} of a Delta table can't hold this value (an empty string is read as null)": (
            f"{quoted(name)} IS NULL OR (length({quoted(name)}) > 0 AND is_valid_utf8(CAST({quoted(name)} AS STRING)))"
        )
        for name in by
        if isinstance(there[name].dataType, StringType | BinaryType)
    }


def write(
    rows: DataFrame | pa.Table, folder: Location, by: Sequence[str], check: Check | None = None
) -> list[DataFile]:
    """Write rows into files below a folder, and return the files.

    rows    with the column PARTITION if there are partition columns (`placed`). Spark's tasks write a frame, this
            process writes a table
    by      the table's partition columns
    check   called with the content of the rows that were written, to compare it with the content of the unit. Only
            rows with a HASH count. Rows that a change copies from older files have none
    """
    columns = rows.column_names if isinstance(rows, pa.Table) else rows.columns
    if by:
        rows = rows.sort_by(PARTITION) if isinstance(rows, pa.Table) else rows.sortWithinPartitions(PARTITION)
    made = worker.ran(rows, _of_task(folder, by), RESULT)
    if check:
        check(content.received(columns, made.column("tally").to_pylist() if made.num_rows else []))
    return [
        DataFile(folder / one["path"], _values(by, one["partition"]))
        for one in made.to_pylist()
        if one["path"] is not None
    ]


@contextmanager
def settled(rows: DataFrame, folder: Location, check: Check) -> Iterator[DataFrame]:
    """Write rows with a HASH into temporary files, check their content, and yield a frame that reads the files.

    An upsert reads its rows in several jobs. Computed again in each job, the rows could differ. From files each job
    reads the same rows.

    The folder is removed at the end. No commit names the files that a killed driver leaves.
    """
    schema = StructType([rows.schema[name] for name in content.unhashed(rows.columns)])
    files = [str(file.at) for file in write(rows, folder, (), check)]
    try:
        yield session.file_reader(rows.sparkSession).schema(schema).parquet(*files)
    finally:
        stores.of(folder).clear(folder)


def _of_task(folder: Location, by: Sequence[str]) -> Callable[[Batches], Batches]:
    def run_task(batches: Batches) -> Batches:
        found: list[Tally] = []
        for name, partition in _write(content.tallied_on_the_way(batches, found), folder, by):
            yield pa.RecordBatch.from_pylist([{"path": name, "partition": partition, "tally": None}], ARROW)
        yield from (
            pa.RecordBatch.from_pylist([{"path": None, "partition": None, "tally": content.sent(tally)}], ARROW)
            for tally in found
        )

    return run_task


def _write(batches: Batches, folder: Location, by: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Write rows; yield the name of each file below the folder, and its partition.

    A file has rows of one partition. If the rows are sorted by partition, there are the fewest files.
    """
    for partition, pieces in groupby(_pieces(batches, by), key=lambda piece: piece[0]):
        for rows in _of_files(piece for _, piece in pieces):
            name = f"part-{uuid4().hex}.parquet"
            kept = rows.drop_columns([PARTITION, *by]) if by else rows
            passing("delta-before-file")
            arrow_files.write(
                folder / name,
                kept,
                ROW_GROUP,
                use_dictionary=own_tables.worth_it(kept),
                compression="zstd",
                store_schema=False,
            )
            passing("delta-after-file")
            yield name, partition


def _values(by: Sequence[str], partition: str) -> dict[str, str | None]:
    return dict(zip(by, json.loads(partition), strict=True))


def _pieces(batches: Batches, by: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Cut the batches where the partition changes; yield the partition and the rows of each piece."""
    for batch in batches:
        if not batch.num_rows:
            continue
        if not by:
            yield "[]", batch
            continue
        runs = pc.run_end_encode(batch.column(PARTITION))
        for value, (first, last) in zip(
            runs.values.to_pylist(), pairwise([0, *runs.run_ends.to_pylist()]), strict=True
        ):
            yield value, batch.slice(first, last - first)


def _of_files(batches: Batches) -> Iterator[pa.Table]:
    """Yield the rows of one partition in tables, one for each file."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


# NOT NULL inside the columns of a Delta table: in fields of structures, elements of arrays and values of maps.
#
# Nothing checks these while the files are written, so a condition must check the rows before. A column needs one if
# something inside it is NOT NULL in the table (`_strict`) and nullable in the rows (`_looser`).


def inside_conditions(there: StructType, given: StructType) -> dict[str, str]:
    """Return conditions (SQL by name) for the columns that need one.

    there   the columns of the table
    given   the columns of the rows
    """
    own = {field.name: field.dataType for field in given}
    found = {}
    for field in there:
        if field.name in own and _looser(own[field.name], field.dataType):
            inside = _inside(quoted(field.name), field.dataType, 0)
            found[f"NOT NULL within column {field.name}"] = f"{quoted(field.name)} IS NULL OR ({inside})"
    return found


def _looser(given: DataType, there: DataType) -> bool:
    if isinstance(there, StructType) and isinstance(given, StructType):
        own = {field.name.lower(): field for field in given}
        return any(
            (found := own.get(field.name.lower())) is None
            or (found.nullable and not field.nullable)
            or _looser(found.dataType, field.dataType)
            for field in there
            if not field.nullable or _strict(field.dataType)
        )
    if isinstance(there, ArrayType) and isinstance(given, ArrayType):
        return (given.containsNull and not there.containsNull) or _looser(given.elementType, there.elementType)
    if isinstance(there, MapType) and isinstance(given, MapType):
        return (given.valueContainsNull and not there.valueContainsNull) or _looser(given.valueType, there.valueType)
    return _strict(there)


def _strict(kind: DataType) -> bool:
    return bool(_inside("x", kind, 0))


def _inside(value: str, kind: DataType, depth: int) -> str:
    if isinstance(kind, StructType):
        return " AND ".join(
            filter(
                None, (_part(f"{value}.{quoted(field.name)}", field.dataType, field.nullable, depth) for field in kind)
            )
        )
    if isinstance(kind, ArrayType):
        return _each(value, kind.elementType, kind.containsNull, depth)
    return (
        _each(f"map_values({value})", kind.valueType, kind.valueContainsNull, depth)
        if isinstance(kind, MapType)
        else ""
    )


def _each(values: str, kind: DataType, nullable: bool, depth: int) -> str:
    one = f"x{depth}"
    part = _part(one, kind, nullable, depth + 1)
    return f"forall({values}, {one} -> {part})" if part else ""


def _part(value: str, kind: DataType, nullable: bool, depth: int) -> str:
    inside = _inside(value, kind, depth)
    rules = ([] if nullable else [f"{value} IS NOT NULL"]) + ([f"({value} IS NULL OR ({inside}))"] if inside else [])
    return " AND ".join(rules)


# Check that a Delta table can take the rows of a batch, before the batch's unit is committed.
#
# A table that refuses rows refuses them at each replay too. If the batch's unit were committed before, the batch could
# neither be written nor withdrawn. A write may still fail after the check, for example because a disk is full. Then
# `onlyonce reset` withdraws the unit.


CONSTRAINT = "delta.constraints."


class Merges(Protocol):
    """An upsert whose rows lack some columns of the table. The rows in the table keep their values of these columns."""

    def files(self, table: DeltaTable) -> list[Held]:
        """See `rewrite.Plan`."""

    def merged(self, table: DeltaTable, files: Sequence[Held]) -> DataFrame:
        """Return the rows as the upsert would write them, with the values that are kept."""


def check_fit(
    output: Output, path: Location, rows: DataFrame, stored: DataFrame, plan: Callable[[], Merges] | None = None
) -> None:
    """Raise InvariantBroken for two rows with the same keys, and Refused for a row that breaks a rule of the table.

    rows     the rows of the batch
    stored   the rows that the table gets: without rows that say what is deleted, and without the column for that
    plan     makes the upsert. It is called only if the table has rules and columns that the rows lack: then a rule is
             checked on the row with the values that it keeps
    """
    if output.sink.write in ("upsert", HISTORY):
        _check_keys(output, rows)
        _check_order(output, rows)
    table = opening.table(path)
    there = delta_rows.schema(table)
    given = {*delta_rows.spelled(stored, there).columns}
    written = delta_rows.as_stored(stored, there)
    asked = fit_conditions(table, there, written, given)
    if plan and asked and {*there.names} - given:
        change = plan()
        written = change.merged(table, change.files(table))
    for name, condition in asked.items():
        # Delta accepts only true, not false or null.
        if wrong := written.filter(~F.coalesce(F.expr(condition), F.lit(False))).limit(1).collect():
            raise Refused(
                f"output {output.name}: the table {path} does not take {wrong[0].asDict()}: {name} ({condition})",
                data="nothing of this batch was written to the table",
                hint="let the transform give rows that the table takes, or take that constraint out of the table",
            )


def fit_conditions(
    table: DeltaTable, there: StructType, written: DataFrame, given: Collection[str] = ()
) -> dict[str, str]:
    """Return all conditions (SQL by name) that the table has for a row: by its constraints and its columns.

    there     the columns of the table
    written   the rows as they would be written
    given     the columns that the output itself gives. A generated column is checked only if it is one of them
    """
    return (
        _own(table, there, given)
        | inside_conditions(there, written.schema)
        | conditions(there, table.metadata().partition_columns)
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
    twice = rows.groupBy(*map(quoted, output.sink.row_id)).count().filter("count > 1").limit(1).collect()
    if twice:
        raise InvariantBroken(
            f"output {output.name}: two rows of one batch have the keys {twice[0].asDict()}",
            data="nothing of this batch was written to the table",
            hint="the keys must identify a row of the transform's result: group by all of them",
        )


def _check_order(output: Output, rows: DataFrame) -> None:
    if (told := output.sink.delete_when) and (wrong := rows.filter(F.col(quoted(told)).isNull()).limit(1).collect()):
        raise Refused(
            f"output {output.name}: {told!r}, which says whether a row is deleted, is null in {wrong[0].asDict()}",
            data="nothing of this batch was written to the table",
            hint="let the function say true or false of each row",
        )
    for name in (*output.sink.sequence_by, *([VALID_FROM] if output.sink.write == HISTORY else [])):
        if wrong := rows.filter(F.col(quoted(name)).isNull()).limit(1).collect():
            raise Refused(
                f"output {output.name}: {name!r}, by which rows are put in order, is null in {wrong[0].asDict()}",
                data="nothing of this batch was written to the table",
                hint="give each row its place in the order",
            )
