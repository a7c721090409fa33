"""Appends to a Delta table: Spark's tasks write the data files, then the driver names them in one commit by delta-rs.

Spark's own writer looks at the state of the whole table before each commit, and computes statistics that the files' footers have: for a small batch that
is most of the time. And on an object store it loses commits.

Who calls it: `sink_delta`, the staging of rows. Errors: those of `delta.once`; Refused for a table that asks more of a writer (`delta_features`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from onlyonce.model.location import Location
from onlyonce.sinks import delta_features, delta_rows
from onlyonce.storage import delta, opening, own_tables


def append(rows: DataFrame, path: Location, commit: delta.Commit, *, replayed: bool = False) -> int:
    """Append rows once; gives the table's version that holds them."""
    table = opening.table(path)
    delta_features.refuse(table, path, changes=False)

    def write(folder: Location) -> Sequence[Location]:
        return delta_rows.write(delta_rows.as_stored(rows, delta_rows.schema(table)), folder, table.metadata().partition_columns)

    return own_tables.append(write, path, commit, replayed=replayed)
