"""Locks by name in a database of the platform, and statements over many rows.

Only a role that may write the log can take a lock: each is a row of `onlyonce_private.locks`.

A short lock is the row's own lock, for one transaction. A lock for hours (a driver, a deliverer) is held by a session:
the row names the session. PostgreSQL lists a session until its process has ended, however it ended.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from onlyonce.core.errors import DatabaseAway
from onlyonce.database.connect import Session, ask, do


def wait(connection: Connection, name: str) -> None:
    """Take a lock until the transaction ends."""
    do(connection, "locks", "add", name=name)
    while not ask(connection, "locks", "wait", name=name):  # a drop has removed the row meanwhile
        do(connection, "locks", "add", name=name)


def if_free(connection: Connection, name: str) -> bool:
    """Take a lock until the transaction ends, unless another transaction has it. Return whether it was taken."""
    do(connection, "locks", "add", name=name)
    return bool(ask(connection, "locks", "if_free", name=name))


def hold(connection: Connection, name: str) -> bool:
    """Take a lock until this session ends, unless another session has it.

    Return whether this session has it. Call it in autocommit, so that other sessions see the row at once.
    """
    holders = ask(connection, "locks", "holder", name=name)  # read first: a standby asks often, and must not write
    if holders and holders[0].lives:
        return bool(holders[0].ours)
    return bool(ask(connection, "locks", "hold", name=name))


def release(connection: Connection, name: str) -> None:
    """Give up a lock of this session. Without it the lock is free once the server has ended the session, a moment after
    the connection is closed.
    """
    do(connection, "locks", "release", name=name)


def give_up(session: Session, name: str) -> None:
    """Give up a lock at a normal end, and end the session: the next one need not wait until the server notices."""
    with suppress(DatabaseAway):  # a session that is gone has no lock
        session.ask(lambda connection: release(connection, name))
    session.close()


def forget(connection: Connection, instances: list[str]) -> None:
    """Remove the locks of instances that are dropped."""
    do(connection, "locks", "forget", instances=instances)


# Runs a named statement over many rows at once: each column of an Arrow table is one parameter, an array.
#
# The statement reads the columns by `unnest(CAST(:name AS type[]), …)`; values common to all rows are plain parameters.
# No Python code runs per row, and the database makes no table. A batch of one window takes the same statement as a
# million windows that close together.
#
# Source: PostgreSQL's documentation, "Array Input and Output Syntax". Columns may be strings, integers, booleans and
# times, which are kept to the microsecond.


ROWS_AT_ONCE = 50_000
"""How many rows one statement gets: some megabytes."""
INSTANT = pa.timestamp("us", tz="UTC")
"""The type of a column of times."""


def do_rows(connection: Connection, file: str, query: str, rows: pa.Table, /, **same: Any) -> None:
    """Run a named statement over rows; `same` holds the values common to all. Without rows nothing is run.

    Rows are sorted by their first column, the start of a window. Rows that are neighbours in an index take half the
    time of unordered rows.
    """
    ordered = rows.sort_by(rows.column_names[0]) if rows.num_rows else rows
    for first in range(0, ordered.num_rows, ROWS_AT_ONCE):
        page = ordered.slice(first, ROWS_AT_ONCE)
        do(connection, file, query, **same, **{name: array(page.column(name)) for name in page.column_names})


def array(column: pa.ChunkedArray) -> str:
    """Return a column as PostgreSQL reads an array: `{"1",NULL,"say \\"so\\""}`.

    Values are quoted, so that null, 'NULL' and '' stay different.
    """
    texts = column.combine_chunks().cast(pa.string())
    for special in ("\\", '"'):
        texts = pc.replace_substring(texts, special, f"\\{special}")
    values = pc.fill_null(pc.binary_join_element_wise('"', texts, '"', ""), "NULL")
    [joined] = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), ",").to_pylist()
    return f"{{{joined}}}"
