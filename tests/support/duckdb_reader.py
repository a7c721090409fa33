"""DuckDB as a reader of Delta tables, by its own extension: Delta's kernel in Rust, no part of which is Spark's or
delta-rs's.

No network: the extension is a package.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta  # type: ignore[import-untyped, import-not-found, unused-ignore]

EXTENSION = (
    Path(duckdb_extension_delta.__file__).parent / "extensions" / f"v{duckdb.__version__}" / "delta.duckdb_extension"
)


def rows(path: Path, columns: str) -> Counter[tuple[Any, ...]]:
    """What a query of a table gives, as a multiset."""
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute(f"LOAD '{EXTENSION}'")
        return Counter(connection.execute(f"SELECT {columns} FROM delta_scan('{path}')").fetchall())
