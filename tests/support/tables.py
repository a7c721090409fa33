"""Delta tables for the tests of a table as a source: versions of every kind, and what must be read of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from onlyonce.declare.pipeline import DeltaSource, Pipeline
from tests.support.shop import SHOP

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [("id", pa.string()), ("shop", pa.string()), ("at", pa.timestamp("us", "UTC")), ("cents", pa.int64()), ("weight", pa.float64())]
)


def of(path: Path, **options: Any) -> Pipeline:
    """The test pipeline over a table; a record is its place."""
    return replace(SHOP, source=DeltaSource(path=str(path), **options), record_id=())


def sales(names: Sequence[str]) -> list[dict[str, Any]]:
    """A record for each name."""
    return [
        {"id": name, "shop": "ab"[number % 2], "at": NOON + timedelta(seconds=number), "cents": number, "weight": 0.5}
        for number, name in enumerate(names)
    ]


def append(path: Path, names: Sequence[str], **options: Any) -> int:
    """A version that appends these records; gives its number."""
    write_deltalake(str(path), pa.Table.from_pylist(sales(names), SCHEMA), mode="append", **options)
    return DeltaTable(str(path)).version()


def compact(path: Path) -> int:
    """A version that puts rows into fewer files, or none where there is nothing to put together."""
    DeltaTable(str(path)).optimize.compact()
    return DeltaTable(str(path)).version()


class Story:
    """Random versions of a table: appends, empty appends, compactions, changes of its properties. `names` are all records that were appended."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.random, self.names = path, random.Random(seed), list[str]()
        self.go_on(append_first=True)

    def go_on(self, *, append_first: bool = False) -> None:
        """One version more."""
        what = "append" if append_first else self.random.choice(["append", "append", "append", "compact", "property", "nothing"])
        if what == "append":
            fresh = [f"r{len(self.names) + number}" for number in range(self.random.randint(1, 9))]
            append(self.path, fresh, partition_by=["shop"])
            self.names += fresh
        elif what == "compact":
            compact(self.path)
        elif what == "property":
            DeltaTable(str(self.path)).alter.set_table_properties({"delta.logRetentionDuration": f"interval {self.random.randint(30, 90)} days"})
        else:
            append(self.path, [], partition_by=["shop"])
