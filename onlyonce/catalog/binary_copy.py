"""Writes and reads rows in the binary form of PostgreSQL's COPY.

Large values stay as they are; in a statement they would be text of twice the size, either way: to bring 15 MB as text
takes PostgreSQL and its client four times as long.

Source: PostgreSQL's documentation, COPY, "Binary Format". Who calls it: `catalog`. Errors: those of the connection, as
of any statement. Not promised: any type but those below.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import Any

from sqlalchemy import Connection, text

from onlyonce.database.statements import queries

_BEGIN = b"PGCOPY\n\xff\r\n\x00" + struct.pack("!ii", 0, 0)
_SHORT, _SIZE = struct.Struct("!h"), struct.Struct("!i")
_END = _SHORT.pack(-1)
_NULL = struct.pack("!i", -1)

Value = bytes | None
"""A value in the binary form of its type; a `bytea` is its own. None is NULL."""


def int4(number: int) -> bytes:
    """A value of an `int` column."""
    return struct.pack("!i", number)


def int8(number: int) -> bytes:
    """A value of a `bigint` column."""
    return struct.pack("!q", number)


def copy(connection: Connection, file: str, query: str, rows: Iterable[Sequence[Value]]) -> None:
    """Give some rows to a named COPY … FROM STDIN (FORMAT binary), in the open transaction."""
    connection.connection.cursor().copy_expert(queries(file)[query], BytesIO(b"".join(_parts(rows))))


def ask_binary(connection: Connection, file: str, query: str, /, **parameters: Any) -> list[list[Value]]:
    """The rows of a named query, by COPY … TO STDOUT (FORMAT binary), in the open transaction."""
    cursor, found = connection.connection.cursor(), BytesIO()
    asked = cursor.mogrify(str(text(queries(file)[query]).compile(connection)), parameters)
    cursor.copy_expert(b"COPY (" + asked + b") TO STDOUT (FORMAT binary)", found)
    return [*_rows(found.getbuffer())]


def number(value: Value) -> int:
    """A value of an `int` or `bigint` column, which is not NULL."""
    return int.from_bytes(value or b"", "big", signed=True)


def _rows(copied: memoryview) -> Iterator[list[Value]]:
    at = len(_BEGIN)
    while (columns := _SHORT.unpack_from(copied, at)[0]) >= 0:
        at, row = at + _SHORT.size, list[Value]()
        for _ in range(columns):
            (size,), at = _SIZE.unpack_from(copied, at), at + _SIZE.size
            row.append(None if size < 0 else bytes(copied[at : at + size]))
            at += max(size, 0)
        yield row


def _parts(rows: Iterable[Sequence[Value]]) -> Iterable[bytes]:
    yield _BEGIN
    for row in rows:
        yield struct.pack("!h", len(row))
        for value in row:
            yield _NULL if value is None else int4(len(value))
            yield value or b""
    yield _END
