"""Open the files and objects of a source, unpack them, and find where their records end.

Only a regular file is opened: no link is followed, and no pipe blocks. Otherwise everyone who may write to an inbox
could make the driver read any file that its user may read. Hard links are not detected, since a file does not show
them. Nor is a folder of a recursive inbox that is replaced by a link between the check at a batch's begin and the read.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onlyonce.core import encodings
from onlyonce.core.line_values import BARE, DELIMITERS, QUOTED
from onlyonce.core.locations import Url, location
from onlyonce.tables import stores

KINDS = (
    (stat.S_ISLNK, "a symbolic link, which is not followed; links=True of the source allows them"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device file"),
    (stat.S_ISBLK, "a device file"),
    (stat.S_ISDIR, "a folder"),
)
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of opening a path that no file has: also below a file, or through links in a circle."""


class NoFile(OSError):
    """The name exists, but is not a regular file."""


def kind_of_file(mode: int) -> str | None:
    """Return the kind of a file by its mode, in words; None for a regular file."""
    return next((told for is_it, told in KINDS if is_it(mode)), None)


def opened_file(path: str) -> int:
    """Return the descriptor of a regular file, open for reading."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _no_file(path, stat.S_IFLNK) from error
        raise
    if (mode := os.fstat(file).st_mode) and not stat.S_ISREG(mode):
        os.close(file)
        raise _no_file(path, mode)
    return file


def is_gone(error: OSError) -> bool:
    """Return whether an error means that no regular file has a path now. Any other error may pass."""
    return isinstance(error, NoFile) or error.errno in GONE


@contextmanager
def by_descriptor(path: str) -> Iterator[str]:
    """Yield a name of an opened regular file for a library that opens by name.

    The library then opens the same file, even if another one has taken its path."""
    descriptor = opened_file(path)
    try:
        yield f"/dev/fd/{descriptor}"
    finally:
        os.close(descriptor)


def is_directly_below(path: str, inbox: str) -> bool:
    """Return whether no folder between an inbox and a file is a link. Links above the inbox are its owner's."""
    below = os.path.dirname(path).removeprefix(inbox)  # noqa: PTH120 - as it is written
    return os.path.realpath(inbox + below) == os.path.realpath(inbox).rstrip("/") + below.rstrip("/")


def place_of_file(path: str, *, links: bool) -> str:
    """Return the path at which a file is opened: its own, or if links are allowed the one that it names."""
    return os.path.realpath(path) if links else path


def _no_file(path: str, mode: int) -> NoFile:
    return NoFile(errno.EINVAL, f"it is {kind_of_file(mode)}", path)


# An object as a file: each read is a GET of a range, with the listed ETag.
#
# A replaced object raises Changed. One piece is held in memory.


PIECE = 1 << 23
"""The smallest number of bytes of a request, unless the object ends before."""


class ObjectFile(io.RawIOBase):
    """The content of an object with this size and ETag, from `name`, its URL. It has no descriptor."""

    def __init__(self, name: str, size: int, etag: str) -> None:
        self.name, self.size, self.etag = name, size, etag
        at = location(name)
        assert isinstance(at, Url)
        self._at, self._store = at, stores.of(at)
        self._place = self._begin = 0
        self._piece = b""

    def again(self) -> ObjectFile:
        """Return a second file over the same object, from its beginning."""
        return ObjectFile(self.name, self.size, self.etag)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._place

    def seek(self, at: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; nothing is requested."""
        self._place = at + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.size}[whence]
        return self._place

    def readinto(self, into: Any) -> int:
        """Read the next bytes, up to the size of `into`."""
        data = self._next(min(len(into), self.size - self._place))
        into[: len(data)] = data
        self._place += len(data)
        return len(data)

    def _next(self, wanted: int) -> bytes:
        if wanted <= 0:
            return b""
        skipped = self._place - self._begin
        if not 0 <= skipped <= len(self._piece) - wanted:
            end = min(self._place + max(wanted, PIECE), self.size)
            self._piece, self._begin, skipped = (
                self._store.read_range(self._at, self._place, end, self.etag),
                self._place,
                0,
            )
        return self._piece[skipped : skipped + wanted]


# Compressed files: gzip, bzip2, Zstandard, by the ending of the name. A file may be several compressed streams in a
# row. Damage is noticed as far as the format has checksums.


LEFT_ALONE = (".deflate", ".lz4", ".snappy", ".passthrough")
"""Endings that Spark's reader would unpack, and we do not."""
PIECE_OF_BZIP2 = 1 << 17


class Decompressed(io.RawIOBase):
    """The content of a compressed file.

    Seeking backwards reads the content from its beginning. The reader of lines does so once, after a header.
    """

    def __init__(self, compressed: IO[bytes]) -> None:
        self._compressed = compressed
        self._begin()

    def _begin(self) -> None:
        self._compressed.seek(0)
        self._at = 0

    def _next(self, most: int) -> bytes:
        """Return the next bytes, up to `most`; none at the end."""
        raise NotImplementedError

    def readable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of the compressed file."""
        return self._compressed.fileno()

    def tell(self) -> int:
        """Return the position in the content."""
        return self._at

    def readinto(self, into: Any) -> int:
        """Read the next bytes: the size of `into`, or fewer at the end."""
        read = 0
        while read < len(into) and (data := self._next(len(into) - read)):
            into[read : read + len(data)] = data
            read += len(data)
        self._at += read
        return read

    def seek(self, at: int, whence: int = io.SEEK_SET) -> int:
        """Set the position in the content."""
        assert whence == io.SEEK_SET
        if at < self._at:
            self._begin()
        while self._at < at and self.read(min(at - self._at, 1 << 20)):
            pass
        return self._at


class Bzip2(Decompressed):
    """The content of a bzip2 file.

    `bz2.BZ2File` takes a damaged later stream for the end of the file, and its records would be lost.
    """

    def _begin(self) -> None:
        super()._begin()
        self._stream = bz2.BZ2Decompressor()

    def _next(self, most: int) -> bytes:
        while True:
            data = b""
            if self._stream.eof:
                if not (data := self._stream.unused_data or self._compressed.read(PIECE_OF_BZIP2)):
                    return b""
                self._stream = bz2.BZ2Decompressor()
            elif self._stream.needs_input and not (data := self._compressed.read(PIECE_OF_BZIP2)):
                raise EOFError("it ends within a stream")
            if content := self._stream.decompress(data, most):
                return content


class Zstandard(Decompressed):
    """The content of a Zstandard file."""

    def _begin(self) -> None:
        super()._begin()
        # Arrow closes the file that it reads when the stream is dropped, so it gets a second one.
        of_its_own: Any = self._compressed
        of_its_own = (
            of_its_own.again()
            if isinstance(of_its_own, ObjectFile)
            else os.fdopen(os.dup(self._compressed.fileno()), "rb", buffering=0)
        )
        self._content = pa.CompressedInputStream(of_its_own, "zstd")

    def _next(self, most: int) -> bytes:
        return bytes(self._content.read(most))


FORMATS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda compressed: gzip.GzipFile(fileobj=compressed), ".bz2": Bzip2, ".zst": Zstandard,
}  # fmt: skip


def compression_of(name: str) -> str | None:
    """Return the ending by which a file is compressed; None if it is not."""
    return next((ending for ending in FORMATS if name.lower().endswith(ending)), None)


def decompressed_content(compressed: IO[bytes], ending: str) -> Any:
    """Return the content of an open compressed file as a seekable binary file."""
    return FORMATS[ending](compressed)


def is_damage(error: BaseException) -> bool:
    """Return whether an error means that a file is cut short or damaged. Errors of a disk have an errno."""
    return isinstance(error, (EOFError, zlib.error)) or (isinstance(error, OSError) and error.errno is None)


# Find where the records of a file end, from its bytes. Pure.
#
# A record of JSON is a line. A record of CSV follows RFC 4180, so a quoted value may hold line feeds. If a quote is
# malformed, or not closed within a number of bytes, the first line of its record becomes an invalid record. Reading
# resumes at the next line.
#
# A line on which a record begins and that has an even number of quotes is that record, however its quotes are placed.
# So only a line with an odd number can begin a record of several lines. The lines after it are compared with the
# grammar until the quote is closed or malformed.


PIECE_OF_RECORDS = 1 << 22
NEWLINE, QUOTE = b'\n"'
FIELD = f"(?:{QUOTED}|{BARE})"
REST = '[^"]*+(?:""[^"]*+)*+'
"""In a quoted value, all characters after the first quote and before the last."""
OPENING, INNER, CLOSING = (
    re.compile(pattern.encode("latin-1"))
    for pattern in (
        f'(?:\xef\xbb\xbf)?(?:{FIELD},)*+"{REST}',
        f'{REST}(?:",(?:{FIELD},)*+"{REST})?',
        f'{REST}"(?:,{FIELD})*+\r?\n?',
    )
)
"""The first, a middle and the last line of a record, each with its end. A byte-order mark before the first quote is not
part of the value."""

SWAPS = {one: bytes.maketrans(f"{one},".encode(), f",{one}".encode()) for one in DELIMITERS}
"""Swap a delimiter and commas."""
Ends = NDArray[np.int64]


class Lines:
    """The ends of records that are lines, in a file that is read from byte `begin` on."""

    def __init__(self, begin: int = 0) -> None:
        self._at = self._line = begin

    def add(self, data: bytes) -> Ends:
        """Return the end of each record that certainly ends, given the next bytes."""
        ends: Ends = np.flatnonzero(np.frombuffer(data, np.uint8) == NEWLINE) + (self._at + 1)
        self._at += len(data)
        self._line = int(ends[-1]) if len(ends) else self._line
        return ends

    def finish(self) -> Ends:
        """Return the remaining ends at the end of the file: the last line may have no line feed."""
        return np.arange(self._at, self._at + (self._at > self._line), dtype=np.int64)


class CsvRecords(Lines):
    """The ends of records of CSV.

    `begin` is where a record begins; an open quote must be closed within `most` bytes of its record.
    """

    def __init__(self, most: int, begin: int = 0, delimiter: str = ",") -> None:
        super().__init__(begin)
        self._most, self._delimiter = most, delimiter
        self._held, self._quotes = list[bytes](), 0  # the line without an end so far, and its number of quotes
        self._open: int | None = None  # where the record with the open quote begins
        self._waiting: Ends = np.zeros(0, np.int64)  # the ends of lines since that position

    def add(self, data: bytes) -> Ends:
        """Return the end of each record that certainly ends, given the next bytes."""
        line, at = self._line, self._at
        ends = super().add(data)
        if self._delimiter != ",":  # the patterns are the ones for commas
            data = data.translate(SWAPS[self._delimiter])
        if self._open is not None or self._quotes or b'"' in data:
            ends = self._decided(line, ends, data, at)
        if self._line > line:
            self._held = []
        if self._at - self._line <= self._most:
            self._held.append(data[max(self._line - at, 0) :])
        return ends

    def finish(self) -> Ends:
        """Return the remaining ends at the end of the file, where no later line can close an open quote."""
        last = super().finish()
        if (
            self._open is not None
            and self._quotes & 1
            and self._at - self._open <= self._most
            and CLOSING.fullmatch(b"".join(self._held))
        ):
            return last
        return np.concatenate([self._waiting, last])

    def _decided(self, line: int, ends: Ends, data: bytes, at: int) -> Ends:
        """Return the ends except the ends of lines within a record; ends after an open quote wait.

        `line`: where the first line begins.
        """
        found = list(self._several(line, ends, data, at))
        if self._open is not None and self._at - self._open > self._most:
            self._open = None
        every = np.concatenate([self._waiting, ends])
        within = np.zeros(len(every) + 1, np.int64)
        within[np.searchsorted(every, [begin for begin, _ in found], "right")] += 1
        within[np.searchsorted(every, [end for _, end in found])] -= 1
        every = every[np.cumsum(within[:-1]) == 0]
        decided = len(every) if self._open is None else int(np.searchsorted(every, self._open, "right"))
        self._waiting = every[decided:]
        return every[:decided]

    def _several(self, line: int, ends: Ends, data: bytes, at: int) -> Iterator[tuple[int, int]]:
        """Yield where each record of several lines begins and ends, if it ends in `data`."""
        lines, odd = self._quoted(data, at, ends)
        openers = np.flatnonzero(odd)
        if self._open is None and not len(openers):
            return
        # The first line with an odd number from each line on. Python's own numbers, since there is one step for each
        # such line.
        opener = np.append(openers, len(lines))[np.searchsorted(openers, np.arange(len(lines) + 1))].tolist()
        begins, stops, is_odd = np.concatenate([[line], ends])[lines].tolist(), ends[lines].tolist(), odd.tolist()
        number = 0
        while (number := opener[number] if self._open is None else number) < len(lines):
            begin, end = begins[number], stops[number]
            if self._open is None:
                self._open = begin if self._is(OPENING, begin, begin, end, data, at) else None
            elif is_odd[number]:
                record, self._open = self._open, None
                if not self._is(CLOSING, record, begin, end, data, at):
                    continue  # a record may begin on this line
                yield record, end
            elif not self._is(INNER, self._open, begin, end, data, at):
                self._open = None
            number += 1

    def _quoted(self, data: bytes, at: int, ends: Ends) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the numbers of the lines with quotes that end in these bytes, and which have an odd number."""
        quotes = np.flatnonzero(np.frombuffer(data, np.uint8) == QUOTE) + at
        before = np.searchsorted(quotes, ends) + self._quotes
        counts = np.diff(before, prepend=0)
        self._quotes += len(quotes) - (int(before[-1]) if len(ends) else 0)
        lines = np.flatnonzero(counts)
        return lines, (counts[lines] & 1).astype(bool)

    def _is(self, pattern: re.Pattern[bytes], record: int, begin: int, end: int, data: bytes, at: int) -> bool:
        """Return whether the line [begin, end) matches the pattern, and its record is not too large so far."""
        if end - record - 1 > self._most:
            return False
        if begin < at:
            return bool(pattern.fullmatch(b"".join([*self._held, data[: end - at]])))
        return bool(pattern.fullmatch(data, begin - at, end - at))


def record_end_reader(quoted_within: int | None, begin: int = 0, delimiter: str = ",") -> Lines:
    """Return what finds the ends of records: of CSV if `quoted_within` bounds quoted values, else of lines."""
    return Lines(begin) if quoted_within is None else CsvRecords(quoted_within, begin, delimiter)


def count_records(content: IO[bytes], quoted_within: int | None, delimiter: str = ",") -> Iterator[tuple[int, bytes]]:
    """Yield the place and content of each record of a file. It holds one piece or one record in memory."""
    found, pieces, begin = record_end_reader(quoted_within, 0, delimiter), list[bytes](), 0
    data = b"begin"
    while data:
        data = content.read(PIECE_OF_RECORDS)
        pieces.append(data)
        if len(ends := found.add(data) if data else found.finish()):
            whole, at = b"".join(pieces), begin
            for end in ends.tolist():
                yield begin, whole[begin - at : end - at]
                begin = end
            pieces = [whole[begin - at :]]


def record_ends_of(content: IO[bytes], quoted_within: int | None, delimiter: str = ",") -> Iterator[Ends]:
    """Yield the ends of all records of a file, some at a time."""
    ends = record_end_reader(quoted_within, 0, delimiter)
    while piece := content.read(PIECE_OF_RECORDS):
        yield ends.add(piece)
    yield ends.finish()


# Records of an encoding with one byte for each character, as UTF-8.


def in_utf8(texts: bytes, offsets: Ends, encoding: str) -> tuple[bytes, Ends, dict[int, int]]:
    """Return concatenated strings as UTF-8, and where each begins.

    `offsets`: where each string begins, and the end of the last one. The third value maps the number of each string
    with an undefined byte to its first such byte.
    """
    if encoding == encodings.UTF_8 or texts.isascii():
        return texts, offsets, {}
    octets = np.frombuffer(texts, np.uint8)
    high = np.flatnonzero(octets >= 0x80)
    widths = np.array([len(one.encode()) for one in encodings.characters(encoding)], np.int64)
    grown = np.concatenate([[0], np.cumsum(widths[octets[high]] - 1)])
    unknown = high[np.isin(octets[high], np.frombuffer(encodings.undefined(encoding), np.uint8))]
    rows = np.searchsorted(offsets, unknown, "right") - 1
    # In reverse, so that the first byte of a string stays.
    first = dict(zip(rows[::-1].tolist(), octets[unknown[::-1]].tolist(), strict=True))
    return encodings.decode(texts, encoding).encode(), offsets + grown[np.searchsorted(high, offsets)], first
