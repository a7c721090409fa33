"""Find where the records of a file end: bytes in, offsets out. Pure.

A record of JSON is a line. A record of CSV is one by RFC 4180, so a quoted value of it may hold line feeds. A quote
that is malformed, or that no quote closes within a number of bytes, makes the line on which its record begins a record
of its own, which is invalid. Reading resumes at the next line.

A line with an even number of quotes on which a record begins is that record, however its quotes stand. So only a line
with an odd number can begin a record of several lines, and those behind it are compared with the grammar until the
quote is closed or malformed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

from onlyonce.model.values.line_values import BARE, QUOTED

PIECE = 1 << 22
NEWLINE, QUOTE = b'\n"'
FIELD = f"(?:{QUOTED}|{BARE})"
REST = '[^"]*+(?:""[^"]*+)*+'
"""Of a value with quotes, whatever comes behind the first and before the last."""
OPENING, INNER, CLOSING = (
    re.compile(pattern.encode("latin-1"))
    for pattern in (
        f'(?:\xef\xbb\xbf)?(?:{FIELD},)*+"{REST}',
        f'{REST}(?:",(?:{FIELD},)*+"{REST})?',
        f'{REST}"(?:,{FIELD})*+\r?\n?',
    )
)
"""The first, a middle and the last line of a record, each with its end. A byte-order mark before the first quote is no
part of the value."""

Ends = NDArray[np.int64]


class Lines:
    """The ends of records that are lines, in a file that is read from byte `begin` on."""

    def __init__(self, begin: int = 0) -> None:
        self._at = self._line = begin

    def add(self, data: bytes) -> Ends:
        """Return the end of each record that ends for certain, given the bytes that come next."""
        ends: Ends = np.flatnonzero(np.frombuffer(data, np.uint8) == NEWLINE) + (self._at + 1)
        self._at += len(data)
        self._line = int(ends[-1]) if len(ends) else self._line
        return ends

    def finish(self) -> Ends:
        """Return the ends that are left at the end of the file, where the last line may have no line feed."""
        return np.arange(self._at, self._at + (self._at > self._line), dtype=np.int64)


class CsvRecords(Lines):
    """The ends of records of CSV.

    `begin` is where a record begins; an open quote is closed within `most` bytes of its record.
    """

    def __init__(self, most: int, begin: int = 0) -> None:
        super().__init__(begin)
        self._most = most
        self._held, self._quotes = list[bytes](), 0  # the line that has no end yet, and how many quotes it has
        self._open: int | None = None  # where the record with the open quote begins
        self._waiting: Ends = np.zeros(0, np.int64)  # the ends of lines since then

    def add(self, data: bytes) -> Ends:
        """Return the end of each record that ends for certain, given the bytes that come next."""
        line, at = self._line, self._at
        ends = super().add(data)
        if self._open is not None or self._quotes or b'"' in data:
            ends = self._decided(line, ends, data, at)
        if self._line > line:
            self._held = []
        if self._at - self._line <= self._most:
            self._held.append(data[max(self._line - at, 0) :])
        return ends

    def finish(self) -> Ends:
        """Return the ends that are left at the end of the file: an open quote is not closed any more."""
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
        """Return the ends without those of lines within a record; those behind an open quote wait.

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
        # The first line with an odd number from each line on; numbers of Python, since there is one step for each such
        # line.
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
        """Return the numbers of the lines with quotes that end in these bytes, and whether each has an odd number of
        them."""
        quotes = np.flatnonzero(np.frombuffer(data, np.uint8) == QUOTE) + at
        before = np.searchsorted(quotes, ends) + self._quotes
        counts = np.diff(before, prepend=0)
        self._quotes += len(quotes) - (int(before[-1]) if len(ends) else 0)
        lines = np.flatnonzero(counts)
        return lines, (counts[lines] & 1).astype(bool)

    def _is(self, pattern: re.Pattern[bytes], record: int, begin: int, end: int, data: bytes, at: int) -> bool:
        """Return whether the line [begin, end) fits, and the record up to there is not too large."""
        if end - record - 1 > self._most:
            return False
        if begin < at:
            return bool(pattern.fullmatch(b"".join([*self._held, data[: end - at]])))
        return bool(pattern.fullmatch(data, begin - at, end - at))


def reader(quoted_within: int | None, begin: int = 0) -> Lines:
    """Return what finds the ends of records: of CSV if its quoted values end within a number of bytes, else of
    lines."""
    return Lines(begin) if quoted_within is None else CsvRecords(quoted_within, begin)


def records(content: IO[bytes], quoted_within: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield each record of a file with its place and its end. In memory is what is read at once, or one record."""
    found, pieces, begin = reader(quoted_within), list[bytes](), 0
    data = b"begin"
    while data:
        data = content.read(PIECE)
        pieces.append(data)
        if len(ends := found.add(data) if data else found.finish()):
            whole, at = b"".join(pieces), begin
            for end in ends.tolist():
                yield begin, whole[begin - at : end - at]
                begin = end
            pieces = [whole[begin - at :]]


def of_content(content: IO[bytes], quoted_within: int | None) -> Iterator[Ends]:
    """Yield the ends of all records of a file, some at a time."""
    ends = reader(quoted_within)
    while piece := content.read(PIECE):
        yield ends.add(piece)
    yield ends.finish()
