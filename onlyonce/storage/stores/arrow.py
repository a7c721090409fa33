"""A location as Arrow's own file system, where Arrow reads rows: columns are read by range, and nothing passes through
Python.

Files are written by obstore: a small one is one PUT there and three requests of Arrow's, which also gives up on a busy
store after some seconds.

Who calls it: whatever has Parquet files. Errors: OSError. Not promised: conditions of any kind.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs, parquet

from onlyonce.model.storage.location import Location, Url
from onlyonce.storage import footers, stores
from onlyonce.storage.stores import Entry, options
from onlyonce.storage.stores.sink import Sink

RETRIES, FOOTER = 10, 1 << 16


def folder(at: Location) -> fs.FileSystem:
    """A file system whose root is the location."""
    if isinstance(at, Path):
        return fs.SubTreeFileSystem(str(at.absolute()), fs.LocalFileSystem())
    system, root = system_of(at)
    return fs.SubTreeFileSystem(root, system)


def writer(at: Location, schema: pa.Schema, rows: pa.Table | None = None, **form: Any) -> parquet.ParquetWriter:
    """Open a Parquet file to be written; it exists once it is closed.

    `rows`: all that it will hold, if they are known (`footers`).
    """
    form |= footers.form(schema, rows)
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
    """What a Parquet file says of itself."""
    return end(at)[1]


def end(at: Location) -> tuple[Entry, parquet.FileMetaData]:
    """What a store says of a file, and what the file says of itself: in one request, but for a file with a long footer.

    Raises FileNotFoundError.
    """
    entry, last = stores.of(at).tail(at, FOOTER)
    needed = int.from_bytes(last[-8:-4], "little") + 8
    if needed > len(last):
        entry, last = stores.of(at).tail(at, needed)
    return entry, parquet.read_metadata(pa.BufferReader(last))


def rows(at: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a Parquet file, with some of its columns or all."""
    with opened(at) as file:
        return file.read(columns)


def system_of(at: Url) -> tuple[fs.FileSystem, str]:
    """The file system of a store, and the name of a location there."""
    if at.scheme != "s3":
        return _by_delta_rs(at.root), at.key
    return _s3(options.endpoint(), options.region()), f"{at.root.removeprefix('s3://')}/{at.key}"


@lru_cache(maxsize=8)
def _by_delta_rs(root: str) -> fs.FileSystem:
    # Arrow's own clients of GCS and ADLS know other variables than those by which the commits get there.
    return fs.PyFileSystem(DeltaStorageHandler(root, options.of_delta(Url(root))))


@lru_cache(maxsize=8)
def _s3(endpoint: str | None, region: str | None) -> fs.FileSystem:
    # The standard variables, or the role of the machine, say who we are.
    scheme, _, host = (endpoint or "https://").partition("://")
    patience = fs.AwsStandardS3RetryStrategy(max_attempts=RETRIES)
    return fs.S3FileSystem(endpoint_override=host or None, scheme=scheme, region=region, retry_strategy=patience)
