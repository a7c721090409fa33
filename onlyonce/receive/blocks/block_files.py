"""Files in which tasks keep what they have made of their lines: blocks of plain records, and the lines that are left.

Every executor can read them.

The driver is told where the files are, and tells the tasks that read them. So nothing crosses an exchange, which would
take a quarter of a batch's time. The files are beside `events`, where tasks write anyway. Each attempt of a batch has a
folder of its own, and each attempt of a task its own files, so no two write to one place. The folder is removed with
the attempt.

Who calls it: `receive`, `exchange` and `straight`; the driver makes the folders, the tasks the files. Errors: OSError,
after which Spark tries the task again; Retryable for a file that has gone. Not promised: that a killed driver leaves
nothing. The next driver removes what is left.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa

from onlyonce.model.errors import Retryable
from onlyonce.session.worker import GONE, Batches, Work

GIVES = "target int, file string, start bigint, bytes bigint"
"""What a task tells: of each block for which partition it is and where, and the file of the lines that are left,
without a target."""
_GIVES = pa.schema([("target", pa.int32()), ("file", pa.string()), ("start", pa.int64()), ("bytes", pa.int64())])


@contextmanager
def folder(home: Path, epoch: int) -> Iterator[Path]:
    """A folder for one attempt of a batch, and for no longer.

    What fails in it after it was cleared away is Retryable, as GONE.
    """
    path = home / str(epoch) / uuid4().hex
    path.mkdir(parents=True)
    try:
        yield path
    except Exception as error:
        if path.is_dir():
            raise
        raise _gone(str(path)) from error
    finally:
        shutil.rmtree(path, ignore_errors=True)


def clear(home: Path, epoch: int) -> None:
    """Take away what drivers of earlier epochs have left.

    One that is still at work is fenced, and its batch is another's.
    """
    for left in home.glob("*"):
        if left.name.isdigit() and int(left.name) < epoch:
            shutil.rmtree(left, ignore_errors=True)


class Block(NamedTuple):
    """Where a block is, and the partition that it is for."""

    target: int
    file: str
    start: int
    bytes: int

    def fetched(self) -> pa.Buffer:
        """The block."""
        try:
            # Mapped: who looks at the columns that decide reads no others.
            with pa.memory_map(self.file) as file:
                file.seek(self.start)
                block = file.read_buffer(self.bytes)
        except FileNotFoundError as error:
            raise _gone(self.file) from error
        if block.size < self.bytes:
            raise _gone(self.file)
        return block


def into(path: Path, read: Work) -> Work:
    """What `read` makes of a task's lines (`plain_records.Reader`), in files below `path`; gives rows like GIVES."""

    def stored(lines: Batches) -> Batches:
        name = path / uuid4().hex
        with Left(path) as left:
            for batch in read(lines):
                if batch.column("block").null_count:
                    left.add(batch.drop_columns(["block", "target"]))
                else:
                    yield _told(_stored(name, batch))
        if left.any:
            yield _told([(None, str(left.name), None, None)])

    return stored


def left_in(name: str) -> Batches:
    """The lines that were left in a file."""
    try:
        with pa.OSFile(name) as file, pa.ipc.open_file(file) as lines:
            for number in range(lines.num_record_batches):
                yield lines.get_batch(number)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise _gone(name) from error


class Left:
    """The file, in a folder, of the lines that a task leaves, made for the first of them; a context."""

    def __init__(self, folder: Path) -> None:
        self.name, self.any = folder / f"{uuid4().hex}.left", False
        self._open = ExitStack()
        self._writer: pa.RecordBatchFileWriter | None = None

    def __enter__(self) -> Left:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, lines: pa.RecordBatch) -> None:
        """Keep some."""
        if self._writer is None:
            file = self._open.enter_context(pa.OSFile(str(self.name), "wb"))
            self._writer = self._open.enter_context(pa.ipc.new_file(file, lines.schema))
            self.any = True
        self._writer.write_batch(lines)


def _stored(name: Path, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    with name.open("ab") as file:
        return [
            (target, str(name), file.tell(), file.write(block.as_buffer()))
            for target, block in zip(batch.column("target").to_pylist(), batch.column("block"), strict=True)
        ]


def _told(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(_GIVES.names, row, strict=True)) for row in rows], schema=_GIVES)


def _gone(name: str) -> Retryable:
    return Retryable(
        f"{GONE}: {name} was taken away or cut",
        data="nothing of this batch is half done",
        hint="run the same command again; if it happens again, see that all executors have the same folder, and "
        "who clears it",
    )
