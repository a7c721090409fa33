"""Keeps rows on the task's own disk until their fate is decided, since a partition may be larger than its worker's
memory.

Who calls it: `receive_task`. Errors: OSError. The file has no name, so nothing is left of it when the process is
killed.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from typing import Any

import pyarrow as pa

from onlyonce.receive.blocks.exchange import Part
from onlyonce.session import worker


class Spill:
    """Batches that can be read again, in any order; a context."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(dir=worker.local_folder())  # noqa: SIM115 - closed by the context

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def kept(self, part: Part, records: pa.RecordBatch) -> Part:
        """What gives the records of a part again: a block is where it was, what passes once is written here."""
        if callable(part):
            return part
        start = self._file.seek(0, os.SEEK_END)
        return partial(self._read, start, self._file.write(records.serialize()), records.schema)

    def _read(self, start: int, size: int, schema: pa.Schema) -> pa.RecordBatch:
        self._file.seek(start)
        return pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), schema)
