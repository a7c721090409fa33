"""Writes rows into data files of a user's Delta table, by Arrow: one writer, which each of Spark's tasks calls for many
rows and the driver for few.

All files of an attempt lie in its folder under names that no other file has. Their partition is in the commit alone,
which is where Delta's readers look for it. As a folder's name it could be too long, and two values could share one:
null has a name in Hive's form that a string may have as well.

Who calls it: `delta_append`, `delta_upsert`, `delta_replace`. Errors: OSError, which fails the task, and Spark tries it
again. A file of a failed attempt is named by no commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructType

from onlyonce.failpoints import passing
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import OO_PARTITION
from onlyonce.session import data_files, encoding, worker
from onlyonce.session.names import quoted
from onlyonce.session.worker import Batches
from onlyonce.sinks import content_hash
from onlyonce.sinks.content_hash import Check, Tally
from onlyonce.storage import dictionaries, stores
from onlyonce.storage.own_tables import DataFile
from onlyonce.storage.stores import arrow

PARTITION = OO_PARTITION
"""The column with the values of a row's partition columns: a JSON array of strings and nulls, as the log has them."""
BYTES, ROW_GROUP = 1 << 27, 1 << 17
"""So many bytes of rows in memory make a file, and so many rows a row group."""
RESULT = "path string, partition string, tally binary"
ARROW = pa.schema({"path": pa.string(), "partition": pa.string(), "tally": pa.binary()})


def placed(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return the rows with their PARTITION, if the table has partition columns."""
    return (
        rows.withColumn(PARTITION, encoding.strings(F.col(quoted(name)).cast("string") for name in by)) if by else rows
    )


def conditions(there: StructType, by: Sequence[str]) -> dict[str, str]:
    """Return what a row must satisfy so that readers get the values of its partition columns: Delta reads an empty
    string there as null."""
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
    """Write rows that have their PARTITION into files below a folder: those of a frame by Spark's tasks, those of a
    table here.

    `check` gets what the rows with a HASH hold, as it was written; rows of files that are written again have none."""
    columns = rows.column_names if isinstance(rows, pa.Table) else rows.columns
    if by:
        rows = rows.sort_by(PARTITION) if isinstance(rows, pa.Table) else rows.sortWithinPartitions(PARTITION)
    made = worker.ran(rows, _of_task(folder, by), RESULT)
    if check:
        check(content_hash.received(columns, made.column("tally").to_pylist() if made.num_rows else []))
    return [
        DataFile(folder / one["path"], _values(by, one["partition"]))
        for one in made.to_pylist()
        if one["path"] is not None
    ]


@contextmanager
def settled(rows: DataFrame, folder: Location, check: Check) -> Iterator[DataFrame]:
    """Yield rows that have their HASH, as they are in files: the same however often they are read, since several jobs
    change a table by them.

    The folder goes at the end; the files of a killed driver are named by no commit."""
    schema = StructType([rows.schema[name] for name in content_hash.unhashed(rows.columns)])
    files = [str(file.at) for file in write(rows, folder, (), check)]
    try:
        yield data_files.reader(rows.sparkSession).schema(schema).parquet(*files)
    finally:
        stores.of(folder).clear(folder)


def _of_task(folder: Location, by: Sequence[str]) -> Callable[[Batches], Batches]:
    def run_task(batches: Batches) -> Batches:
        found: list[Tally] = []
        for name, partition in _write(content_hash.tallied_on_the_way(batches, found), folder, by):
            yield pa.RecordBatch.from_pylist([{"path": name, "partition": partition, "tally": None}], ARROW)
        yield from (
            pa.RecordBatch.from_pylist([{"path": None, "partition": None, "tally": content_hash.sent(tally)}], ARROW)
            for tally in found
        )

    return run_task


def _write(batches: Batches, folder: Location, by: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Write rows; yield the name of each file below the folder and its partition.

    Rows that are sorted by it make the fewest files.
    """
    for partition, pieces in groupby(_pieces(batches, by), key=lambda piece: piece[0]):
        for rows in _of_files(piece for _, piece in pieces):
            name = f"part-{uuid4().hex}.parquet"
            kept = rows.drop_columns([PARTITION, *by]) if by else rows
            passing("delta-before-file")
            arrow.write(
                folder / name,
                kept,
                ROW_GROUP,
                use_dictionary=dictionaries.worth_it(kept),
                compression="zstd",
                store_schema=False,
            )
            passing("delta-after-file")
            yield name, partition


def _values(by: Sequence[str], partition: str) -> dict[str, str | None]:
    return dict(zip(by, json.loads(partition), strict=True))


def _pieces(batches: Batches, by: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the batches cut where the partition changes."""
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
    """Yield the rows of one partition as they go into files."""
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
