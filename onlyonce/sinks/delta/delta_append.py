"""Appends to a Delta table: tasks or the driver write the data files (`delta_files`), then the driver names them in one
commit by delta-rs.

Spark's own writer looks at the state of the whole table before each commit, and computes statistics that the files'
footers have: for a small batch that is most of the time. And on an object store it loses commits.

Who calls it: `sink_delta`, the staging of rows. Errors: those of `delta.once`; Refused for a table that asks more of a
writer (`delta_features`).
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from onlyonce.model.storage.location import Location
from onlyonce.sinks.content_hash import Check
from onlyonce.sinks.delta import delta_features, delta_files, delta_rows
from onlyonce.storage import delta, opening, own_tables
from onlyonce.storage.appended import Appended
from onlyonce.storage.own_tables import Files


def append(
    rows: DataFrame | pa.Table,
    to: Location | Appended,
    commit: delta.Commit,
    *,
    replayed: bool = False,
    form: opening.Form | None = None,
    check: Check | None = None,
) -> int | None:
    """Append rows once; return the table's version as `delta.once` does.

    `rows`: a frame, or rows in memory as `stored` returns them. For `form` see `own_tables.append`, for `check` see
    `delta_files.write`."""
    there = to if isinstance(to, Appended) else Appended(to)

    def write(folder: Location) -> Files:
        return delta_files.write(
            rows if isinstance(rows, pa.Table) else stored(rows, there.table),
            folder,
            there.table.metadata().partition_columns,
            check,
        )

    delta_features.refuse(there.table, there.at, changes=False)
    checked = opening.form(there.table) if form is None else form
    return own_tables.append(write, there, commit, replayed=replayed, form=checked)


def stored(rows: DataFrame, table: DeltaTable) -> DataFrame:
    """Return rows as the writer gets them: with the table's columns and names, and the values of its partition
    columns."""
    return delta_files.placed(delta_rows.as_stored(rows, delta_rows.schema(table)), table.metadata().partition_columns)
