"""Files of a table in others: each value of each type stays as it was, and a log that was cut still tells its newer
versions."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from onlyonce.tables import rewrite

FIRST = pa.schema([
    ("kind", pa.string()), ("n", pa.int64()), ("items", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))),
    ("by_name", pa.map_(pa.string(), pa.float64())), ("money", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC")),
    ("local", pa.timestamp("us")), ("day", pa.date32()), ("raw", pa.binary()), ("inner", pa.struct([("q", pa.string())])),
])  # fmt: skip
LATER = FIRST.append(pa.field("added", pa.string()))


def row(n: int) -> dict[str, Any]:
    """A value of each type, some of them null."""
    return {
        "kind": "kept", "n": n, "items": [{"x": n, "y": None}] * (n % 3), "by_name": [("u", 1.5)], "money": Decimal("1.25"),
        "at": datetime(2026, 1, 1, 0, 0, 0, n, UTC), "local": datetime(2026, 1, 1), "day": date(2026, 1, n + 1) if n else None,
        "raw": b"\x00\xff", "inner": {"q": None}, "added": f"a{n}",
    }  # fmt: skip


def found(path: Path) -> list[Any]:
    """All rows, in order."""
    rows: list[Any] = DeltaTable(str(path)).to_pyarrow_table().sort_by("n").to_pylist()
    return rows


def test_values_of_all_types_and_columns_that_came_later_are_as_before(tmp_path: Path) -> None:
    """Nested ones too; a file from before a column has nulls there. The history goes on where the log was cut."""
    for n in range(12):
        schema = FIRST if n < 4 else LATER
        write_deltalake(
            str(tmp_path),
            pa.Table.from_pylist([row(n)], schema),
            partition_by=["kind"],
            mode="append",
            schema_mode="merge",
        )
    before, table = found(tmp_path), DeltaTable(str(tmp_path))

    old = rewrite.rewritten_files(table, ["n"])
    assert rewrite.rewrite(tmp_path, old, "x/receive/0/compaction", table.version(), lambda rows: rows.sort_by("n"))

    assert found(tmp_path) == before
    assert len(DeltaTable(str(tmp_path)).file_uris()) == 1
    DeltaTable(str(tmp_path), version=9).create_checkpoint()
    assert rewrite.shorten_log(tmp_path, 11, 0) == 9
    assert [entry["version"] for entry in DeltaTable(str(tmp_path)).history()] == [12, 11, 10, 9]
    assert found(tmp_path) == before
