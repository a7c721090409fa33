"""Appends to a Delta table: tasks or the driver write the data files (`delta_files`), then the driver names them in one commit by delta-rs.

Spark's own writer looks at the state of the whole table before each commit, and computes statistics that the files' footers have: for a small batch that
is most of the time. And on an object store it loses commits.

Who calls it: `sink_delta`, the staging of rows. Errors: those of `delta.once`; Refused for a table that asks more of a writer (`delta_features`).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from onlyonce.model.storage.location import Location
from onlyonce.sinks.delta import delta_features, delta_files, delta_rows
from onlyonce.storage import delta, opening, own_tables
from onlyonce.storage.appended import Appended
from onlyonce.storage.own_tables import Files


def append(rows: DataFrame, path: Location, commit: delta.Commit, *, replayed: bool = False, form: str | None = None) -> int | None:
    """Append rows once; return the table's version as `delta.once` does. For `form` see `own_tables.append`."""

    def write(table: DeltaTable, folder: Location) -> Files:
        return delta_files.write(delta_rows.as_stored(rows, delta_rows.schema(table)), folder, table.metadata().partition_columns)

    return _append(write, Appended(path), commit, replayed, form)


def append_few(rows: pa.Table, to: Appended, commit: delta.Commit, *, replayed: bool = False, form: str | None = None) -> int | None:
    """Append rows that the driver has, with the columns as the table calls them, as `delta_files.placed` gives them."""
    return _append(lambda table, folder: delta_files.in_driver(rows, folder, table.metadata().partition_columns), to, commit, replayed, form)


def _append(write: Callable[[DeltaTable, Location], Files], to: Appended, commit: delta.Commit, replayed: bool, form: str | None) -> int | None:
    delta_features.refuse(to.table, to.at, changes=False)
    checked = opening.form(to.table) if form is None else form
    return own_tables.append(lambda folder: write(to.table, folder), to, commit, replayed=replayed, form=checked)
