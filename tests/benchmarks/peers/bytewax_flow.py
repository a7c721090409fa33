"""Bytewax: the first row by id, from JSON files to Parquet, with a recovery store. INPUT and OUTPUT name the folders.

Run as `python -m bytewax.testing bytewax_flow.py:flow -p 2 -r STORE -s 2`, by the environment of the peers: two
processes, since workers of one share Python's lock.
"""

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import bytewax.operators as op  # type: ignore[import-not-found]
import pyarrow as pa
from bytewax.connectors.files import DirSource  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found]
from pyarrow import parquet

ROWS = 100_000
"""Of one file."""


class Kept(StatelessSinkPartition):  # type: ignore[misc]
    """What one worker has kept."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def write_batch(self, items: list[tuple[str, dict[str, Any]]]) -> None:
        """Keep rows, and write a file now and then."""
        self._rows += [row for _, row in items]
        if len(self._rows) >= ROWS:
            self.close()

    def close(self) -> None:
        """Write what is left."""
        if self._rows:
            parquet.write_table(pa.Table.from_pylist(self._rows), Path(os.environ["OUTPUT"]) / f"{uuid4().hex}.parquet")
        self._rows = []


class Folder(DynamicSink):  # type: ignore[misc]
    """A file now and then for each worker."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Kept:
        """The part of one worker."""
        return Kept()


def first(known: bool | None, row: dict[str, Any]) -> tuple[bool, list[dict[str, Any]]]:
    """The row where its id was not known."""
    return True, [] if known else [row]


flow = Dataflow("first")
lines = op.input("lines", flow, DirSource(Path(os.environ["INPUT"]), glob_pat="*.jsonl", batch_size=1000))
rows = op.map("rows", lines, json.loads)
kept = op.stateful_flat_map("first", op.key_on("id", rows, lambda row: row["id"]), first)
op.output("kept", kept, Folder())
