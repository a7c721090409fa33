"""Turns the lines of a batch into records, and brings each record to the task of its partition.

A task that reads lines makes blocks of the plain ones (`plain_records`), one for each partition. The blocks wait in
files, and the driver is told where (`block_files`). The lines that are left are rows: the table's reader reads them
(`parse`), and one exchange brings them to their partition. Mostly no line is left, and then nothing is exchanged. Where
executors share no disk, blocks are rows among those (`block_rows`).

Who calls it: `receive`, and `conformance`, which looks at the records themselves. Errors: those of the source, and of
the task that the records are given to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial, reduce
from pathlib import Path
from sys import intern
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.stored_names import OO_HIGH, OO_RAW, OO_REASON, OO_UNKNOWN
from onlyonce.receive import line_tasks
from onlyonce.receive.blocks import block_files, block_rows
from onlyonce.receive.blocks.block_files import Block
from onlyonce.receive.receive_unit import CANDIDATE, INVALID, SEED
from onlyonce.session import schemas, worker
from onlyonce.session.worker import Batches
from onlyonce.sources.files import line_reader
from onlyonce.sources.lines import LINE, Lines
from onlyonce.sources.parse import parse, plain_records
from onlyonce.sources.parse.plain_records import Reader

NO_COLUMNS = pa.schema([])
CODE = "oo_code"
"""What a record is before it is judged (`receive_unit`)."""
PLATFORM = [
    (OO_REASON, pa.string()), (OO_RAW, pa.string()), (OO_UNKNOWN, pa.string()),
    (parse.PLACED, pa.struct([(name, pa.int64()) for name in parse.PLACE])), (CODE, pa.int8()),
]  # fmt: skip
"""What a record has beside what is in a block."""
NOT_IN_BLOCKS = tuple(name for name, _ in PLATFORM)

Part: TypeAlias = "pa.RecordBatch | Callable[[], pa.RecordBatch]"
"""Records as they pass, once, or what opens them as often as it is asked."""
Parts = Iterator[Part]
Task = Callable[[Parts], Batches]


@dataclass(frozen=True)
class Read:
    """What has become of the lines of a batch: blocks of plain records with the schema that opens them, and the other
    records as rows, with the columns of `parse.records` and CODE.

    None where there are none."""

    blocks: Sequence[Block] = ()
    schema: pa.Schema = NO_COLUMNS
    rows: DataFrame | None = None


def read(
    spark: SparkSession,
    lines: Lines,
    pipeline: Pipeline,
    system_time: datetime,
    reader: Reader | None,
    folder: Path | None,
) -> Read:
    """Read the lines of a batch.

    Without a reader all of them are rows. `folder` is for blocks, and for lines that are left; None: no disk is shared.
    """
    if reader is None:
        return Read(rows=records(spark, lines, pipeline, system_time))
    if folder is None:
        found = parse.records(block_rows.read(spark, lines, reader), pipeline, system_time)
        return Read(rows=found.select("*", _code()))
    told = line_tasks.told(spark, lines, block_files.into(folder, reader), block_files.GIVES)
    left = [row.file for row in told if row.target is None]
    # One object for each name: the tasks are sent all of them.
    blocks = [Block(row.target, intern(row.file), row.start, row.bytes) for row in told if row.target is not None]
    rows = records(spark, line_tasks.left(spark, left, lines), pipeline, system_time) if left else None
    return Read(blocks, record_schema(reader), rows)


def records(spark: SparkSession, lines: Lines, pipeline: Pipeline, system_time: datetime) -> DataFrame:
    """All lines by the table's reader: the columns of `parse.records`, and CODE."""
    rows = as_rows(spark, lines)
    return parse.records(rows, pipeline, system_time).select("*", _code())


def places(spark: SparkSession, lines: Lines) -> pa.Table:
    """Where the records of a batch are: oo_file and oo_position of each."""
    return as_rows(spark, lines).select("oo_file", "oo_position").toArrow()


def judged(spark: SparkSession, found: Read, partitions: int, task: Task, gives: StructType) -> DataFrame:
    """A task over each partition of the batch: its records, and its seed."""
    shares: list[list[Block]] = [[] for _ in range(partitions)]
    for block in found.blocks:
        shares[block.target].append(block)
    if found.rows is None:
        return _shared(spark, shares, found.schema, task, gives, seeded=True)
    return mapped(exchanged(found.rows, partitions), task, gives, shares)


def exchanged(records: DataFrame, partitions: int) -> DataFrame:
    """The records by their ids, with a seed in each partition."""
    seeds = records.sparkSession.range(0, partitions, 1, 1).select(*_seed())
    rows = records.unionByName(seeds, allowMissingColumns=True)
    by_id = F.pmod(F.col(OO_HIGH), F.lit(partitions)).cast("int")
    return rows.repartitionById(partitions, block_rows.target(by_id) if block_rows.among(rows) else by_id)


def mapped(records: DataFrame, task: Task, gives: StructType, shares: Sequence[Sequence[Block]] = ()) -> DataFrame:
    """A task over rows as they lie in Spark's partitions, each with the blocks of the partitions whose seeds it has."""
    names = records.columns
    # Spark takes a dot in a name for a field of a struct here.
    numbered = records.toDF(*(f"c{at}" for at in range(len(names))))
    with_blocks = block_rows.among(records)

    def of_task(batches: Batches) -> Batches:
        named = (batch.rename_columns(names) for batch in batches)
        return task(_in_rows(named) if with_blocks else _with_blocks(named, shares))

    return worker.mapped(numbered, of_task, gives)


def rows(spark: SparkSession, lines: Lines, pipeline: Pipeline, system_time: datetime, folder: Path) -> DataFrame:
    """The records as rows like those of `parse.records`, for whoever looks at them.

    `folder` must be there as long as they are read.
    """
    found = read(spark, lines, pipeline, system_time, plain_records.reader(pipeline, system_time, 1), folder)
    frames = [] if found.rows is None else [found.rows.drop(CODE)]
    if found.blocks:
        of_record = from_arrow_schema(found.schema).fields[:-1]
        numbered = StructType([StructField(f"c{at}", field.dataType) for at, field in enumerate(of_record)])

        def shown(parts: Parts) -> Batches:
            return (records_of(part).drop_columns([CODE]).rename_columns(numbered.names) for part in parts)

        opened = _shared(spark, [found.blocks], found.schema, shown, numbered, seeded=False)
        frames.append(opened.toDF(*(field.name for field in of_record)))
    return _together(frames) if frames else records(spark, Lines([], None), pipeline, system_time).drop(CODE)


def record_schema(reader: Reader) -> pa.Schema:
    """Of the records that are made of blocks."""
    return pa.schema([*reader.schema, *PLATFORM])


def share(blocks: Iterable[Callable[[], pa.Buffer]], schema: pa.Schema, seed: int | None) -> Parts:
    """The records of some blocks, each by what fetches it, and a seed with its number."""
    for fetch in blocks:
        yield partial(_opened, fetch, schema)
    if seed is not None:
        yield pa.RecordBatch.from_pylist([{OO_HIGH: seed, CODE: SEED}], schema=schema)


def records_of(part: Part) -> pa.RecordBatch:
    """The records of a part."""
    return part() if callable(part) else part


def _opened(fetch: Callable[[], pa.Buffer], schema: pa.Schema) -> pa.RecordBatch:
    """The records of a block, without a copy."""
    packed = pa.schema([field for field in schema if field.name not in NOT_IN_BLOCKS])
    return plain(pa.ipc.read_record_batch(fetch(), packed), schema)


def plain(records: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Plain records with all columns of a record: none of them has a reason, or anything unknown."""
    rest = {name: pa.nulls(records.num_rows, schema.field(name).type) for name in NOT_IN_BLOCKS}
    rest[CODE] = pa.repeat(pa.scalar(CANDIDATE, pa.int8()), records.num_rows)
    columns = [rest[name] if name in rest else records.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _shared(
    spark: SparkSession,
    shares: Sequence[Sequence[Block]],
    schema: pa.Schema,
    task: Task,
    gives: StructType,
    *,
    seeded: bool,
) -> DataFrame:
    def of_task(mine: tuple[int, Sequence[Block]]) -> Batches:
        number, blocks = mine
        return task(share((block.fetched for block in blocks), schema, number if seeded else None))

    return worker.each(spark, [*enumerate(shares)], of_task, gives)


def _with_blocks(batches: Batches, shares: Sequence[Sequence[Block]]) -> Parts:
    seeds: list[int] = []
    for rows in batches:
        yield rows
        if shares:
            seeds += rows.column(OO_HIGH).filter(pc.equal(rows.column(CODE), SEED)).to_pylist()
            schema = rows.schema
    for number in seeds:
        for block in shares[number]:
            yield partial(_opened, block.fetched, schema)


def _in_rows(batches: Batches) -> Parts:
    for batch in batches:
        rows, blocks = block_rows.apart(batch)
        if rows.num_rows:
            yield rows
        yield from (_opened(block.as_buffer, rows.schema) for block in blocks)


def as_rows(spark: SparkSession, lines: Lines) -> DataFrame:
    """All lines of a batch as rows like `lines.LINE`; of a source with columns the rows have those."""
    frames = [] if lines.rows is None else [lines.chosen.of_rows(lines.rows)]
    if lines.ranges:
        frames.append(line_reader.read(spark, lines.ranges, lines.chosen.of_batches, schemas.of(LINE)))
    return _together(frames) if frames else spark.createDataFrame([], schemas.of(LINE))


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.union, frames)


@cache
def _code() -> Column:
    code = F.when(F.col(OO_REASON).isNotNull(), INVALID).otherwise(CANDIDATE)
    return code.cast("byte").alias(CODE)


@cache
def _seed() -> list[Column]:
    return [F.col("id").alias(OO_HIGH), F.lit(SEED).cast("byte").alias(CODE)]
