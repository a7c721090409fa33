"""Delta tables for the tests of a table as a source: versions of every kind, and what must be read of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from onlyonce.api.pipeline import DeltaSource, Pipeline
from onlyonce.sources import delta_log, typed_files
from onlyonce.sources.delta_log import Read
from onlyonce.sources.listing import InputFile
from tests.support.shop import SHOP

NOTHING = Read()
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("shop", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("cents", pa.int64()),
        ("weight", pa.float64()),
    ]
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
    """Random versions of a table: appends, empty appends, compactions, changes of its properties.

    `names` are all records that were appended.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.random, self.names = path, random.Random(seed), list[str]()
        self.go_on(append_first=True)

    def go_on(self, *, append_first: bool = False) -> None:
        """One version more."""
        what = (
            "append"
            if append_first
            else self.random.choice(["append", "append", "append", "compact", "property", "nothing"])
        )
        if what == "append":
            fresh = [f"r{len(self.names) + number}" for number in range(self.random.randint(1, 9))]
            append(self.path, fresh, partition_by=["shop"])
            self.names += fresh
        elif what == "compact":
            compact(self.path)
        elif what == "property":
            DeltaTable(str(self.path)).alter.set_table_properties(
                {"delta.logRetentionDuration": f"interval {self.random.randint(30, 90)} days"}
            )
        else:
            append(self.path, [], partition_by=["shop"])


def pages(pipeline: Pipeline, read: Read) -> Iterator[list[InputFile]]:
    """What is not registered yet, where the path says that the table is."""
    assert isinstance(pipeline.source, DeltaSource)
    return delta_log.log_pages(pipeline, delta_log.log_location(pipeline.source), read)


def take(pipeline: Pipeline, read: Read = NOTHING) -> tuple[list[InputFile], Read]:
    """All pages of now, and what the manifest would say behind them."""
    files = [file for page in pages(pipeline, read) for file in page]
    return files, behind(files, read)


def behind(files: list[InputFile], read: Read) -> Read:
    """What the manifest says once these are registered."""
    return (
        Read(json.loads(files[-1].mark)["table"], files[-1].ends, json.loads(files[-1].mark)["at"]) if files else read
    )


def rows(pipeline: Pipeline, files: list[InputFile]) -> list[dict[str, Any]]:
    """The rows of some files, as the tasks read them; `oo_file` and `oo_position` are their places."""
    of_part = typed_files._reader(pipeline)
    parts = [part for file in files if file.lines for part in typed_files._parts(file, pipeline)]
    return [row for part in parts for batch in of_part(part) for row in batch.to_pylist()]


def ids(pipeline: Pipeline, files: list[InputFile]) -> Counter[str]:
    """The ids of the records of some files."""
    return Counter(row["id"] for row in rows(pipeline, files))
