"""Parquet files by Arrow: which columns have statistics, objects as files, and Arrow's file system of a location.

A float column that may have a NaN gets no statistics in the footer. Arrow leaves NaN out of the smallest and the
largest value of a column. Spark, DuckDB and DataFusion order NaN after every number, so `amount > 100` is true for it.
They would skip a row group whose largest value is below 100. Delta's log repeats the footer (`statistics`), so the rule
holds there as well.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import lru_cache
from io import RawIOBase
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs, parquet

from onlyonce.core.locations import Location, Url
from onlyonce.tables import stores
from onlyonce.tables.stores import Entry, Objects, told


def footer_form(schema: pa.Schema, rows: pa.Table | None = None) -> dict[str, Any]:
    """Return the option of a ParquetWriter that leaves out the statistics of columns with a NaN.

    `rows`: all rows of the file; without them no float column has statistics, since a NaN may come later.
    """
    columns = [rows.column(at).chunks for at in range(len(schema))] if rows is not None else [None] * len(schema)
    uncertain = [one for field, chunks in zip(schema, columns, strict=True) for one in _leaves(field.type, chunks)]
    if not any(uncertain):
        return {}
    paths = _paths(schema)
    without = {path for path, is_uncertain in zip(paths, uncertain, strict=True) if is_uncertain}
    return {"write_statistics": [path for path in paths if path not in without]}


def footer_of_delta_rs(table: DeltaTable) -> WriterProperties:
    """Return the options by which delta-rs's own writer rewrites files of a table.

    That writer leaves NaN out as Arrow does, and does not say whether there is one.
    """
    none, kept = ColumnProperties(statistics_enabled="NONE"), ColumnProperties(statistics_enabled="PAGE")
    columns = [
        (field.name, any(_leaves(field.type, None)), pa.types.is_nested(field.type))
        for field in pa.schema(table.schema().to_arrow())
    ]
    if any(uncertain and is_nested for _, uncertain, is_nested in columns):
        # delta-rs finds no field within a column by its name.
        named = {name: kept for name, uncertain, is_nested in columns if not uncertain and not is_nested}
        return WriterProperties(compression="ZSTD", default_column_properties=none, column_properties=named)
    return WriterProperties(
        compression="ZSTD", column_properties={name: none for name, uncertain, _ in columns if uncertain}
    )


def _leaves(kind: pa.DataType, chunks: Sequence[pa.Array] | None) -> Iterator[bool]:
    """Yield whether each leaf of a column may have a NaN, in the order of the file's columns."""
    if pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _leaves(kind.field(at).type, None if chunks is None else [chunk.field(at) for chunk in chunks])
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_type, None if chunks is None else [chunk.keys for chunk in chunks])
        yield from _leaves(kind.item_type, None if chunks is None else [chunk.items for chunk in chunks])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(kind.value_type, None if chunks is None else [chunk.flatten() for chunk in chunks])
    else:
        yield pa.types.is_floating(kind) and (
            chunks is None or any(pc.any(pc.is_nan(chunk)).as_py() for chunk in chunks)
        )


def _paths(schema: pa.Schema) -> list[str]:
    """Return the columns' paths as the footer writes them, from an empty file in memory."""
    file = pa.BufferOutputStream()
    parquet.write_table(schema.empty_table(), file)
    columns = parquet.read_metadata(pa.BufferReader(file.getvalue())).schema
    return [columns.column(at).path for at in range(len(columns))]


# An object as a file that Arrow writes from its beginning to its end.
#
# Up to ten megabytes are one PUT when the file is closed; more are parts of that size. The object exists once the file
# is closed.


class Sink(RawIOBase):
    """The file. If it is never closed, no object exists."""

    def __init__(self, at: Url) -> None:
        self._at = at
        self._file: Any = obstore.open_writer(Objects().bucket(at), at.key)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, content: Any) -> int:
        """See RawIOBase."""
        with told(self._at):
            self._file.write(content)
        return len(content)

    def close(self) -> None:
        """Create the object."""
        if not self.closed:
            with told(self._at):
                self._file.close()
        super().close()

    def __del__(self) -> None:
        """Leave the file open: half of it is not an object."""


# A location as Arrow's own file system, by which Arrow reads rows: columns are read by range, outside Python.
#
# Files are written by obstore. A small file is one PUT there and three requests of Arrow's, which also gives up on a
# busy store after some seconds. No write has a precondition.


RETRIES, FOOTER = 10, 1 << 16


def folder(at: Location) -> fs.FileSystem:
    """Return a file system whose root is the location."""
    if isinstance(at, Path):
        return fs.SubTreeFileSystem(str(at.absolute()), fs.LocalFileSystem())
    system, root = system_of(at)
    return fs.SubTreeFileSystem(root, system)


def writer(at: Location, schema: pa.Schema, rows: pa.Table | None = None, **form: Any) -> parquet.ParquetWriter:
    """Open a Parquet file to be written; it is whole once it is closed.

    A `with` block that raises closes it too, and leaves a readable file with a part of the rows. No commit names it.

    `rows`: all rows of the file, if they are known (`footer_form`).
    """
    form |= footer_form(schema, rows)
    if isinstance(at, Path):
        at.parent.mkdir(parents=True, exist_ok=True)
        return parquet.ParquetWriter(at, schema, **form)
    sink = pa.PythonFile(Sink(at), mode="w")
    made = parquet.ParquetWriter(sink, schema, **form)
    made.file_handle = sink  # so that it is closed with the writer, which closes only what it has opened
    return made


def write(at: Location, rows: pa.Table, row_group_size: int | None = None, **form: Any) -> None:
    """Write a Parquet file."""
    with writer(at, rows.schema, rows, **form) as file:
        file.write_table(rows, row_group_size)


def opened(at: Location | io.RawIOBase, **form: Any) -> parquet.ParquetFile:
    """Open a Parquet file as a context. `at` is a location, or an open file."""
    # Spark, Hive and Impala write times as INT96. Arrow reads them in nanoseconds by default, which wrap around outside
    # 1677 to 2262.
    form = {"coerce_int96_timestamp_unit": "us", **form}
    if isinstance(at, Url):
        system, name = system_of(at)
        return parquet.ParquetFile(name, filesystem=system, **form)
    return parquet.ParquetFile(at, **form)


def footer(at: Location) -> parquet.FileMetaData:
    """Return the metadata in a Parquet file's footer."""
    return end(at)[1]


def end(at: Location) -> tuple[Entry, parquet.FileMetaData]:
    """Return a file's entry in the store, and its footer, in one request unless the footer is long.

    Raise FileNotFoundError.
    """
    entry, last = stores.of(at).tail(at, FOOTER)
    needed = int.from_bytes(last[-8:-4], "little") + 8
    if needed > len(last):
        entry, last = stores.of(at).tail(at, needed)
    return entry, parquet.read_metadata(pa.BufferReader(last))


def rows(at: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a Parquet file, with some of its columns or all."""
    with opened(at) as file:
        return file.read(columns)


def system_of(at: Url) -> tuple[fs.FileSystem, str]:
    """Return the file system of a store, and the name of a location there."""
    if at.scheme != "s3":
        return _by_delta_rs(at.root), at.key
    return _s3(stores.store_endpoint(), stores.store_region()), f"{at.root.removeprefix('s3://')}/{at.key}"


@lru_cache(maxsize=8)
def _by_delta_rs(root: str) -> fs.FileSystem:
    # Arrow's own clients of GCS and ADLS read other variables than the commits use.
    return fs.PyFileSystem(DeltaStorageHandler(root, stores.options_of_delta(Url(root))))


@lru_cache(maxsize=8)
def _s3(endpoint: str | None, region: str | None) -> fs.FileSystem:
    # The standard variables, or the machine's role, identify us.
    scheme, _, host = (endpoint or "https://").partition("://")
    patience = fs.AwsStandardS3RetryStrategy(max_attempts=RETRIES)
    return fs.S3FileSystem(endpoint_override=host or None, scheme=scheme, region=region, retry_strategy=patience)
