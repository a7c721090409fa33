"""Batches on the task's own disk, while what becomes of them is decided: a partition may be larger than its worker's memory.

Who calls it: `receive_task`. Errors: OSError. Not promised: that anything is left of it when the process is killed, but the
operating system's copy of a file that has no name.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa


class Spool:
    """Batches of one schema, written once and then read once, in their order; a context."""

    def __init__(self) -> None:
        # Where Spark itself spills: the first of its local folders, on an executor as in local mode.
        folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by the context
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep one more."""
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def read(self) -> Iterator[pa.RecordBatch]:
        """All of them; no more can be added."""
        if self._writer is None:
            return
        self._writer.close()
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as batches:
            yield from batches
