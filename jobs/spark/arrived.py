"""What has arrived, on its way to its task: from lines to records, by one exchange into the partitions of the batch.

A plain line is read into a block in the task that reads its file (`plain_records`); any other is a row that Spark's parser
reads (`parse`). The row and the block's place (`block_files`) cross the exchange, and `records_of` makes one stream of Arrow batches of
them again.

Who calls it: `receive`, and `conformance`, which looks at the records themselves. Errors: those of the source, and of the task that the
records are given to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from jobs.model.declare import Pipeline
from jobs.spark import block_files, line_reader, parse, plain_records, schemas, worker
from jobs.spark.block_files import Batches, Read
from jobs.spark.receive_unit import CANDIDATE, INVALID, SEED

LINE = "value string, reason string, oo_file long, oo_position long"
"""With a reason it is no line but what could not be read; `oo_file` and `oo_position` are its place."""
CODE = "oo_code"
"""What a record is before it is judged (`receive_unit`)."""
NOT_IN_BLOCKS = ("oo_reason", "oo_raw", "oo_unknown", CODE)

Task = Callable[[Batches], Batches]


@dataclass(frozen=True)
class Lines:
    """The lines of a batch: ranges of files, and rows like LINE, of messages or of what could not be read. Of a source with
    columns the rows have those."""

    ranges: Sequence[line_reader.Range]
    rows: DataFrame | None


def records(
    spark: SparkSession, lines: Lines, pipeline: Pipeline, system_time: datetime, read: Read | None
) -> DataFrame:
    """The columns of `parse.records` with CODE, and, where `read` makes blocks of plain lines and stores them, those of a block."""
    if read is None:
        return parse.records(_rows(spark, lines), pipeline, system_time).select("*", _code())
    carried = schemas.of(plain_records.CARRIED)
    found = _read(spark, lines, read, carried)
    return parse.records(found, pipeline, system_time, tuple(carried.names)).select("*", _code())


def exchanged(records: DataFrame, partitions: int) -> DataFrame:
    """The records by their ids, with a seed in each partition."""
    seeds = records.sparkSession.range(0, partitions, 1, 1).select(*_seed())
    rows = records.unionByName(seeds, allowMissingColumns=True)
    target: Column = F.pmod(F.col("oo_high"), F.lit(partitions)).cast("int")
    if "target" in records.columns:
        target = F.coalesce("target", target)
    return rows.repartitionById(partitions, target)


def mapped(records: DataFrame, task: Task, gives: StructType) -> DataFrame:
    """A task over the records of each partition, blocks opened, in batches like those of `parse.records` with CODE."""
    names = records.columns
    # Spark takes a dot in a name for a field of a struct here.
    numbered = records.toDF(*(f"c{at}" for at in range(len(names))))

    def of_task(batches: Batches) -> Batches:
        worker.settle()
        return task(records_of(batches, names))

    return numbered.mapInArrow(of_task, gives)


def rows(spark: SparkSession, lines: Lines, pipeline: Pipeline, system_time: datetime, folder: Path) -> DataFrame:
    """The records as rows like those of `parse.records`, for whoever looks at them; no batch goes this way. `folder` is for blocks, and must
    be there as long as the rows are read."""
    reader = plain_records.reader(pipeline, system_time, 1)
    found = records(spark, lines, pipeline, system_time, reader and block_files.into(folder, reader)).drop(CODE)
    of_record = [field for field in found.schema.fields if field.name not in schemas.of(plain_records.CARRIED).names]
    numbered = StructType([StructField(f"c{at}", field.dataType) for at, field in enumerate(of_record)])
    shown = mapped(found, lambda batches: (one.rename_columns(numbered.names) for one in batches), numbered)
    return shown.toDF(*(field.name for field in of_record))


def records_of(batches: Batches, names: Sequence[str]) -> Batches:
    """Rows and blocks → records, all in batches of the rows' columns."""
    for batch in batches:
        rows = batch.rename_columns(list(names))
        if "block" not in names:
            yield rows
            continue
        places = rows.column("block")
        rows = rows.drop_columns(["block", "target"])
        if places.null_count:
            yield rows.filter(places.is_null()) if places.null_count < len(places) else rows
        for place in places.drop_null():
            yield opened(block_files.fetched(place), rows.schema)


def opened(block: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The records of a block, without a copy; none of them has a reason, or anything unknown."""
    packed = pa.schema([field for field in schema if field.name not in NOT_IN_BLOCKS])
    records = pa.ipc.read_record_batch(block, packed)
    rest = {name: pa.nulls(records.num_rows, schema.field(name).type) for name in NOT_IN_BLOCKS if name in schema.names}
    if CODE in rest:
        rest[CODE] = pa.repeat(pa.scalar(CANDIDATE, pa.int8()), records.num_rows)
    columns = [rest[name] if name in rest else records.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _read(spark: SparkSession, lines: Lines, read: Read, carried: StructType) -> DataFrame:
    frames = []
    if lines.ranges:
        schema = StructType([*schemas.of(LINE).fields, *carried.fields])
        frames.append(line_reader.read(spark, lines.ranges, lambda batches: read(unrefused(batches)), schema))
    if lines.rows is not None:
        # Nulls anywhere, whatever the rows promise: a block has nothing beside it.
        of_rows = [StructField(field.name, field.dataType) for field in lines.rows.schema.fields]
        frames.append(lines.rows.mapInArrow(read, StructType([*of_rows, *carried.fields])))
    return _together(spark, frames)


def _rows(spark: SparkSession, lines: Lines) -> DataFrame:
    frames = [] if lines.rows is None else [lines.rows]
    if lines.ranges:
        frames.append(line_reader.read(spark, lines.ranges, unrefused, schemas.of(LINE)))
    return _together(spark, frames)


def _together(spark: SparkSession, frames: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.union, frames) if frames else spark.createDataFrame([], schemas.of(LINE))


def unrefused(lines: Batches) -> Batches:
    """The lines of files, as rows like LINE: none of them has a reason yet."""
    for batch in lines:
        yield batch.add_column(1, "reason", pa.nulls(batch.num_rows, pa.string()))


@cache
def _code() -> Column:
    code = F.when(F.col("oo_reason").isNotNull(), INVALID).otherwise(CANDIDATE)
    return code.cast("byte").alias(CODE)


@cache
def _seed() -> list[Column]:
    return [F.col("id").alias("oo_high"), F.lit(SEED).cast("byte").alias(CODE)]
