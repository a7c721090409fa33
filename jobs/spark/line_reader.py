"""Lines of files with their places: each with the byte at which it begins. Byte ranges, read in parallel.

Spark's text source does not say where a line is. Here a task reads ranges of files and cuts them into lines itself, on
whole arrays: some megabytes at a time, more only for a line that is longer. A range has the lines that *begin* in it,
so a file has the same lines with the same places however it is cut.

Who calls it: `arrived`. Errors: OSError for a file that can't be read, which Spark tries again; Retryable for a growing
one that is another by now. Not promised: that any other change of a file while it is read is noticed here; the count of its
lines does that (conservation).
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from jobs.model.errors import Retryable
from jobs.spark import worker

PIECE = 1 << 22
RANGE = 1 << 25
"""How much of a file one task reads at most; small files are read together up to it."""
MOST = 1 << 62
NEWLINE = 10
ReadOn = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
ARROW = pa.schema([("value", pa.string()), ("oo_file", pa.int64()), ("oo_position", pa.int64())])


@dataclass(frozen=True)
class Range:
    """A part of a file: the lines that begin in [start, end). Nothing past `size` is read. `key` stands for the file.

    A packed file is one range, in bytes of its content; `skipped` lines at its begin are no records (a header). With an
    `inode` the file may be renamed while it is read: another one under its name is not taken for it.
    """

    path: str
    key: int
    start: int
    end: int
    size: int
    packed: bool = False
    skipped: int = 0
    inode: int | None = None


def read(spark: SparkSession, ranges: Iterable[Range], read_on: ReadOn, schema: StructType) -> DataFrame:
    """The lines of some ranges, as (value, oo_file, oo_position), and what `read_on` makes of them in the same task."""
    tasks = list(_together(part for whole in ranges for part in _cut(whole)))

    def of_task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker.settle()
        mine = [part for batch in numbers for number in batch.column(0).to_pylist() for part in tasks[number]]
        return read_on(batch for part in mine for batch in lines(part))

    return spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(of_task, schema)


def packed(path: str, key: int, skipped: int = 0) -> Range:
    """All of a gzip file. Its places are those of its content."""
    return Range(path, key, 0, MOST, MOST, packed=True, skipped=skipped)


def lines(part: Range) -> Iterator[pa.RecordBatch]:
    """The lines of one range, some thousand at a time."""
    with _opened(part) as file:
        at = _begin(file, part)
        begun: list[bytes] = []  # of a line that is longer than a piece
        left = part.size - file.tell()
        while at < part.end:
            data = file.read(min(PIECE, left))
            left -= len(data)
            cut = data.rfind(b"\n") + 1
            if not data:
                if part.inode is not None and left:
                    raise _other(part)
                if any(begun):
                    yield _batch(part, b"".join(begun) + b"\n", at)
                return
            if not cut:
                begun.append(data)
                continue
            whole = b"".join([*begun, data[:cut]])
            begun = [data[cut:]]
            yield _batch(part, whole, at)
            at += len(whole)


def _cut(whole: Range) -> Iterator[Range]:
    if whole.packed:
        yield whole
        return
    # All alike: beside a small rest at the end of each file a core would have nothing to do.
    parts = -(-(whole.end - whole.start) // RANGE)
    edges = [whole.start + (whole.end - whole.start) * number // max(parts, 1) for number in range(parts + 1)]
    for start, end in pairwise(edges):
        yield replace(whole, start=start, end=end, skipped=whole.skipped if start == whole.start else 0)


def _together(parts: Iterable[Range]) -> Iterator[list[Range]]:
    group: list[Range] = []
    for part in parts:
        if group and sum(one.end - one.start for one in group) + part.end - part.start > RANGE:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _opened(part: Range) -> IO[bytes] | gzip.GzipFile:
    if part.packed:
        return gzip.open(part.path, "rb")
    file = Path(part.path).open("rb", buffering=0)  # noqa: SIM115 - its callers close it
    stat = os.fstat(file.fileno())
    if part.inode is None or (part.inode == stat.st_ino and stat.st_size >= part.size):
        return file
    file.close()
    raise _other(part)


def _other(part: Range) -> Retryable:
    return Retryable(
        f"{part.path} was renamed, replaced or cut while it was read",
        data="nothing of this batch is half done",
        hint="run the same command again: it looks where the file is now",
    )


def _begin(file: IO[bytes] | gzip.GzipFile, part: Range) -> int:
    """Go to the first line that begins in the range; gives its place."""
    at = part.start
    if at:
        file.seek(at - 1)
        at = _after_line(file, at - 1, part.size)
    for _ in range(part.skipped):
        at = _after_line(file, at, part.size)
    file.seek(at)
    return at


def _after_line(file: IO[bytes] | gzip.GzipFile, at: int, size: int) -> int:
    """The place after the line feed that comes next; the file's end when there is none."""
    file.seek(at)
    while at < size and (data := file.read(1 << 16)):
        found = data.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(data)
    return size


def _batch(part: Range, whole: bytes, at: int) -> pa.RecordBatch:
    """The lines of a piece that begin before the range ends; the piece ends with a line feed."""
    ends = np.flatnonzero(np.frombuffer(whole, np.uint8) == NEWLINE)
    begins = np.concatenate([[0], ends + 1])
    count = int(np.searchsorted(begins[:-1], part.end - at))
    # Without its line feeds a piece is the texts one after the other, as Arrow has them.
    texts = whole[: begins[count]].replace(b"\n", b"")
    offsets = (begins[: count + 1] - np.arange(count + 1)).astype(np.int32)
    values = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(texts))
    places = pa.array(begins[:count] + at, pa.int64())
    return pa.RecordBatch.from_arrays([values, pa.repeat(pa.scalar(part.key, pa.int64()), count), places], schema=ARROW)
