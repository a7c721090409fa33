"""Writes rows into data files of a user's Delta table, by Arrow: one writer, which each of Spark's tasks calls for many rows and the driver for few.

All files of an attempt lie in its folder under names that no other file has. Their partition is in the commit alone, which is where Delta's readers look
for it. As a folder's name it could be too long, and two values could share one: null has a name in Hive's form that a string may have as well.

Who calls it: `delta_append`, `delta_upsert`, `delta_replace`. Errors: OSError, which fails the task, and Spark tries it again. A file of a failed attempt
is named by no commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructType

from onlyonce.model.storage.location import Location
from onlyonce.session import worker
from onlyonce.session.names import quoted
from onlyonce.session.worker import Batches
from onlyonce.storage import dictionaries
from onlyonce.storage.own_tables import DataFile
from onlyonce.storage.stores import arrow

PARTITION = "oo_partition"
"""The column with the values of a row's partition columns: a JSON array of strings and nulls, as the log has them."""
BYTES, ROW_GROUP = 1 << 27, 1 << 17
"""So many bytes of rows in memory make a file, and so many rows a row group."""
RESULT = "path string, partition string"


def placed(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return the rows with their PARTITION, if the table has partition columns."""
    return rows.withColumn(PARTITION, F.to_json(F.array(*[F.col(quoted(name)).cast("string") for name in by]))) if by else rows


def conditions(there: StructType, by: Sequence[str]) -> dict[str, str]:
    """Return what a row must satisfy so that readers get the values of its partition columns: Delta reads an empty string there as null."""
    return {
        f"partition column {name} of a Delta table can't hold this value (an empty string is read as null)": (
            f"{quoted(name)} IS NULL OR (length({quoted(name)}) > 0 AND is_valid_utf8(CAST({quoted(name)} AS STRING)))"
        )
        for name in by
        if isinstance(there[name].dataType, StringType | BinaryType)
    }


def write(rows: DataFrame, folder: Location, by: Sequence[str]) -> list[DataFile]:
    """Write rows by Spark's tasks into files below a folder."""
    sorted_rows = placed(rows, by).sortWithinPartitions(PARTITION) if by else rows
    made = worker.mapped(sorted_rows, _of_task(folder, by), RESULT).toArrow().to_pylist()
    return [DataFile(folder / one["path"], _values(by, one["partition"])) for one in made]


def write_rows(batches: Batches, folder: Location, by: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Write rows that have their PARTITION; yield the name of each file below the folder and its partition. Rows that are sorted by it make the fewest files."""
    for partition, pieces in groupby(_pieces(batches, by), key=lambda piece: piece[0]):
        for rows in _of_files(piece for _, piece in pieces):
            name = f"part-{uuid4().hex}.parquet"
            kept = rows.drop_columns([PARTITION, *by]) if by else rows
            arrow.write(folder / name, kept, ROW_GROUP, use_dictionary=dictionaries.worth_it(kept), compression="zstd", store_schema=False)
            yield name, partition


def in_driver(rows: pa.Table, folder: Location, by: Sequence[str]) -> list[DataFile]:
    """Write the rows of a table in memory into files below a folder."""
    made = write_rows(iter((rows.sort_by(PARTITION) if by else rows).to_batches()), folder, by)
    return [DataFile(folder / name, _values(by, partition)) for name, partition in made]


def _of_task(folder: Location, by: Sequence[str]) -> Callable[[Batches], Batches]:
    def run_task(batches: Batches) -> Batches:
        for name, partition in write_rows(batches, folder, by):
            yield pa.RecordBatch.from_pydict({"path": [name], "partition": [partition]})

    return run_task


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
        for value, (first, last) in zip(runs.values.to_pylist(), pairwise([0, *runs.run_ends.to_pylist()]), strict=True):
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
