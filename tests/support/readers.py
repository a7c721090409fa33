"""Readers for the tests: one that keeps the contract of a custom source, and three that break it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

TIMES = ("at", "scheduled_departure", "arrived_at")


class Lines:
    """Files of JSON lines as a source of its own: each file is a part, each line a number."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def ends(self) -> dict[str, int]:
        """How many lines each file has."""
        return {path.name: path.read_bytes().count(b"\n") for path in self.folder.glob("*.jsonl")}

    def read(self, part: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Some of them, a hundred at a time."""
        rows = [json.loads(line) for line in (self.folder / part).read_text().splitlines()[start:end]]
        for at in range(0, len(rows), 100):
            yield self.batch(rows[at : at + 100])

    def batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        """With their times as times."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        return pa.RecordBatch.from_pydict({name: [_value(name, row.get(name)) for row in rows] for name in names})


def _value(name: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if name in TIMES and isinstance(value, str) else value


class OtherIds(Lines):
    """Broken: a record has another id at each read."""

    def batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        """With ids made while reading."""
        return super().batch([row | {"id": uuid4().hex} for row in rows])


class SameIds(Lines):
    """Broken: it says that it needs no dedup, and two records have one id."""

    def batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        """With ids that are cut short."""
        return super().batch([row | {"id": row["id"][:2]} for row in rows])


class FewerAtOnce(Lines):
    """Broken: it leaves rows out where much is read at once, and gives others twice so that the number is right."""

    def read(self, part: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The first ones, again and again."""
        if end - start < 60:
            yield from super().read(part, start, end)
            return
        for _ in range(start, end):
            yield from super().read(part, start, start + 1)


class Short(Lines):
    """Broken: the last row is missing."""

    def read(self, part: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """All but one."""
        yield from super().read(part, start, end - 1)
