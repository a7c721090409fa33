"""Parquet and Avro files: rows with their numbers, as columns of the declared types.

When a file is registered it is read to its end, by the same reader and the same rules. A file that is cut short,
damaged, or of other types is refused as a whole, so no task ever fails on its content. Parquet is read in groups of
rows, as whole arrays (`parquet_files`). An Avro file is read by one task (`avro_files`), some thousand records at a
time. A row that is too large is `invalid`; the other rows of its file are not.

Who calls it: `source_files`. Errors: Damaged from `count`; OSError for a file that can't be read, which Spark tries
again. Not promised: that an Avro file is refused which was cut exactly at the end of a block. Its format can't tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.model.errors import OnlyonceError
from onlyonce.model.record_size import Damaged
from onlyonce.session import worker
from onlyonce.sources.files import avro_files, line_reader, parquet_files, regular_file
from onlyonce.sources.files.listing import Counter, FileAt, InputFile
from onlyonce.sources.parse import coercion, record_id
from onlyonce.sources.tables import shared_columns
from onlyonce.sources.tables.shared_columns import Shared

AT_ONCE = 1 << 14
"""Rows of one Arrow batch at most."""
PART = 1 << 25
"""How many bytes one task reads: groups of rows of a large file, or small files together."""


@dataclass(frozen=True)
class Part:
    """Some rows of a file: all, or those of some groups (Parquet) that begin with number `position`; `shared` are
    columns beside it."""

    at: FileAt
    key: int
    groups: tuple[int, ...] | None
    position: int
    weight: int
    shared: Shared = ()


def counter(pipeline: Pipeline, shared: Shared = ()) -> Counter:
    """Counts the rows of a file as a task would read them, with the columns that they share; raises Damaged."""
    read = _reader(pipeline)
    look_through = parquet_files.check if pipeline.source.format == "parquet" else avro_files.check

    def count(at: FileAt) -> int:
        try:
            look_through(at)
            return sum(batch.num_rows for batch in read(Part(at, 0, None, 0, 0, shared)))
        except (OnlyonceError, FileNotFoundError):
            raise
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
    """The rows of some files: `coercion.BESIDE`, and the declared columns."""
    tasks = list(_together(part for file in files if file.lines for part in _parts(file, pipeline)))
    of_part = _reader(pipeline)

    def of_task(mine: list[Part]) -> Iterator[pa.RecordBatch]:
        for part in mine:
            try:
                yield from of_part(part)
            except (FileNotFoundError, regular_file.NoFile) as error:
                raise line_reader.vanished(part.at.path) from error

    return worker.each(spark, tasks, of_task, schema(pipeline))


def schema(pipeline: Pipeline) -> str:
    """What `read` gives, in DDL."""
    return f"{coercion.BESIDE}, {pipeline.schema}"


def _reader(pipeline: Pipeline) -> Callable[[Part], Iterator[pa.RecordBatch]]:
    declared, named = coercion.declared(pipeline.schema), pipeline.named()
    wanted = pa.schema([field.with_name(named[field.name]) for field in declared])
    needed = [named[column] for column in (*pipeline.record_id, pipeline.event_time)]
    names = [part.split()[0] for part in coercion.BESIDE.split(", ")] + declared.names
    rows = _rows_of_parquet if pipeline.source.format == "parquet" else _rows_of_avro

    def of_part(part: Part) -> Iterator[pa.RecordBatch]:
        position = part.position
        of_file = coercion.Place(f"row %s of {part.at.path}", part.key, pipeline.source.max_record_bytes)
        for batch, there in rows(part, wanted.names, needed):
            for fitted in coercion.fit(batch, there, wanted, of_file, position):
                yield fitted.rename_columns(names)
            position += batch.num_rows

    return of_part


Rows = Iterator[tuple[pa.RecordBatch, list[str]]]


def _rows_of_parquet(part: Part, wanted: list[str], needed: list[str]) -> Rows:
    beside = [name for name, _, _ in part.shared]
    inside = [name for name in parquet_files.columns(part.at) if name not in beside]
    there = [*inside, *beside]
    coercion.check_names(there, needed)
    shared = tuple(one for one in part.shared if one[0] in wanted)
    for batch in parquet_files.rows(part.at, part.groups, [name for name in inside if name in wanted], AT_ONCE):
        yield shared_columns.put(batch, shared) if shared else batch, there


def _rows_of_avro(part: Part, wanted: list[str], needed: list[str]) -> Rows:
    there = avro_files.columns(part.at)
    coercion.check_names(there, needed)
    for batch in avro_files.records(part.at, wanted, AT_ONCE):
        yield batch, there


def _parts(file: InputFile, pipeline: Pipeline) -> Iterator[Part]:
    key, of_object = record_id.of_file(file.identity or file.path), inputs.in_store(pipeline)
    at = (
        FileAt(file.place, file.size, file.mark)
        if of_object
        else FileAt(regular_file.place(file.place, links=pipeline.source.links))
    )
    shared = shared_columns.of(file.mark) if file.mark and not of_object else ()
    if pipeline.source.format != "parquet" or file.size <= PART:
        yield Part(at, key, None, 0, file.size, shared)
        return
    metadata = parquet_files.footer(at)
    groups: list[int] = []
    first = position = weight = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        groups.append(number)
        position += group.num_rows
        weight += group.total_byte_size
        if weight >= PART or number == metadata.num_row_groups - 1:
            yield Part(at, key, tuple(groups), first, weight, shared)
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
