"""Writes rows into data files of an Iceberg table, in Spark's tasks.

No snapshot names them yet: the driver commits them.

The files lie where the table says, by its own FileIO, with the ids of its columns and the statistics that its
properties ask for. Who calls it: `sink_iceberg`. Errors: those of the store. Not promised: that files of a task that
failed are removed.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import ParquetFormatModel, ParquetFormatWriter, _dataframe_to_data_files
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Properties
from pyspark.sql import DataFrame

from onlyonce.failpoints import passing
from onlyonce.session import worker
from onlyonce.sinks import content_hash
from onlyonce.sinks.content_hash import Check, Tally
from onlyonce.storage import footers

FILE, TALLY = "oo_file", "oo_tally"
RESULT = f"{FILE} binary, {TALLY} binary"
ARROW = pa.schema({FILE: pa.binary(), TALLY: pa.binary()})
"""What a task gives: a row for each file, with what the commit says of it, and one with what its rows hold."""
TARGET = 128 * 1024 * 1024
"""Bytes of Arrow that are held before a file of them is written."""
Batches = Iterator[pa.RecordBatch]


class _Writer(ParquetFormatWriter):
    """Writes no bounds of a column with a NaN (`footers`); the manifest has those of the footer. pyiceberg gives it all
    rows of a file at once."""

    def write(self, table: pa.Table) -> None:
        self._parquet_writer_kwargs |= footers.form(table.schema, table)
        super().write(table)


class _Model(ParquetFormatModel):
    def create_writer(
        self, output_file: OutputFile, file_schema: Schema, properties: Properties
    ) -> ParquetFormatWriter:
        return _Writer(output_file, file_schema, properties)


FileFormatFactory._registry[FileFormat.PARQUET] = _Model()  # `register` refuses a second one
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)  # it warns of each column without bounds


def written(rows: DataFrame | pa.Table, table: Table, check: Check | None = None) -> list[DataFile]:
    """Write rows that have their HASH into files: those of a frame by Spark's tasks, those of a table here.

    `check` gets what the rows hold, as they were written. Its number of rows is that of the files' footers: a writer
    that leaves a row out is found before the commit."""
    columns = rows.column_names if isinstance(rows, pa.Table) else rows.columns
    found = worker.ran(rows, writing(table), RESULT).to_pylist()
    files = read(found)
    if check:
        content = content_hash.received(columns, [row[TALLY] for row in found])
        check(replace(content, rows=sum(file.record_count for file in files)))
    return files


def writing(table: Table) -> Callable[[Batches], Batches]:
    """What a task does with its rows."""
    return of_metadata(_small(table.metadata), table.io)


def of_metadata(metadata: TableMetadata, io: FileIO) -> Callable[[Batches], Batches]:
    """The same by what a task needs to know of the table."""

    def write(brought: Batches) -> Batches:
        found: list[Tally] = []
        for part in _parts(content_hash.tallied_on_the_way(brought, found)):
            passing("iceberg-before-file")
            rows = fitted(part, metadata)
            files = list(_dataframe_to_data_files(metadata, rows, io, uuid4()))
            passing("iceberg-after-file")
            yield pa.RecordBatch.from_pylist(
                [{FILE: pickle.dumps((metadata.default_spec_id, file)), TALLY: None} for file in files], ARROW
            )
        yield pa.RecordBatch.from_pylist([{FILE: None, TALLY: content_hash.sent(tally)} for tally in found], ARROW)

    return write


def read(rows: Iterable[Mapping[str, Any]]) -> list[DataFile]:
    """The files that tasks have told of."""
    files = []
    for row in rows:
        if row[FILE] is None:
            continue
        spec, file = pickle.loads(row[FILE])
        file.spec_id = spec  # by which its partitions were cut; no part of what is pickled
        files.append(file)
    return files


def fitted(rows: pa.Table, metadata: TableMetadata) -> pa.Table:
    """Rows with the columns of the table, in its order; a column that they don't have is null."""
    wanted = metadata.schema().as_arrow()
    by_name = {name.lower(): name for name in rows.column_names}
    columns = [
        rows.column(by_name[field.name.lower()])
        if field.name.lower() in by_name
        else pa.nulls(rows.num_rows, field.type)
        for field in wanted
    ]
    return pa.table([column.cast(field.type) for column, field in zip(columns, wanted, strict=True)], schema=wanted)


def _parts(brought: Batches) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in brought:
        if batch.num_rows:
            held.append(batch)
        if sum(one.nbytes for one in held) >= TARGET:  # a batch has thousands of rows, so these are few
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _small(metadata: TableMetadata) -> TableMetadata:
    """Without what grows with the table's history."""
    return metadata.model_copy(
        update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "current_snapshot_id": None}
    )
