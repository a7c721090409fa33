"""Turn the lines of a batch into records, and bring each record to the task of its partition.

A task on the fast JSON path (`fast_json`) makes blocks of records, one for each partition, in files that every
executor can read. The driver collects the files' names and passes them to the tasks that read them. So these records do
not pass through Spark's exchange, which would take a quarter of a batch's time. The table's reader parses the lines
that are left (`parse`), and one exchange brings their records to the partitions. Usually no line is left. If executors
share no disk, blocks are rows of that exchange.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial, reduce
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType, TimestampType

from onlyonce.api.pipeline import Pipeline
from onlyonce.core.errors import Retryable
from onlyonce.core.stored_names import OO_HIGH, OO_RAW, OO_REASON, OO_UNKNOWN
from onlyonce.engine import session, worker
from onlyonce.engine.worker import GONE, Batches, Work
from onlyonce.receive.unit import CANDIDATE, INVALID, SEED
from onlyonce.sources import line_reader
from onlyonce.sources.lines import LINE_COLUMN, Lines
from onlyonce.sources.values import fast_json, parse
from onlyonce.sources.values.fast_json import Reader
from onlyonce.sources.values.parse import BOUND, CARRIED

GIVES = "target int, file string, start bigint, bytes bigint"
"""Columns that a task returns: each block's partition (`target`) and its place in a file.

The file of the lines that are left has no target.
"""
_GIVES = pa.schema([("target", pa.int32()), ("file", pa.string()), ("start", pa.int64()), ("bytes", pa.int64())])


@contextmanager
def block_folder(home: Path, epoch: int) -> Iterator[Path]:
    """Yield a folder for one attempt of a batch, and remove it at the end.

    It lies next to `events`, where tasks write anyway. Each attempt of a task writes its own files there. If the folder
    was removed meanwhile, the block's error becomes Retryable, as GONE.
    """
    path = home / str(epoch) / uuid4().hex
    path.mkdir(parents=True)
    try:
        yield path
    except Exception as error:
        if path.is_dir():
            raise
        raise _gone(str(path)) from error
    finally:
        shutil.rmtree(path, ignore_errors=True)


def clear_blocks(home: Path, epoch: int) -> None:
    """Remove the folders that drivers of earlier epochs have left behind.

    If such a driver is still running, it is fenced, and its batch belongs to another driver.
    """
    for left in home.glob("*"):
        if left.name.isdigit() and int(left.name) < epoch:
            shutil.rmtree(left, ignore_errors=True)


class Block(NamedTuple):
    """The place of a block, and the partition that it belongs to."""

    target: int
    file: str
    start: int
    bytes: int

    def fetched(self) -> pa.Buffer:
        """Map the block into memory and return it. Raise Retryable if its file is missing or cut."""
        try:
            # Mapped: a reader of the deciding columns does not read the other ones.
            with pa.memory_map(self.file) as file:
                file.seek(self.start)
                block = file.read_buffer(self.bytes)
        except FileNotFoundError as error:
            raise _gone(self.file) from error
        if block.size < self.bytes:
            raise _gone(self.file)
        return block


def write_blocks_into(path: Path, read: Work) -> Work:
    """Return a task function that applies `read`, a `fast_json.Reader`, to the task's lines.

    It writes the blocks, and the lines that `read` leaves, to files below `path`. It yields rows with GIVES's columns.
    """

    def stored(lines: Batches) -> Batches:
        name = path / uuid4().hex
        with Left(path) as left:
            for batch in read(lines):
                if batch.column("block").null_count:
                    left.add(batch.drop_columns(["block", "target"]))
                else:
                    yield _told(_stored(name, batch))
        if left.any:
            yield _told([(None, str(left.name), None, None)])

    return stored


def left_in_blocks(name: str) -> Batches:
    """Yield the lines that were left in a file. Raise Retryable if the file is missing or cut."""
    try:
        with pa.OSFile(name) as file, pa.ipc.open_file(file) as lines:
            for number in range(lines.num_record_batches):
                yield lines.get_batch(number)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise _gone(name) from error


class Left:
    """Write the lines that one task leaves to others into a file, created with the first line."""

    def __init__(self, folder: Path) -> None:
        self.name, self.any = folder / f"{uuid4().hex}.left", False
        self._open = ExitStack()
        self._writer: pa.RecordBatchFileWriter | None = None

    def __enter__(self) -> Left:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, lines: pa.RecordBatch) -> None:
        """Append lines to the file."""
        if self._writer is None:
            file = self._open.enter_context(pa.OSFile(str(self.name), "wb"))
            self._writer = self._open.enter_context(pa.ipc.new_file(file, lines.schema))
            self.any = True
        self._writer.write_batch(lines)


def _stored(name: Path, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    with name.open("ab") as file:
        return [
            (target, str(name), file.tell(), file.write(block.as_buffer()))
            for target, block in zip(batch.column("target").to_pylist(), batch.column("block"), strict=True)
        ]


def _told(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(_GIVES.names, row, strict=True)) for row in rows], schema=_GIVES)


def _gone(name: str) -> Retryable:
    return Retryable(
        f"{GONE}: {name} was taken away or cut",
        data="nothing of this batch is half done",
        hint="run the same command again; if it happens again, see that all executors have the same folder, and "
        "who clears it",
    )


def told_by_tasks(spark: SparkSession, lines: Lines, work: Work, gives: str) -> list[Row]:
    """Run `work` over the lines in each task, and return the rows that it yields, with the columns `gives`."""
    frames, chosen = (
        [],
        lines.chosen,
    )  # a task is sent what its function holds, and of `lines` the rows are the driver's
    schema = session.schema_of(gives)
    if lines.ranges:
        frames.append(line_reader.read(spark, lines.ranges, lambda found: work(chosen.of_batches(found)), schema))
    if lines.rows is not None:
        frames.append(worker.mapped(chosen.of_rows(lines.rows), work, schema))
    return reduce(DataFrame.union, frames).collect() if frames else []


def lines_left(spark: SparkSession, files: Sequence[str], lines: Lines) -> Lines:
    """Return the lines that were left in files. Column BOUND is the last event time that is valid for the line."""
    of_line = session.schema_of(LINE_COLUMN) if lines.rows is None else lines.rows.schema
    # The columns are nullable here even if the rows' columns are not.
    fields = [StructField(field.name, field.dataType) for field in of_line]
    schema = StructType([*fields, StructField(parse.BOUND, TimestampType())])
    return Lines([], worker.each(spark, files, left_in_blocks, schema))


# Blocks of records as rows among other rows, if executors share no disk: Spark's exchange brings them to the task of
# their partition.
#
# Lines are read once. A task returns rows with a block and its partition, and the lines that are left, which the
# table's reader parses in the same pass. Spark keeps exchanged rows on the executors' disks. If an executor is lost,
# the tasks that wrote there read their lines again, and may cut blocks elsewhere.


BLOCK, TARGET = CARRIED
GIVES_BLOCKS = f"block binary, target int, {BOUND} timestamp"
"""Columns that a reader (`fast_json.Reader`) adds to the columns of its lines."""


def read_block_rows(spark: SparkSession, lines: Lines, reader: Work) -> DataFrame:
    """Return the lines that are left as rows like `lines.LINE` with BOUND, and blocks as rows with CARRIED."""
    frames, chosen = (
        [],
        lines.chosen,
    )  # a task is sent what its function holds, and of `lines` the rows are the driver's

    def of_lines(found: Batches) -> Batches:
        return reader(chosen.of_batches(found))

    if lines.ranges:
        frames.append(
            line_reader.read(spark, lines.ranges, of_lines, _rows_with_blocks(session.schema_of(LINE_COLUMN)))
        )
    if lines.rows is not None:
        rows = chosen.of_rows(lines.rows)
        frames.append(worker.mapped(rows, reader, _rows_with_blocks(rows.schema)))
    found = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    return found.withColumnsRenamed({"block": BLOCK, "target": TARGET})


def among_blocks(rows: DataFrame) -> bool:
    """Return whether the rows may contain blocks."""
    return BLOCK in rows.columns


def block_target(by_id: Column) -> Column:
    """Return the partition of a row: a block names its own, and a record's follows from its id."""
    return F.coalesce(F.col(TARGET), by_id)


def blocks_apart(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[pa.Scalar]]:
    """Split a batch into the rows that are records, and its blocks."""
    blocks = batch.column(BLOCK)
    return batch.drop_columns([*CARRIED]).filter(blocks.is_null()), [*blocks.drop_null()]


def _rows_with_blocks(schema: StructType) -> StructType:
    # The columns are nullable here even if the rows' columns are not.
    return StructType(
        [StructField(field.name, field.dataType) for field in [*schema.fields, *session.schema_of(GIVES_BLOCKS).fields]]
    )


NO_COLUMNS = pa.schema([])
CODE = "oo_code"
"""The kind of a record before it is judged (`unit.CANDIDATE`, `INVALID` or `SEED`)."""
PLATFORM = [
    (OO_REASON, pa.string()), (OO_RAW, pa.string()), (OO_UNKNOWN, pa.string()),
    (parse.PLACED, pa.struct([(name, pa.int64()) for name in parse.PLACE])), (CODE, pa.int8()),
]  # fmt: skip
"""Columns of a record that a block does not store."""
NOT_IN_BLOCKS = tuple(name for name, _ in PLATFORM)

Part: TypeAlias = "pa.RecordBatch | Callable[[], pa.RecordBatch]"
"""Records in memory, to be read once; or a function that opens them at each call."""
Parts = Iterator[Part]
Task = Callable[[Parts], Batches]


@dataclass(frozen=True)
class Read:
    """The lines of a batch after reading.

    blocks   of records from the fast JSON path
    schema   of the records in the blocks
    rows     the other records, with the columns of `parse.records` and CODE; None if there are none
    """

    blocks: Sequence[Block] = ()
    schema: pa.Schema = NO_COLUMNS
    rows: DataFrame | None = None


def read_records(
    spark: SparkSession,
    lines: Lines,
    pipeline: Pipeline,
    ingestion_time: datetime,
    reader: Reader | None,
    folder: Path | None,
) -> Read:
    """Read the lines of a batch.

    Without a reader all lines become rows. `folder` takes blocks and lines that are left; None if no disk is shared.
    """
    if reader is None:
        return Read(rows=records(spark, lines, pipeline, ingestion_time))
    if folder is None:
        found = parse.records(read_block_rows(spark, lines, reader), pipeline, ingestion_time)
        return Read(rows=found.select("*", _code()))
    told = told_by_tasks(spark, lines, write_blocks_into(folder, reader), GIVES)
    left = [row.file for row in told if row.target is None]
    # One object for each name: the tasks are sent all of them.
    blocks = [Block(row.target, intern(row.file), row.start, row.bytes) for row in told if row.target is not None]
    rows = records(spark, lines_left(spark, left, lines), pipeline, ingestion_time) if left else None
    return Read(blocks, record_schema(reader), rows)


def records(spark: SparkSession, lines: Lines, pipeline: Pipeline, ingestion_time: datetime) -> DataFrame:
    """Parse all lines with the table's reader: return the columns of `parse.records`, and CODE."""
    rows = as_rows(spark, lines)
    return parse.records(rows, pipeline, ingestion_time).select("*", _code())


def places(spark: SparkSession, lines: Lines) -> pa.Table:
    """Return the places of a batch's records: oo_file and oo_position of each."""
    return as_rows(spark, lines).select("oo_file", "oo_position").toArrow()


def judged(spark: SparkSession, found: Read, partitions: int, task: Task, gives: StructType) -> DataFrame:
    """Run a task over each partition of the batch: its records and its seed."""
    shares: list[list[Block]] = [[] for _ in range(partitions)]
    for block in found.blocks:
        shares[block.target].append(block)
    if found.rows is None:
        return _shared(spark, shares, found.schema, task, gives, seeded=True)
    return mapped(exchanged(found.rows, partitions), task, gives, shares)


def exchanged(records: DataFrame, partitions: int) -> DataFrame:
    """Repartition the records by their ids, with a seed in each partition."""
    seeds = records.sparkSession.range(0, partitions, 1, 1).select(*_seed())
    rows = records.unionByName(seeds, allowMissingColumns=True)
    by_id = F.pmod(F.col(OO_HIGH), F.lit(partitions)).cast("int")
    return rows.repartitionById(partitions, block_target(by_id) if among_blocks(rows) else by_id)


def mapped(records: DataFrame, task: Task, gives: StructType, shares: Sequence[Sequence[Block]] = ()) -> DataFrame:
    """Run a task over each of Spark's partitions: its rows, and the blocks for the seeds among them."""
    names = records.columns
    # Spark reads a dot in a column name as a field of a struct here.
    numbered = records.toDF(*(f"c{at}" for at in range(len(names))))
    with_blocks = among_blocks(records)

    def of_task(batches: Batches) -> Batches:
        named = (batch.rename_columns(names) for batch in batches)
        return task(_in_rows(named) if with_blocks else _with_blocks(named, shares))

    return worker.mapped(numbered, of_task, gives)


def rows(spark: SparkSession, lines: Lines, pipeline: Pipeline, ingestion_time: datetime, folder: Path) -> DataFrame:
    """Return the records as rows like `parse.records` returns them, without judging them.

    `folder` must exist until the rows are read.
    """
    found = read_records(
        spark, lines, pipeline, ingestion_time, fast_json.plain_record_reader(pipeline, ingestion_time, 1), folder
    )
    frames = [] if found.rows is None else [found.rows.drop(CODE)]
    if found.blocks:
        of_record = from_arrow_schema(found.schema).fields[:-1]
        numbered = StructType([StructField(f"c{at}", field.dataType) for at, field in enumerate(of_record)])

        def shown(parts: Parts) -> Batches:
            return (records_of(part).drop_columns([CODE]).rename_columns(numbered.names) for part in parts)

        opened = _shared(spark, [found.blocks], found.schema, shown, numbered, seeded=False)
        frames.append(opened.toDF(*(field.name for field in of_record)))
    return _together(frames) if frames else records(spark, Lines([], None), pipeline, ingestion_time).drop(CODE)


def record_schema(reader: Reader) -> pa.Schema:
    """Return the schema of records that are made of blocks."""
    return pa.schema([*reader.schema, *PLATFORM])


def share(blocks: Iterable[Callable[[], pa.Buffer]], schema: pa.Schema, seed: int | None) -> Parts:
    """Yield a part for each block, and a row for the seed with its number. Each block is given by what fetches it."""
    for fetch in blocks:
        yield partial(_opened, fetch, schema)
    if seed is not None:
        yield pa.RecordBatch.from_pylist([{OO_HIGH: seed, CODE: SEED}], schema=schema)


def records_of(part: Part) -> pa.RecordBatch:
    """Return the records of a part."""
    return part() if callable(part) else part


def _opened(fetch: Callable[[], pa.Buffer], schema: pa.Schema) -> pa.RecordBatch:
    """Return the records of a block without copying them."""
    packed = pa.schema([field for field in schema if field.name not in NOT_IN_BLOCKS])
    return plain(pa.ipc.read_record_batch(fetch(), packed), schema)


def plain(records: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Add the columns that records of the fast JSON path lack.

    All but CODE are null: these records have no reason and no unknown fields.
    """
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
        rows, blocks = blocks_apart(batch)
        if rows.num_rows:
            yield rows
        yield from (_opened(block.as_buffer, rows.schema) for block in blocks)


def as_rows(spark: SparkSession, lines: Lines) -> DataFrame:
    """Return all lines of a batch as rows like `lines.LINE`.

    If the source has columns of its own, the rows have the source's columns.
    """
    frames = [] if lines.rows is None else [lines.chosen.of_rows(lines.rows)]
    if lines.ranges:
        frames.append(line_reader.read(spark, lines.ranges, lines.chosen.of_batches, session.schema_of(LINE_COLUMN)))
    return _together(frames) if frames else spark.createDataFrame([], session.schema_of(LINE_COLUMN))


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.union, frames)


@cache
def _code() -> Column:
    code = F.when(F.col(OO_REASON).isNotNull(), INVALID).otherwise(CANDIDATE)
    return code.cast("byte").alias(CODE)


@cache
def _seed() -> list[Column]:
    return [F.col("id").alias(OO_HIGH), F.lit(SEED).cast("byte").alias(CODE)]
