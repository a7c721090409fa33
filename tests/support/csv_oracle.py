"""The records of CSV by Python's csv module with strict rules, line by line, and content that tries it."""

from __future__ import annotations

import csv
import io

from hypothesis import strategies as st

MARK = b"\xef\xbb\xbf"
TOKENS = [b"a", b",", b";", b'";"', b'"', b'"', b'""', b"\n", b"\n", b"\r\n", b" ", b'","', b'"\n', MARK, b"\xff"]

contents = st.lists(st.sampled_from(TOKENS), max_size=40).map(b"".join)


def records(content: bytes, most: int, delimiter: str = ",") -> list[tuple[int, bytes]]:
    """(place, record) of each record: the fewest lines that are one row; the first line alone if none are, or if they
    have too many bytes."""
    lines, found, at, first = content.split(b"\n"), [], 0, 0
    lines = lines[:-1] if not lines[-1] else lines
    while first < len(lines):
        several = (b"\n".join(lines[first:end]) for end in range(first + 1, len(lines) + 1))
        record = next((one for one in several if len(one) <= most and fields(one, delimiter) is not None), lines[first])
        found.append((at, record))
        at += len(record) + 1
        first += record.count(b"\n") + 1
    return found


def fields(record: bytes, delimiter: str = ",") -> list[str] | None:
    """Return the fields of one record; None if it is not one.

    The module accepts quotes within a field without quotes, RFC 4180 does not.
    """
    text = record.removeprefix(MARK).decode("latin-1").removesuffix("\r")
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter))
    except csv.Error:
        return None
    if not text or len(rows) != 1:
        return None if text else [""]
    at = 0
    for field in rows[0]:
        quoted = text.startswith('"', at)
        written = '"' + field.replace('"', '""') + '"' if quoted else field
        if not text.startswith(written, at) or (not quoted and '"' in field):
            return None
        at += len(written) + 1
    return rows[0] if at == len(text) + 1 else None
