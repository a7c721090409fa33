"""Read records of files with their places, in parallel ranges of bytes. A record's place is the byte of its beginning.

Spark's text source does not return where a line begins. Here a task reads ranges of files and cuts them into records
itself (`file_bytes`), on whole arrays. It holds some megabytes at a time, and more only for a longer record, up to the
largest size of a record. For a longer record it keeps the beginning and the reason. A range of lines has the records
that *begin* in it. A range of CSV begins and ends where a record does, which the listing has found. So a file has the
same records at the same places however it is cut.

A file that can't be read raises OSError, and Spark tries again. A vanished file and a replaced growing file raise
Retryable. Other changes of a file during the read are noticed later, by the count of its lines (conservation).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from onlyonce.core import encodings, records
from onlyonce.core.errors import Retryable
from onlyonce.engine import worker
from onlyonce.engine.worker import Batches, Work
from onlyonce.sources import file_bytes
from onlyonce.sources.file_bytes import NoFile
from onlyonce.sources.listing import RANGE, FileAt, opened
from onlyonce.sources.record_id import Inode

PIECE = 1 << 22
MOST = 1 << 62
ARROW = pa.schema(
    [("oo_line", pa.string()), ("oo_refused", pa.string()), ("oo_file", pa.int64()), ("oo_position", pa.int64())]
)


@dataclass(frozen=True)
class Range:
    """A part of a file: the records that begin in [start, end). Nothing after `size` is read.

    key             the number of the file, which its lines carry as `oo_file`
    compressed      the ending of a compressed file. It is one range; its positions count in the uncompressed content
    skipped         so many records at the beginning are left out (a header)
    inode           the file may be renamed during the read; another file under its name is not read in its place
    most            a record of more bytes is not read; its beginning and the reason are kept
    etag, bytes     for an object, compressed or not: its ETag and size
    quoted_within   for CSV: the bytes of a record within which a quote is closed
    cuts            for CSV: the places at which the range may be cut
    delimiter       for CSV: what separates the values
    encoding        for CSV: of its bytes; the lines that are read are UTF-8
    """

    path: str
    key: int
    start: int
    end: int
    size: int
    compressed: str | None = None
    skipped: int = 0
    inode: Inode | None = None
    most: int = records.DEFAULT
    etag: str = ""
    bytes: int = 0
    quoted_within: int | None = None
    cuts: tuple[int, ...] = ()
    delimiter: str = ","
    encoding: str = encodings.UTF_8


def read(spark: SparkSession, ranges: Iterable[Range], read_on: Work, schema: StructType) -> DataFrame:
    """Return the lines of some ranges as (oo_line, oo_refused, oo_file, oo_position), passed through `read_on`.

    `read_on` runs in the same task as the read."""
    tasks = list(_together(part for whole in ranges for part in _cut(whole)))

    def of_task(mine: list[Range]) -> Batches:
        return read_on(batch for part in mine for batch in lines(part))

    return worker.each(spark, tasks, of_task, schema)


def compressed(path: str, key: int, ending: str, **others: Any) -> Range:
    """Return the range of a whole compressed file.

    Positions count in its uncompressed content. `others`: further fields of `Range`.
    """
    return Range(path, key, 0, MOST, MOST, compressed=ending, **others)


def lines(part: Range) -> Iterator[pa.RecordBatch]:
    """Yield the records of one range, a few thousand at a time."""
    skipped = part.skipped
    for batch in _batches(part):
        if skipped < len(batch):
            yield batch.slice(skipped)
        skipped = max(skipped - len(batch), 0)


def _batches(part: Range) -> Iterator[pa.RecordBatch]:
    with _opened(part) as file:
        at = _begin(file, part)
        found = file_bytes.record_end_reader(part.quoted_within, at, part.delimiter)
        # The ends of records follow the bound as of the listing, which may be larger than today's.
        most = max(part.most, part.quoted_within or 0)
        begun = _Begun(most)
        left = part.size - file.tell()
        while at < part.end:
            data = file.read(min(PIECE, left))
            left -= len(data)
            if not data:
                if part.inode is not None and left:
                    raise _other(part)
                if len(ends := found.finish()):
                    yield _batch(part, begun.ended(b""), at, ends, begun.dropped)
                return
            ends = found.add(data)
            if not len(ends):
                begun.add(data)
                continue
            whole, dropped = begun.ended(data), begun.dropped
            begun, cut = _Begun(most), int(ends[-1]) - at - dropped
            begun.add(whole[cut:])
            yield _batch(part, whole[:cut], at, ends, dropped)
            at = int(ends[-1])


class _Begun:
    """A record that is longer than a piece, as far as it was read.

    Once the record is too long, all except its beginning is dropped.
    """

    def __init__(self, most: int) -> None:
        self._most, self._pieces = most, list[bytes]()
        self.bytes = self.dropped = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes of the record."""
        self._pieces.append(data)
        self.bytes += len(data)
        if self.bytes > self._most:
            kept = b"".join(self._pieces)[: 2 * records.BEGINNING]
            self._pieces, self.dropped = [kept], self.bytes - len(kept)

    def ended(self, data: bytes) -> bytes:
        """Return the kept bytes of the record, and the bytes after them."""
        return b"".join([*self._pieces, data])


def _cut(whole: Range) -> Iterator[Range]:
    if whole.compressed:
        yield whole
        return
    if whole.quoted_within is not None:
        for start, end in pairwise([whole.start, *whole.cuts, whole.end]):
            yield replace(
                whole, start=start, end=end, size=end, cuts=(), skipped=whole.skipped if start == whole.start else 0
            )
        return
    # Parts of equal size: with a small rest at the end of each file a core would be idle.
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


@contextmanager
def _opened(part: Range) -> Iterator[IO[bytes]]:
    with ExitStack() as held:
        try:
            file = held.enter_context(opened(FileAt(part.path, part.bytes, part.etag), part.compressed))
            if part.etag:
                yield file
                return
        except (FileNotFoundError, NoFile) as error:
            raise vanished(part.path) from error
        now = os.fstat(file.fileno())
        if part.inode is not None and (not part.inode.holds(file.fileno()) or now.st_size < part.size):
            raise _other(part)
        yield file


def vanished(path: str) -> Retryable:
    """Return the error for a file that has vanished, or is not a regular file any more, when a task opens it."""
    return Retryable(
        f"{path} vanished while its batch was read",
        data="nothing is half done",
        hint="run the same command again: the file becomes one invalid record, or is named if part of it is committed",
    )


def _other(part: Range) -> Retryable:
    return Retryable(
        f"{part.path} was renamed, replaced or cut while it was read",
        data="nothing of this batch is half done",
        hint="run the same command again: it looks where the file is now",
    )


def _begin(file: IO[bytes], part: Range) -> int:
    """Seek to the first record that begins in the range, and return its place."""
    at = part.start
    if at and part.quoted_within is None:
        # The search stops at the end of the range: else each range would search through all of a long line.
        at = _after_line(file, at - 1, part.end)
    file.seek(at)
    return at


def _after_line(file: IO[bytes], at: int, size: int) -> int:
    """Return the place after the next line feed; `size` if there is none before it."""
    file.seek(at)
    while at < size and (data := file.read(1 << 16)):
        found = data.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(data)
    return size


def _batch(part: Range, whole: bytes, at: int, ends: file_bytes.Ends, dropped: int) -> pa.RecordBatch:
    """Return the records of a piece that begin before the end of the range.

    The first of them begins at byte `at`, and `dropped` bytes of it were dropped.
    """
    if not whole.endswith(b"\n"):  # the last record of a file
        whole, ends = whole + b"\n", np.append(ends[:-1], ends[-1:] + 1)
    places = np.concatenate([[at], ends])
    begins = np.maximum(places - at - dropped, 0)
    count = int(np.searchsorted(places[:-1], part.end))
    # Without the line feeds at the ends of its records a piece is the concatenated strings, as Arrow stores them.
    held = int(begins[count])
    texts = whole[:held].replace(b"\n", b"")
    if len(texts) < held - count:  # some are within records
        texts = np.delete(np.frombuffer(whole, np.uint8, held), begins[1 : count + 1] - 1).tobytes()
    texts, offsets, unknown = file_bytes.in_utf8(texts, begins[: count + 1] - np.arange(count + 1), part.encoding)
    values = pa.StringArray.from_buffers(count, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(texts))
    values, reasons = _within(part, values, places[: count + 1], unknown)
    keys = pa.repeat(pa.scalar(part.key, pa.int64()), count)
    return pa.RecordBatch.from_arrays([values, reasons, keys, pa.array(places[:count], pa.int64())], schema=ARROW)


def _within(
    part: Range, values: pa.Array, places: NDArray[np.int64], unknown: Mapping[int, int]
) -> tuple[pa.Array, pa.Array]:
    """Return the lines, cut to their beginning if they are too long, and the reasons why they are invalid.

    `unknown`: an undefined byte of each line that has any.
    """
    sizes = np.diff(places) - 1
    over = np.flatnonzero(sizes > part.most)
    if not len(over) and not unknown:
        return values, pa.nulls(len(values), pa.string())
    lines: list[bytes] = values.cast(pa.binary()).to_pylist()
    reasons: list[str | None] = [None] * len(lines)
    for row, byte in unknown.items():
        reasons[row] = encodings.not_encoded(part.encoding, byte)
    for row in over.tolist():
        lines[row] = records.beginning_of_record(lines[row])
        reasons[row] = records.record_too_large(f"the line at byte {places[row]} of {part.path}", sizes[row], part.most)
    return pa.array(lines, pa.binary()).view(pa.string()), pa.array(reasons, pa.string())
