"""Parquet and Avro files: rows with their numbers, as columns of the declared types.

When a file is registered it is read to its end, by the same reader and the same rules. A file that is cut short,
damaged, or of other types is refused as a whole, so no task ever fails on its content. Only an Avro file that is cut
exactly at the end of a block looks complete, by its format. Parquet is read in groups of rows, as whole arrays. An Avro
file is read by one task (`avro_files`), a few thousand records at a time. A row that is too large is `invalid`; the
other rows of its file are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet, types
from pyspark.sql import DataFrame, SparkSession

from onlyonce.api.pipeline import Pipeline
from onlyonce.core import conversions, stored_names
from onlyonce.core.conversions import Cell, Unfit
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.core.locations import is_url, location
from onlyonce.core.records import Damaged
from onlyonce.engine import worker
from onlyonce.sources import avro_files, file_bytes, line_reader, record_id
from onlyonce.sources.file_bytes import ObjectFile
from onlyonce.sources.listing import Counter, FileAt, InputFile
from onlyonce.sources.values import coercion
from onlyonce.sources.values.coercion import AT_ONCE
from onlyonce.tables import arrow_files

ZONED = re.compile(r"(?:Z|[+-][0-9]{2}:?[0-9]{2})\Z")
Shared = tuple[tuple[str, str | None, str], ...]
"""(column, value as stored in the log, Delta's name of its type) for each column.

All rows of a data file share these columns, and the file does not have them: partition columns, and columns of the
change data feed. The table's log has their values as strings, which are converted like values of CSV."""


def shared_columns_of(mark: str) -> Shared:
    """Return the shared columns in the manifest's entry of a data file."""
    return tuple((name, value, kind) for name, value, kind in json.loads(mark)[stored_names.MARK_SHARED])


def check_shared(path: str, shared: Sequence[tuple[str, str | None, str]]) -> None:
    """Raise Refused if a shared value can't be read."""
    for name, value, kind in shared:
        try:
            _value(value, kind)
        except Unfit as why:
            because = f" ({why})" if str(why) else ""
            raise Refused(
                f"{path}: its partition column {name} is {value!r}, which can't be read as {kind}{because}",
                data="nothing of its version was read",
                hint="a time without its zone means another instant in each session's zone; leave the column out "
                "of the schema by a copy of the table",
            ) from why


def put_columns(batch: pa.RecordBatch, shared: Shared) -> pa.RecordBatch:
    """Return the rows with the shared columns added; they replace columns of the file with such names."""
    columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
    columns |= {name: pa.repeat(_value(value, kind), batch.num_rows) for name, value, kind in shared}
    return pa.RecordBatch.from_pydict(columns) if columns else batch


def _value(text: str | None, kind: str) -> pa.Scalar:
    wanted = coercion.declared(f"c {kind}").field(0).type
    if not text:
        return pa.scalar(None, wanted)
    if kind == "timestamp" and not ZONED.search(text):
        raise Unfit("it has no zone")
    return pa.scalar(conversions.of_cell(kind)(Cell(text), []), wanted)


# The rows of Parquet files, some at a time. Files that would unpack to far more than their size are refused, as far as
# their own metadata is right.
#
# A value that many rows share is in the file once (a dictionary): 200 rows with the same string of 20 MB take two
# kilobytes. Long strings stay shared in memory; `coercion` measures them before it copies them into each row. A damaged
# byte can make pyarrow raise any error.


LARGE = 1 << 28
"""The most bytes to which a column of one group of rows may be decompressed, however small it is compressed."""
TIMES = 1000
"""Larger columns may be decompressed to this many times their compressed size."""


def parquet_columns(at: FileAt) -> list[str]:
    """Return the names of all columns."""
    with opened_parquet(at) as file:
        names: list[str] = file.schema_arrow.names
    return names


def check_parquet(at: FileAt) -> None:
    """Raise Damaged if a part of a file states that it unpacks to a thousand times its size."""
    metadata = parquet_footer(at)
    for number in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            part = metadata.row_group(number).column(column)
            size, packed = part.total_uncompressed_size, part.total_compressed_size
            if size > max(LARGE, TIMES * packed):
                raise Damaged(f"the {packed} bytes of its column {part.path_in_schema} unpack to {size}")


def parquet_footer(at: FileAt) -> parquet.FileMetaData:
    """Return the metadata in a file's footer."""
    with opened_parquet(at) as file:
        return file.metadata


def parquet_rows(
    at: FileAt, groups: Sequence[int] | None, wanted: list[str], most_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some groups (None: all) in batches; long strings that rows share may be dictionaries."""
    with opened_parquet(at) as file:
        texts = [field.name for field in file.schema_arrow if field.name in wanted and _is_text(field.type)]
        for number in range(file.num_row_groups) if groups is None else groups:
            group = file.metadata.row_group(number)
            at_once = _at_once(group, most_rows)
            if at_once * group.total_byte_size <= AT_ONCE or not texts:
                yield from file.iter_batches(at_once, [number], wanted)
                continue
            with opened_parquet(at, metadata=file.metadata, read_dictionary=texts) as shared:
                long = at_once * _longest(shared, number, texts) > AT_ONCE
                yield from (shared if long else file).iter_batches(at_once, [number], wanted)


def opened_parquet(at: FileAt, **form: Any) -> parquet.ParquetFile:
    """Open a Parquet file of a source as a context."""
    checked = {"page_checksum_verification": True, **form}
    if at.etag:
        return arrow_files.opened(ObjectFile(*at), **checked)
    if is_url(at.path):
        return arrow_files.opened(location(at.path), **checked)  # a table's file never changes
    with file_bytes.by_descriptor(at.path) as name:
        return arrow_files.opened(pa.OSFile(name), **checked)


def _at_once(group: parquet.RowGroupMetaData, most_rows: int) -> int:
    return max(1, min(most_rows, AT_ONCE * group.num_rows // max(group.total_byte_size, 1)))


def _longest(shared: parquet.ParquetFile, group: int, texts: list[str]) -> int:
    """Return the length of the longest string that rows of a group share. The first row comes with all of them."""
    first = next(shared.iter_batches(1, [group], texts), None)
    lengths = [pc.max(pc.binary_length(column.dictionary)).as_py() or 0 for column in first.columns] if first else []
    return max(lengths, default=0)


def _is_text(kind: pa.DataType) -> bool:
    return types.is_string(kind) or types.is_binary(kind)


# Both formats.


ROWS_AT_ONCE = 1 << 14
"""The most rows of one Arrow batch."""
PART = 1 << 25
"""How many bytes one task reads: groups of rows of a large file, or small files together."""


@dataclass(frozen=True)
class Part:
    """Some rows of a file: all, or the rows of some groups (Parquet) that begin with number `position`.

    `shared` are columns that the file does not have."""

    at: FileAt
    key: int
    groups: tuple[int, ...] | None
    position: int
    weight: int
    shared: Shared = ()


def counter(pipeline: Pipeline, shared: Shared = ()) -> Counter:
    """Return a function that counts the rows of a file as a task would read them, and raises Damaged."""
    read = _reader(pipeline)
    look_through = check_parquet if pipeline.source.format == "parquet" else avro_files.check

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
        except Exception as error:  # a damaged byte can make the readers raise any error
            raise _damaged(pipeline, error) from error

    return count


def _damaged(pipeline: Pipeline, error: Exception) -> Damaged:
    said = " ".join(str(error).split())[:200] or type(error).__name__
    return Damaged(
        f"the {pipeline.source.format} file is cut short or damaged ({said}); put it in again under a new name"
    )


def read(spark: SparkSession, pipeline: Pipeline, files: Iterable[InputFile]) -> DataFrame:
    """Return the rows of some files, with the platform's columns (`coercion`) and the declared ones."""
    tasks = list(_together(part for file in files if file.lines for part in _parts(file, pipeline)))
    of_part = _reader(pipeline)

    def of_task(mine: list[Part]) -> Iterator[pa.RecordBatch]:
        for part in mine:
            try:
                yield from of_part(part)
            except (FileNotFoundError, file_bytes.NoFile) as error:
                raise line_reader.vanished(part.at.path) from error

    return worker.each(spark, tasks, of_task, schema(pipeline))


def schema(pipeline: Pipeline) -> str:
    """Return the columns of `read`, in DDL."""
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
    inside = [name for name in parquet_columns(part.at) if name not in beside]
    there = [*inside, *beside]
    coercion.check_names(there, needed)
    shared = tuple(one for one in part.shared if one[0] in wanted)
    for batch in parquet_rows(part.at, part.groups, [name for name in inside if name in wanted], ROWS_AT_ONCE):
        yield put_columns(batch, shared) if shared else batch, there


def _rows_of_avro(part: Part, wanted: list[str], needed: list[str]) -> Rows:
    there = avro_files.columns(part.at)
    coercion.check_names(there, needed)
    for batch in avro_files.records(part.at, wanted, ROWS_AT_ONCE):
        yield batch, there


def _parts(file: InputFile, pipeline: Pipeline) -> Iterator[Part]:
    key, of_object = record_id.of_file(file.identity or file.path), pipeline.source.in_store
    at = (
        FileAt(file.place, file.size, file.mark)
        if of_object
        else FileAt(file_bytes.place_of_file(file.place, links=pipeline.source.links))
    )
    shared = shared_columns_of(file.mark) if file.mark and not of_object else ()
    if pipeline.source.format != "parquet" or file.size <= PART:
        yield Part(at, key, None, 0, file.size, shared)
        return
    metadata = parquet_footer(at)
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
