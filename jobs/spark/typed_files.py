"""Parquet and Avro files: rows with their numbers, as columns of the declared types.

A file is read to its end, by the same reader and the same rules, when it is registered: one that is cut short, damaged, or of
other types is refused as a whole, so no task ever fails on its content. Parquet is read in groups of rows by whole arrays; an
Avro file by one task (fastavro has only records), some thousand at a time.

Who calls it: `source_files`. Errors: Damaged from `count`; OSError for a file that can't be read, which Spark tries again.
Not promised: an Avro file that was cut exactly behind a block is shorter and not damaged: its format can't tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import fastavro
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from jobs import record_id
from jobs.model.declare import Pipeline
from jobs.spark import fitting
from jobs.spark.listing import Damaged, InputFile

AT_ONCE = 1 << 14
"""Rows of one Arrow batch."""
PART = 1 << 25
"""How many bytes one task reads: groups of rows of a large file, or small files together."""


@dataclass(frozen=True)
class Part:
    """Some rows of a file: all, or those of some groups (Parquet) that begin with number `position`."""

    path: str
    key: int
    groups: tuple[int, ...] | None
    position: int
    weight: int


def counter(pipeline: Pipeline) -> Callable[[str], int]:
    """Counts the rows of a file as a task would read them; raises Damaged."""
    read = _reader(pipeline)

    def count(path: str) -> int:
        try:
            return sum(batch.num_rows for batch in read(Part(path, 0, None, 0, 0)))
        except Damaged as error:
            raise Damaged(f"the {pipeline.source.format} file does not fit the declaration: {error}") from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise _damaged(pipeline, error) from error
        except Exception as error:  # the readers raise whatever a damaged byte leads them to
            raise _damaged(pipeline, error) from error

    return count


def _damaged(pipeline: Pipeline, error: Exception) -> Damaged:
    said = " ".join(str(error).split())[:200] or type(error).__name__
    return Damaged(
        f"the {pipeline.source.format} file is cut short or damaged ({said}); put it in again under a new name"
    )


def read(spark: SparkSession, pipeline: Pipeline, files: Iterable[InputFile]) -> DataFrame:
    """The rows of some files as (oo_file, oo_position, oo_rest, the declared columns)."""
    is_parquet = pipeline.source.format == "parquet"
    tasks = list(_together(part for file in files for part in _parts(file, is_parquet)))
    of_part = _reader(pipeline)

    def of_task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for part in tasks[number]:
                    yield from of_part(part)

    return spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(of_task, schema(pipeline))


def schema(pipeline: Pipeline) -> str:
    """What `read` gives, in DDL."""
    return f"oo_file long, oo_position long, oo_rest string, {pipeline.schema}"


def _reader(pipeline: Pipeline) -> Callable[[Part], Iterator[pa.RecordBatch]]:
    wanted = fitting.declared(pipeline.schema)
    needed = [*pipeline.record_id, pipeline.event_time]
    rows = _rows_of_parquet if pipeline.source.format == "parquet" else _rows_of_avro

    def of_part(part: Part) -> Iterator[pa.RecordBatch]:
        position = part.position
        for batch, there in rows(part, wanted.names, needed):
            yield fitting.fit(batch, there, wanted, part.key, position)
            position += batch.num_rows

    return of_part


Rows = Iterator[tuple[pa.RecordBatch, list[str]]]


def _rows_of_parquet(part: Part, wanted: list[str], needed: list[str]) -> Rows:
    with parquet.ParquetFile(part.path, page_checksum_verification=True) as file:
        there = file.schema_arrow.names
        fitting.check_names(there, needed)
        groups = list(range(file.num_row_groups)) if part.groups is None else list(part.groups)
        columns = [name for name in there if name in wanted]
        for batch in file.iter_batches(AT_ONCE, groups, columns):
            yield batch, there


def _rows_of_avro(part: Part, wanted: list[str], needed: list[str]) -> Rows:
    with Path(part.path).open("rb") as file:
        records = fastavro.reader(file)
        written = records.writer_schema
        if not isinstance(written, dict) or written.get("type") != "record":
            raise Damaged("its values are no records")
        there = [field["name"] for field in written["fields"]]
        fitting.check_names(there, needed)
        columns = [name for name in there if name in wanted]
        while chunk := list(itertools.islice(records, AT_ONCE)):
            yield pa.RecordBatch.from_pydict({name: [row[name] for row in chunk] for name in columns}), there


def _parts(file: InputFile, is_parquet: bool) -> Iterator[Part]:
    key = record_id.of_file(file.path)
    if not is_parquet or file.size <= PART:
        yield Part(file.path, key, None, 0, file.size)
        return
    metadata = parquet.read_metadata(file.path)
    groups: list[int] = []
    first = position = weight = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        groups.append(number)
        position += group.num_rows
        weight += group.total_byte_size
        if weight >= PART or number == metadata.num_row_groups - 1:
            yield Part(file.path, key, tuple(groups), first, weight)
            groups, first, weight = [], position, 0


def _together(parts: Iterable[Part]) -> Iterator[list[Part]]:
    group: list[Part] = []
    for part in parts:
        if group and sum(one.weight for one in group) + part.weight > PART:
            yield group
            group = []
        group.append(part)
    if group:
        yield group
