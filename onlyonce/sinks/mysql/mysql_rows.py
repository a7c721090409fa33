"""Write the rows of a unit into a MySQL table, in the transaction of the unit's claim: appends, upserts, histories.

The rows of an upsert arrive in a temporary table of the session. They then replace or delete the table's rows, or are
dropped if they are older. `sequence_by` and `delete_when` work as in PostgreSQL (`postgres_rows`): a key has a row in
the table, or its key and position in `<table>_deleted`, never both. Making a TEMPORARY table commits nothing, but an
ALTER or a CREATE INDEX on it would. Each statement names the temporary table once: MySQL can't open it twice in a
statement.

A key is in one partition of a batch, and the batches of an output come one after the other. So no two units write one
key at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from onlyonce.api.sinks import HISTORY, later_window_wins
from onlyonce.core import ownership
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.stored_names import IS_CURRENT, VALID_FROM, VALID_TO, WINDOW_END, WINDOW_START
from onlyonce.database import mysql
from onlyonce.failpoints import passing
from onlyonce.sinks.base.pinned import RecordBatches
from onlyonce.sinks.postgres.postgres_unit import Work

TABLE = "oo_arriving"
LATEST = (WINDOW_END, WINDOW_START)
STAGE = (
    "CREATE TEMPORARY TABLE {arriving} ({mark}PRIMARY KEY ({identity})) ENGINE = InnoDB SELECT {columns} "
    "FROM {target} LIMIT 0"
)
OUTDATED = "DELETE {arriving} FROM {arriving} JOIN {there} AS there ON {same} WHERE ({newest_there}) > ({newest})"
REMEMBER = (
    "INSERT INTO {deleted} ({kept}) SELECT {kept} FROM {arriving} WHERE {delete_when} ON DUPLICATE KEY UPDATE {moved}"
)
DELETE = "DELETE there FROM {target} AS there JOIN {arriving} ON {same} WHERE {arriving}.{delete_when}"
FORGET = "DELETE there FROM {deleted} AS there JOIN {arriving} ON {same} WHERE NOT {arriving}.{delete_when}"
MERGE = "INSERT INTO {target} ({columns}) SELECT {columns} FROM {arriving} {left} ON DUPLICATE KEY UPDATE {values}"


@dataclass(frozen=True)
class Arriving:
    """The arriving rows of a unit.

    `columns`: the stored columns; `texts`: the string columns among them, which are ordered by their bytes.
    """

    connection: Connection
    work: Work
    columns: tuple[str, ...]
    texts: tuple[str, ...]

    def stage(self) -> None:
        """Make the temporary table for the rows."""
        self.drop()
        self.run(
            STAGE,
            mark=f"{self._name(self.work.delete_when)} tinyint NOT NULL DEFAULT 0, " if self.work.delete_when else "",
        )

    def drop(self) -> None:
        """Drop the temporary table: the session may write another unit."""
        self.run("DROP TEMPORARY TABLE IF EXISTS {arriving}")

    def refuse_nulls(self) -> None:
        """Raise Refused for a row without a position in the order.

        The keys and the column `delete_when` are never null here.
        """
        needed = (*self.work.sequence_by, *([VALID_FROM] if self.work.write == HISTORY else []))
        for column in needed:
            if self.run("SELECT 1 FROM {arriving} WHERE {column} IS NULL LIMIT 1", column=self._name(column)):
                raise Refused(
                    f"unit {self.work.unit}: {self.work.table} can't hold its rows: column '{column}' is null, by "
                    "which rows are put in order",
                    data="nothing of this unit was written",
                    hint="give it a value in each row of the transform's result",
                )

    def delete(self) -> None:
        """Drop outdated rows, then delete what the other rows say. The rows to write stay."""
        for there in ("target", "deleted"):
            self.run(
                OUTDATED, there=self.names()[there], newest_there=self.ordered("there"), newest=self.ordered(TABLE)
            )
        for statement in (REMEMBER, DELETE, FORGET):
            self.run(statement)
        passing("postgres-unit-after-delete")

    def merge(self) -> None:
        """Write the rows. A row replaces the row with its keys unless that row is newer."""
        self.run(MERGE, values=self._values())

    def run(self, statement: str, **more: str) -> list[object]:
        """Run a statement over the tables and columns of this unit. Return its rows, if it has any."""
        found = self.connection.exec_driver_sql(statement.format(**self.names() | more))
        return list(found) if found.returns_rows else []

    def names(self) -> dict[str, str]:
        """Return the names in the statements."""
        work, name = self.work, self._name
        identity = (*work.keys, *(work.sequence_by if work.write == HISTORY else ()))
        kept = dict.fromkeys([*work.keys, *work.sequence_by, *([VALID_FROM] if work.write == HISTORY else [])])
        return {
            "target": name(work.table),
            "deleted": name(ownership.MYSQL.deleted(work.table)),
            "arriving": name(TABLE),
            "columns": self._listed(self.columns),
            "keys": self._listed(work.keys),
            "identity": self._listed(identity),
            "kept": self._listed(kept),
            "delete_when": name(work.delete_when or ""),
            "same": " AND ".join(f"there.{name(key)} = {name(TABLE)}.{name(key)}" for key in work.keys),
            "moved": ", ".join(f"{name(c)} = VALUES({name(c)})" for c in kept if c not in identity)
            or f"{name(identity[0])} = VALUES({name(identity[0])})",
            "left": f"WHERE NOT {name(TABLE)}.{name(work.delete_when)}" if work.delete_when else "",
        }

    def ordered(self, side: str) -> str:
        """Return the ordering columns of one side."""
        return ", ".join(
            self._ordered(f"{self._name(side)}.{self._name(column)}", column) for column in self.work.sequence_by
        )

    def same_version(self) -> str:
        """Return the condition that a version of the target is in `found`."""
        return " AND ".join(
            f"target.{self._name(c)} = found.{self._name(c)}" for c in (*self.work.keys, *self.work.sequence_by)
        )

    def _values(self) -> str:
        work, target = self.work, self._name(self.work.table)
        latest = (
            LATEST
            if later_window_wins(work.write, work.keys, self.columns)
            else work.sequence_by
            if work.write == "upsert"
            else ()
        )
        # Values are set one after the other, and later ones see earlier ones. So the columns of the condition come
        # last, the first of them at the very end. Then the condition is the same for all of a row's columns.
        others = [c for c in self.columns if c not in work.keys and c not in latest]
        order = [*others, *(c for c in reversed(latest) if c not in work.keys)] or [
            work.keys[0]
        ]  # if there are only keys, no value changes
        new = {column: f"VALUES({self._name(column)})" for column in order}
        if latest:
            there = ", ".join(self._ordered(f"{target}.{self._name(c)}", c) for c in latest)
            arriving = ", ".join(self._ordered(f"VALUES({self._name(c)})", c) for c in latest)
            # Null if the columns before a null are equal: the stored row is from before that column was there.
            newer = f"(({there}) <= ({arriving})) IS NOT FALSE"
            new = {column: f"IF({newer}, {value}, {target}.{self._name(column)})" for column, value in new.items()}
        return ", ".join(f"{target}.{self._name(column)} = {new[column]}" for column in order)

    def _ordered(self, value: str, column: str) -> str:
        # Strings are ordered by their bytes, as in Spark within the batch, and not by the column's collation.
        return f"CAST(CONVERT({value} USING utf8mb4) AS BINARY)" if column in self.texts else value

    def _listed(self, columns: Iterable[str]) -> str:
        return ", ".join(map(self._name, columns))

    def _name(self, name: str) -> str:
        return mysql.quoted(self.connection, name)


# Histories (SCD type 2) in MySQL, as in PostgreSQL: each change is a version of its key's row, with the time from which
# and to which it held.
#
# A version ends where the next change of its key begins, by the order of `sequence_by`. A delete is not a version: it
# ends the version before it, and is kept in `<table>_deleted`. After a unit's rows are written, the changes of its keys
# are gathered from both tables, and the ends of their versions are computed again. All of these statements are in the
# transaction of the unit's claim. Rows that were written before are overwritten with themselves. Times need not grow:
# if the source's clock went back, a version ends before it begins.


ENDS = {VALID_TO: "datetime(6)", IS_CURRENT: "tinyint"}
"""The columns that the platform computes, and their types."""
OLD_CHANGES = "DROP TEMPORARY TABLE IF EXISTS oo_changes"
CHANGES = (
    "CREATE TEMPORARY TABLE oo_changes ENGINE = InnoDB SELECT {kept}, false AS oo_gone FROM {target} "
    "WHERE ({keys}) IN (SELECT {keys} FROM {arriving})"
)
ENDED = (
    "INSERT INTO oo_changes ({kept}, oo_gone) SELECT {kept}, true FROM {deleted} WHERE ({keys}) IN (SELECT {keys} FROM "
    "{arriving})"
)
FIND_ENDS = """
UPDATE {target} AS target JOIN (
    SELECT {identity}, oo_gone, LEAD(valid_from) OVER later AS valid_to, LEAD(1) OVER later IS NULL AS is_current
    FROM oo_changes WINDOW later AS (PARTITION BY {keys} ORDER BY {ordered}, oo_gone)
) AS found ON {same_version} AND NOT found.oo_gone
SET target.valid_to = found.valid_to, target.is_current = found.is_current
WHERE NOT (target.valid_to <=> found.valid_to AND target.is_current <=> found.is_current)
"""


def write_history(arriving: Arriving) -> None:
    """Write the versions of a unit, and compute the ends of its keys' versions."""
    arriving.merge()
    if arriving.work.delete_when:
        arriving.run(REMEMBER)
    passing("postgres-unit-after-delete")
    arriving.run(OLD_CHANGES)
    arriving.run(CHANGES)
    if arriving.work.delete_when:
        arriving.run(ENDED)
    arriving.run(FIND_ENDS, ordered=arriving.ordered("oo_changes"), same_version=arriving.same_version())
    arriving.run(OLD_CHANGES)


# Load the rows of a unit, many rows in one statement, by JSON_TABLE.
#
# LOAD DATA LOCAL would be as fast, but it turns values that do not fit into warnings, and most servers refuse it. A
# driver's `executemany` loops over the values in Python. So Spark makes each row a JSON string, and a chunk of rows is
# one parameter. An error names the wrong row of a chunk only if the server does.


ROW = "oo_row"
"""The column with a row as JSON."""
CHUNK = 2 << 20
"""Bytes of rows in one statement: servers take 16 MB and more, and larger statements are not faster."""
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
"""Error codes besides DataError and IntegrityError that are caused by the rows.

They are: an invalid time, a column without a value, a constraint, a trigger's SIGNAL, a generated column or its
expression, no partition for a row.
"""


@dataclass(frozen=True)
class Loaded:
    """The columns of the rows, in their order.

    binary   whether a column is sent in hexadecimal
    texts    the names of the string columns
    """

    columns: tuple[str, ...]
    binary: tuple[bool, ...]
    texts: tuple[str, ...] = ()


def putting(loaded: Loaded) -> Callable[[Connection, Work, RecordBatches], None]:
    """Return the function with which `postgres_unit.write_unit` writes the rows of a unit.

    It raises Refused for rows that the table can't hold, and InvariantBroken for two rows of the same keys.
    """

    def put(connection: Connection, work: Work, batches: RecordBatches) -> None:
        try:
            _write(connection, work, loaded, batches)
        except DBAPIError as error:
            if not isinstance(error, DataError | IntegrityError) and mysql.code_of(error) not in ROWS_AT_FAULT:
                raise
            raise Refused(
                f"unit {work.unit}: {work.table} can't hold its rows: {mysql.told(error)}",
                data="nothing of this unit was written",
                hint="make the transform's rows fit the table (a null key, a number out of range, NaN, a text or "
                "key too long), or change the table; the committed units of this batch wait for the rest",
            ) from error

    return put


def _write(connection: Connection, work: Work, loaded: Loaded, batches: RecordBatches) -> None:
    if work.write == "replace":
        _delete(connection, work)
    if work.write in ("append", "replace"):
        _load(connection, work.table, loaded, batches)
        passing("postgres-unit-after-rows")
        return
    stored = tuple(column for column in loaded.columns if column != work.delete_when)
    arriving = Arriving(connection, work, stored, loaded.texts)
    arriving.stage()
    try:
        _load(connection, TABLE, loaded, batches)
    except IntegrityError as error:
        if mysql.code_of(error) != TWICE:
            raise
        place = (*work.keys, *(work.sequence_by if work.write == HISTORY else ()))
        raise InvariantBroken(
            f"unit {work.unit}: two rows have the same keys ({', '.join(place)})",
            data="nothing of this unit was written",
            hint="the keys must identify a row of the transform's result: group by all of them",
        ) from error
    arriving.refuse_nulls()
    if work.write == HISTORY:
        write_history(arriving)
    else:
        if work.delete_when:
            arriving.delete()
        arriving.merge()
    arriving.drop()
    passing("postgres-unit-after-rows")


def _load(connection: Connection, table: str, loaded: Loaded, batches: RecordBatches) -> None:
    listed = ", ".join(mysql.quoted(connection, column) for column in loaded.columns)
    taken = ", ".join(f"UNHEX(c{n})" if hexed else f"c{n}" for n, hexed in enumerate(loaded.binary))
    # With an explicit character set: characters that the database's own set lacks would silently become '?'.
    columns = ", ".join(f"c{n} LONGTEXT CHARACTER SET utf8mb4 PATH '$[{n}]'" for n in range(len(loaded.columns)))
    statement = (
        f"INSERT INTO {mysql.quoted(connection, table)} ({listed}) SELECT {taken} "
        f"FROM JSON_TABLE(%s, '$[*]' COLUMNS ({columns})) AS oo_rows"
    )
    most = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
    for batch in batches:
        for rows in chunks(batch.column(ROW), min(CHUNK, most // 4)):
            _check_size(rows, most, table)
            connection.exec_driver_sql(statement, (rows,))


def chunks(rows: pa.Array, size: int = CHUNK) -> Iterator[str]:
    """Yield JSON arrays of the rows, of at most `size` bytes or one row."""
    if not len(rows):
        return
    ends = np.cumsum(pc.binary_length(rows).to_numpy(zero_copy_only=False))
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + size, side="right")), first + 1)
        yield f"[{','.join(rows.slice(first, last - first).to_pylist())}]"
        first = last


def _check_size(rows: str, most: int, table: str) -> None:
    """Raise Refused for a statement that is too large for the server.

    The server would end the session at each attempt, as if it had been unreachable.
    """
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
    """Delete the rows of the windows that are written again, in the same transaction."""
    start = mysql.quoted(connection, WINDOW_START)
    connection.exec_driver_sql(
        f"DELETE FROM {mysql.quoted(connection, work.table)} WHERE {start} >= %s AND {start} < %s", work.windows
    )
    passing("postgres-unit-after-delete")
