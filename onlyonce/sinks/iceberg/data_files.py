"""Writes rows into data files of an Iceberg table, in Spark's tasks. No snapshot names them yet: the driver commits them.

The files lie where the table says, by its own FileIO, with the ids of its columns and the statistics that its properties ask for. Who calls it:
`sink_iceberg`. Errors: those of the store. Not promised: that files of a task that failed are removed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from onlyonce.failpoints import passing

FILE = "oo_file"
RESULT = f"{FILE} binary"
"""What a task gives: a row for each file, with what the commit says of it."""
TARGET = 128 * 1024 * 1024
"""Bytes of Arrow that are held before a file of them is written."""
Batches = Iterator[pa.RecordBatch]


def writing(table: Table) -> Callable[[Batches], Batches]:
    """What a task does with its rows."""
    return of_metadata(_small(table.metadata), table.io)


def of_metadata(metadata: TableMetadata, io: FileIO) -> Callable[[Batches], Batches]:
    """The same by what a task needs to know of the table."""

    def write(brought: Batches) -> Batches:
        for part in _parts(brought):
            passing("iceberg-before-file")
            rows = fitted(part, metadata)
            files = list(_dataframe_to_data_files(metadata, rows, io, uuid4()))
            passing("iceberg-after-file")
            yield pa.RecordBatch.from_pydict({FILE: pa.array([pickle.dumps((metadata.default_spec_id, file)) for file in files], pa.binary())})

    return write


def read(rows: Iterable[Mapping[str, Any]]) -> list[DataFile]:
    """The files that tasks have told of."""
    files = []
    for row in rows:
        spec, file = pickle.loads(row[FILE])
        file.spec_id = spec  # by which its partitions were cut; no part of what is pickled
        files.append(file)
    return files


def fitted(rows: pa.Table, metadata: TableMetadata) -> pa.Table:
    """Rows with the columns of the table, in its order; a column that they don't have is null."""
    wanted = metadata.schema().as_arrow()
    by_name = {name.lower(): name for name in rows.column_names}
    columns = [
        rows.column(by_name[field.name.lower()]) if field.name.lower() in by_name else pa.nulls(rows.num_rows, field.type) for field in wanted
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
    return metadata.model_copy(update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "current_snapshot_id": None})
