"""Blocks on their way to their tasks: in files that every executor can read. What crosses the exchange is where a block is.

A block that crosses it itself goes through the JVM twice and through an exchange that packs it: a quarter of what a batch cost. The
place of the files is beside `events`, where tasks write and the driver commits anyway. Each attempt of a batch has a folder of its own, and
each task's attempt a file, so none ever writes where another does; the folder is gone with the attempt.

Who calls it: `receive` and `arrived`, the driver for folders and the tasks for blocks. Errors: OSError, at which Spark tries the task again;
Retryable for a block that is not there any more. Not promised: that nothing is left of a killed driver; the next one clears it away.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from jobs.model.errors import Retryable

PLACE = "struct<file: string, start: bigint, bytes: bigint>"
"""Where a block is; null in a line."""
_PLACE = pa.struct([("file", pa.string()), ("start", pa.int64()), ("bytes", pa.int64())])

Batches = Iterator[pa.RecordBatch]
Read = Callable[[Batches], Batches]


@contextmanager
def folder(home: Path, epoch: int) -> Iterator[Path]:
    """A folder for one attempt of a batch, and for no longer."""
    path = home / str(epoch) / uuid4().hex
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def clear(home: Path, epoch: int) -> None:
    """Take away what drivers of earlier epochs have left. One that is still at work is fenced, and its batch is another's."""
    for left in home.glob("*"):
        if left.name.isdigit() and int(left.name) < epoch:
            shutil.rmtree(left, ignore_errors=True)


def into(path: Path, read: Read) -> Read:
    """What `read` gives of a task's lines, each block in a file below `path` and its place in its stead."""

    def stored(lines: Batches) -> Batches:
        mine = path / uuid4().hex
        for batch in read(lines):
            at = batch.schema.get_field_index("block")
            blocks = batch.column(at)
            places = pa.nulls(len(blocks), _PLACE) if blocks.null_count else _stored(mine, blocks)
            yield batch.set_column(at, "block", places)

    return stored


def fetched(place: pa.StructScalar) -> pa.Buffer:
    """The block at a place."""
    name, start, size = (place[key].as_py() for key in ("file", "start", "bytes"))
    try:
        with Path(name).open("rb", buffering=0) as file:
            file.seek(start)
            block = file.read(size)
    except FileNotFoundError:
        block = b""
    if len(block) < size:
        raise Retryable(
            f"records on their way to their task are gone: {name} was taken away or cut",
            data="nothing of this batch is half done",
            hint="run the same command again; if it happens again, see that all executors have the same folder, and who clears it",
        )
    return pa.py_buffer(block)


def _stored(name: Path, blocks: pa.Array) -> pa.Array:
    with name.open("ab") as file:
        places = [{"file": str(name), "start": file.tell(), "bytes": file.write(block.as_buffer())} for block in blocks]
    return pa.array(places, _PLACE)
