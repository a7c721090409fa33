"""Loads the rows of a unit into a MySQL table, in the transaction of its claim: many rows a statement, by JSON_TABLE.

LOAD DATA LOCAL would be as fast, but it turns what does not fit into warnings, and most servers refuse it. A driver's
`executemany` loops over the values in Python. So Spark makes each row a JSON text, and a chunk of them is one
parameter.

Who calls it: the unit's task (`postgres_unit`, `postgres_plain`). Errors: Refused for rows that the table can't hold,
InvariantBroken for two rows of the same keys. Not promised: which row of a chunk was the wrong one, beyond what the
server says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from onlyonce.database import mysql
from onlyonce.declare.outputs.newest import HISTORY
from onlyonce.failpoints import passing
from onlyonce.model.errors import InvariantBroken, Refused
from onlyonce.model.stored_names import WINDOW_START
from onlyonce.sinks.mysql import mysql_history
from onlyonce.sinks.mysql.mysql_upsert import TABLE, Arriving
from onlyonce.sinks.postgres.pinned import Batches
from onlyonce.sinks.postgres.postgres_unit import Work

ROW = "oo_row"
"""The column in which a row travels."""
CHUNK = 2 << 20
"""Bytes of rows in one statement: servers take 16 MB and more, and larger statements are no faster."""
TWICE = 1062
ROWS_AT_FAULT = {
    1062,
    1048,
    1292,
    1364,
    1365,
    1366,
    1369,
    1411,
    1452,
    1526,
    1591,
    1644,
    1690,
    1748,
    1906,
    3105,
    3819,
    4025,
}
"""Beside those that are DataError or IntegrityError: a time that is none, a column without a value, a constraint, a
trigger's SIGNAL, a generated column or its expression, no partition for a row."""


@dataclass(frozen=True)
class Loaded:
    """The columns of the rows, in their order, and which of them travel in hexadecimal; those of texts by their
    names."""

    columns: tuple[str, ...]
    binary: tuple[bool, ...]
    texts: tuple[str, ...] = ()


def putting(loaded: Loaded) -> Callable[[Connection, Work, Batches], None]:
    """What writes the rows of a unit, as `postgres_unit.write_unit` calls it."""

    def put(connection: Connection, work: Work, batches: Batches) -> None:
        try:
            _write(connection, work, loaded, batches)
        except DBAPIError as error:
            if not isinstance(error, DataError | IntegrityError) and mysql.code_of(error) not in ROWS_AT_FAULT:
                raise
            raise Refused(
                f"unit {work.unit}: {work.table} can't hold its rows: {mysql.told(error)}",
                data="nothing of this unit was written",
                hint="make the transform's rows fit the table (a null key, a number out of range, NaN, a text or "
                "key too long), "
                "or change the table; the committed units of this batch wait for the rest",
            ) from error

    return put


def _write(connection: Connection, work: Work, loaded: Loaded, batches: Batches) -> None:
    if work.write == "replace":
        _delete(connection, work)
    if work.write in ("append", "replace"):
        _load(connection, work.table, loaded, batches)
        passing("postgres-unit-after-rows")
        return
    stored = tuple(column for column in loaded.columns if column != work.deletes)
    arriving = Arriving(connection, work, stored, loaded.texts)
    arriving.stage()
    try:
        _load(connection, TABLE, loaded, batches)
    except IntegrityError as error:
        if mysql.code_of(error) != TWICE:
            raise
        place = (*work.keys, *(work.newest_by if work.write == HISTORY else ()))
        raise InvariantBroken(
            f"unit {work.unit}: two rows have the same keys ({', '.join(place)})",
            data="nothing of this unit was written",
            hint="the keys must identify a row of the transform's result: group by all of them",
        ) from error
    arriving.refuse_nulls()
    if work.write == HISTORY:
        mysql_history.write(arriving)
    else:
        if work.deletes:
            arriving.delete()
        arriving.merge()
    arriving.drop()
    passing("postgres-unit-after-rows")


def _load(connection: Connection, table: str, loaded: Loaded, batches: Batches) -> None:
    listed = ", ".join(mysql.quoted(connection, column) for column in loaded.columns)
    taken = ", ".join(f"UNHEX(c{n})" if hexed else f"c{n}" for n, hexed in enumerate(loaded.binary))
    # The character set is said: else it is the database's, and what that lacks would become '?' without a word.
    columns = ", ".join(f"c{n} LONGTEXT CHARACTER SET utf8mb4 PATH '$[{n}]'" for n in range(len(loaded.columns)))
    statement = (
        f"INSERT INTO {mysql.quoted(connection, table)} ({listed}) SELECT {taken} "
        f"FROM JSON_TABLE(%s, '$[*]' COLUMNS ({columns})) AS oo_rows"
    )
    most = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
    for batch in batches:
        for rows in chunks(batch.column(ROW)):
            _check_size(rows, most, table)
            connection.exec_driver_sql(statement, (rows,))


def chunks(rows: pa.Array) -> Iterator[str]:
    """JSON arrays of the rows, of CHUNK bytes or one row."""
    if not len(rows):
        return
    ends = np.cumsum(pc.binary_length(rows).to_numpy(zero_copy_only=False))
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + CHUNK, side="right")), first + 1)
        yield f"[{','.join(rows.slice(first, last - first).to_pylist())}]"
        first = last


def _check_size(rows: str, most: int, table: str) -> None:
    """A statement that the server does not take ends the session, as if the server had been away: at each attempt."""
    if 8 * len(rows) < most:
        return
    size = len(rows.encode()) + sum(rows.count(sign) for sign in "\"'\\") + 10_000
    if size > most:
        raise Refused(
            f"a row of {size:,} bytes for {table} is larger than the server takes (max_allowed_packet = {most:,})",
            data="nothing of this unit was written",
            hint="raise max_allowed_packet at the server, or make the row smaller in the transform",
        )


def _delete(connection: Connection, work: Work) -> None:
    """Take out the rows of the windows that are written anew, in the same transaction."""
    start = mysql.quoted(connection, WINDOW_START)
    connection.exec_driver_sql(
        f"DELETE FROM {mysql.quoted(connection, work.table)} WHERE {start} >= %s AND {start} < %s", work.windows
    )
    passing("postgres-unit-after-delete")
