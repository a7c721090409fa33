"""Reads the rows of Parquet files, some at a time, and refuses files that would unpack to far more than their size.

A value that many rows share is in the file once (a dictionary): 200 rows with the same text of 20 MB take two
kilobytes. Long texts stay shared in memory; `coercion` measures them before it copies them into each row.

Who calls it: `typed_files`. Errors: Damaged; whatever pyarrow raises for a damaged byte. Not promised: that the bound
on the unpacked size holds for a file whose own figures are too low.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet, types

from onlyonce.model.record_size import Damaged
from onlyonce.model.storage.location import is_url, location
from onlyonce.sources.files import regular_file
from onlyonce.sources.files.listing import FileAt
from onlyonce.sources.files.object_file import ObjectFile
from onlyonce.sources.files.row_sizes import AT_ONCE
from onlyonce.storage.stores import arrow

LARGE = 1 << 28
"""In bytes, what the values of a column in one group of rows may unpack to, however small they are packed."""
TIMES = 1000
"""Larger ones may unpack to so many times of what they are packed."""


def columns(at: FileAt) -> list[str]:
    """The names of all columns."""
    with opened(at) as file:
        names: list[str] = file.schema_arrow.names
    return names


def check(at: FileAt) -> None:
    """See that no part of a file says that it unpacks to a thousand times its size. Raises Damaged."""
    metadata = footer(at)
    for number in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            part = metadata.row_group(number).column(column)
            size, packed = part.total_uncompressed_size, part.total_compressed_size
            if size > max(LARGE, TIMES * packed):
                raise Damaged(f"the {packed} bytes of its column {part.path_in_schema} unpack to {size}")


def footer(at: FileAt) -> parquet.FileMetaData:
    """What a file says of itself."""
    with opened(at) as file:
        return file.metadata


def rows(at: FileAt, groups: Sequence[int] | None, wanted: list[str], most_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of some groups (None: of all) in batches; long texts that rows share may be dictionaries in them."""
    with opened(at) as file:
        texts = [field.name for field in file.schema_arrow if field.name in wanted and _is_text(field.type)]
        for number in range(file.num_row_groups) if groups is None else groups:
            group = file.metadata.row_group(number)
            at_once = _at_once(group, most_rows)
            if at_once * group.total_byte_size <= AT_ONCE or not texts:
                yield from file.iter_batches(at_once, [number], wanted)
                continue
            with opened(at, metadata=file.metadata, read_dictionary=texts) as shared:
                long = at_once * _longest(shared, number, texts) > AT_ONCE
                yield from (shared if long else file).iter_batches(at_once, [number], wanted)


def opened(at: FileAt, **form: Any) -> parquet.ParquetFile:
    """Open a Parquet file of a source as a context."""
    checked = {"page_checksum_verification": True, **form}
    if at.etag:
        return arrow.opened(ObjectFile(*at), **checked)
    if is_url(at.path):
        return arrow.opened(location(at.path), **checked)  # of a table, and never changes
    with regular_file.by_descriptor(at.path) as name:
        return arrow.opened(pa.OSFile(name), **checked)


def _at_once(group: parquet.RowGroupMetaData, most_rows: int) -> int:
    return max(1, min(most_rows, AT_ONCE * group.num_rows // max(group.total_byte_size, 1)))


def _longest(shared: parquet.ParquetFile, group: int, texts: list[str]) -> int:
    """How long the longest text is that rows of a group share. The first row comes with all of them."""
    first = next(shared.iter_batches(1, [group], texts), None)
    lengths = [pc.max(pc.binary_length(column.dictionary)).as_py() or 0 for column in first.columns] if first else []
    return max(lengths, default=0)


def _is_text(kind: pa.DataType) -> bool:
    return types.is_string(kind) or types.is_binary(kind)
