"""Writes rows in the binary form of PostgreSQL's COPY. Large values stay as they are; in a statement they would be text of twice the size.

Source: PostgreSQL's documentation, COPY, "Binary Format". Who calls it: `catalog`. Errors: those of the connection, as of any statement.
Not promised: any type but those below.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from io import BytesIO

from sqlalchemy import Connection

from onlyonce.database.statements import queries

_BEGIN = b"PGCOPY\n\xff\r\n\x00" + struct.pack("!ii", 0, 0)
_END = struct.pack("!h", -1)
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


def _parts(rows: Iterable[Sequence[Value]]) -> Iterable[bytes]:
    yield _BEGIN
    for row in rows:
        yield struct.pack("!h", len(row))
        for value in row:
            yield _NULL if value is None else int4(len(value))
            yield value or b""
    yield _END
