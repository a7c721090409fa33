"""The table that keeps what was deleted from a Delta table, as the sink makes it, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from onlyonce.tables.table_files import PROPERTIES, beside


def made(table: Path) -> Path:
    """Empty."""
    path = beside(table)
    write_deltalake(str(path), pa.table({"id": pa.array([], pa.string())}))
    DeltaTable(str(path)).alter.set_table_properties(PROPERTIES, raise_if_not_exists=False)
    return path
