"""Files in which tasks keep what they have made of their lines: blocks of plain records, and the lines that are left.

Every executor can read them.

The driver is told where the files are, and tells the tasks that read them. So nothing crosses an exchange, which would
take a quarter of a batch's time. The files are beside `events`, where tasks write anyway. Each attempt of a batch has a
folder of its own, and each attempt of a task its own files, so no two write to one place. The folder is removed with
the attempt.

Who calls it: `receive`, `exchange` and `straight`; the driver makes the folders, the tasks the files. Errors: OSError,
after which Spark tries the task again; Retryable for a file that has gone. Not promised: that a killed driver leaves
nothing. The next driver removes what is left.
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
"""What a task tells: of each block for which partition it is and where, and the file of the lines that are left,
without a target."""
_GIVES = pa.schema([("target", pa.int32()), ("file", pa.string()), ("start", pa.int64()), ("bytes", pa.int64())])


@contextmanager
def block_folder(home: Path, epoch: int) -> Iterator[Path]:
    """A folder for one attempt of a batch, and for no longer.

    What fails in it after it was cleared away is Retryable, as GONE.
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
    """Take away what drivers of earlier epochs have left.

    One that is still at work is fenced, and its batch is another's.
    """
    for left in home.glob("*"):
        if left.name.isdigit() and int(left.name) < epoch:
            shutil.rmtree(left, ignore_errors=True)


class Block(NamedTuple):
    """Where a block is, and the partition that it is for."""

    target: int
    file: str
    start: int
    bytes: int

    def fetched(self) -> pa.Buffer:
        """The block."""
        try:
            # Mapped: who looks at the columns that decide reads no others.
            with pa.memory_map(self.file) as file:
                file.seek(self.start)
                block = file.read_buffer(self.bytes)
        except FileNotFoundError as error:
            raise _gone(self.file) from error
        if block.size < self.bytes:
            raise _gone(self.file)
        return block


def write_blocks_into(path: Path, read: Work) -> Work:
    """What `read` makes of a task's lines (`plain_records.Reader`), in files below `path`; gives rows like GIVES."""

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
    """The lines that were left in a file."""
    try:
        with pa.OSFile(name) as file, pa.ipc.open_file(file) as lines:
            for number in range(lines.num_record_batches):
                yield lines.get_batch(number)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise _gone(name) from error


class Left:
    """The file, in a folder, of the lines that a task leaves, made for the first of them; a context."""

    def __init__(self, folder: Path) -> None:
        self.name, self.any = folder / f"{uuid4().hex}.left", False
        self._open = ExitStack()
        self._writer: pa.RecordBatchFileWriter | None = None

    def __enter__(self) -> Left:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, lines: pa.RecordBatch) -> None:
        """Keep some."""
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


# Tasks over the lines of a batch, from files and from rows, and over those that such tasks have left.
#
# Who calls it: `exchange` and `straight`. Errors: those of the source and of the work.


def told_by_tasks(spark: SparkSession, lines: Lines, work: Work, gives: str) -> list[Row]:
    """What work tells of the lines of each task."""
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
    """The lines that were left in files, each with the last event time that is valid beside it."""
    of_line = session.schema_of(LINE_COLUMN) if lines.rows is None else lines.rows.schema
    # Nulls anywhere, whatever the rows promise.
    fields = [StructField(field.name, field.dataType) for field in of_line]
    schema = StructType([*fields, StructField(parse.BOUND, TimestampType())])
    return Lines([], worker.each(spark, files, left_in_blocks, schema))


# Blocks of records as rows among other rows, where executors share no disk: Spark's exchange brings them to the task of
# their partition.
#
# Lines are read once: what a task makes of them are rows with a block and the partition that it is for, and the lines
# that are left, which the table's reader reads as they pass. Spark keeps what is exchanged on the disks of the
# executors. If one is lost, the tasks that wrote there read their lines again.
#
# Who calls it: `exchange`. Errors: those of the source. Not promised: where a block is cut; a task that is done again
# may cut it elsewhere.


BLOCK, TARGET = CARRIED
GIVES_BLOCKS = f"block binary, target int, {BOUND} timestamp"
"""What a reader gives beside what it was given (`plain_records.Reader`)."""


def read_block_rows(spark: SparkSession, lines: Lines, reader: Work) -> DataFrame:
    """The lines that are left as rows like `lines.LINE`, with BOUND, and blocks as rows of their own, with CARRIED."""
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
    """Whether there may be blocks."""
    return BLOCK in rows.columns


def block_target(by_id: Column) -> Column:
    """The partition of a row: of a block the one that it is for, of a record by its id."""
    return F.coalesce(F.col(TARGET), by_id)


def blocks_apart(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[pa.Scalar]]:
    """The rows of a batch that are records, and its blocks."""
    blocks = batch.column(BLOCK)
    return batch.drop_columns([*CARRIED]).filter(blocks.is_null()), [*blocks.drop_null()]


def _rows_with_blocks(schema: StructType) -> StructType:
    # Nulls anywhere, whatever the rows promise.
    return StructType(
        [StructField(field.name, field.dataType) for field in [*schema.fields, *session.schema_of(GIVES_BLOCKS).fields]]
    )


# Turns the lines of a batch into records, and brings each record to the task of its partition.
#
# A task that reads lines makes blocks of the plain ones (`plain_records`), one for each partition. The blocks wait in
# files, and the driver is told where (`block_files`). The lines that are left are rows: the table's reader reads them
# (`parse`), and one exchange brings them to their partition. Mostly no line is left, and then nothing is exchanged.
# Where executors share no disk, blocks are rows among those (`block_rows`).
#
# Who calls it: `receive`, and `conformance`, which looks at the records themselves. Errors: those of the source, and of
# the task that the records are given to.


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


def read_records(
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
        found = parse.records(read_block_rows(spark, lines, reader), pipeline, system_time)
        return Read(rows=found.select("*", _code()))
    told = told_by_tasks(spark, lines, write_blocks_into(folder, reader), GIVES)
    left = [row.file for row in told if row.target is None]
    # One object for each name: the tasks are sent all of them.
    blocks = [Block(row.target, intern(row.file), row.start, row.bytes) for row in told if row.target is not None]
    rows = records(spark, lines_left(spark, left, lines), pipeline, system_time) if left else None
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
    return rows.repartitionById(partitions, block_target(by_id) if among_blocks(rows) else by_id)


def mapped(records: DataFrame, task: Task, gives: StructType, shares: Sequence[Sequence[Block]] = ()) -> DataFrame:
    """A task over rows as they lie in Spark's partitions, each with the blocks of the partitions whose seeds it has."""
    names = records.columns
    # Spark takes a dot in a name for a field of a struct here.
    numbered = records.toDF(*(f"c{at}" for at in range(len(names))))
    with_blocks = among_blocks(records)

    def of_task(batches: Batches) -> Batches:
        named = (batch.rename_columns(names) for batch in batches)
        return task(_in_rows(named) if with_blocks else _with_blocks(named, shares))

    return worker.mapped(numbered, of_task, gives)


def rows(spark: SparkSession, lines: Lines, pipeline: Pipeline, system_time: datetime, folder: Path) -> DataFrame:
    """The records as rows like those of `parse.records`, for whoever looks at them.

    `folder` must be there as long as they are read.
    """
    found = read_records(
        spark, lines, pipeline, system_time, fast_json.plain_record_reader(pipeline, system_time, 1), folder
    )
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
        rows, blocks = blocks_apart(batch)
        if rows.num_rows:
            yield rows
        yield from (_opened(block.as_buffer, rows.schema) for block in blocks)


def as_rows(spark: SparkSession, lines: Lines) -> DataFrame:
    """All lines of a batch as rows like `lines.LINE`; of a source with columns the rows have those."""
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
