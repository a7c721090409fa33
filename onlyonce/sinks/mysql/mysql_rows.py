"""Upserts of a MySQL table: the rows of a unit arrive in a table of their session alone, then they replace, delete or
stay behind what is there.

`newest_by` and `deletes` are as in PostgreSQL (`postgres_newest`): a key has a row in the table, or its key and
position in `<table>_deleted`, never both. All is in the transaction of the unit's claim. A table that is made as
TEMPORARY commits nothing; an ALTER or a CREATE INDEX of one would.

A key is in one partition of a batch, and the batches of an output come one after the other, so no two units write one
key at once.

Who calls it: `mysql_rows`. Errors: those of the server; Refused for a null among the columns that put rows in order.
Each statement names the table of the arriving rows once: MySQL can't open a temporary table twice in one.
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
from onlyonce.sinks.base.pinned import Batches
from onlyonce.sinks.postgres.postgres_unit import Work

TABLE = "oo_arriving"
LATEST = (WINDOW_END, WINDOW_START)
STAGE = (
    "CREATE TEMPORARY TABLE {arriving} ({mark}PRIMARY KEY ({identity})) ENGINE = InnoDB SELECT {columns} "
    "FROM {target} LIMIT 0"
)
OUTDATED = "DELETE {arriving} FROM {arriving} JOIN {there} AS there ON {same} WHERE ({newest_there}) > ({newest})"
REMEMBER = (
    "INSERT INTO {deleted} ({kept}) SELECT {kept} FROM {arriving} WHERE {deletes} ON DUPLICATE KEY UPDATE {moved}"
)
DELETE = "DELETE there FROM {target} AS there JOIN {arriving} ON {same} WHERE {arriving}.{deletes}"
FORGET = "DELETE there FROM {deleted} AS there JOIN {arriving} ON {same} WHERE NOT {arriving}.{deletes}"
MERGE = "INSERT INTO {target} ({columns}) SELECT {columns} FROM {arriving} {left} ON DUPLICATE KEY UPDATE {values}"


@dataclass(frozen=True)
class Arriving:
    """The rows of a unit on their way.

    `columns`: those that are stored; `texts`: those of them that are put in order by their bytes.
    """

    connection: Connection
    work: Work
    columns: tuple[str, ...]
    texts: tuple[str, ...]

    def stage(self) -> None:
        """Make the table in which they arrive."""
        self.drop()
        self.run(
            STAGE, mark=f"{self._name(self.work.deletes)} tinyint NOT NULL DEFAULT 0, " if self.work.deletes else ""
        )

    def drop(self) -> None:
        """Take it away: the session may write another unit."""
        self.run("DROP TEMPORARY TABLE IF EXISTS {arriving}")

    def refuse_nulls(self) -> None:
        """Raise Refused for a row without a place in the order.

        The keys, and what says of a delete, are never null by themselves.
        """
        needed = (*self.work.newest_by, *([VALID_FROM] if self.work.write == HISTORY else []))
        for column in needed:
            if self.run(f"SELECT 1 FROM {{arriving}} WHERE {self._name(column)} IS NULL LIMIT 1"):
                raise Refused(
                    f"unit {self.work.unit}: {self.work.table} can't hold its rows: column '{column}' is null, by "
                    "which rows are put in order",
                    data="nothing of this unit was written",
                    hint="give it a value in each row of the transform's result",
                )

    def delete(self) -> None:
        """Drop the rows that are outdated, then delete what the others say; leaves those that are to be written."""
        for there in ("target", "deleted"):
            self.run(
                OUTDATED, there=self.names()[there], newest_there=self.ordered("there"), newest=self.ordered(TABLE)
            )
        for statement in (REMEMBER, DELETE, FORGET):
            self.run(statement)
        passing("postgres-unit-after-delete")

    def merge(self) -> None:
        """Write the rows, each over the one of its keys unless that one is newer."""
        self.run(MERGE, values=self._values())

    def run(self, statement: str, **more: str) -> list[object]:
        """Run a statement over the tables and columns of this unit; gives its rows, if it has any."""
        found = self.connection.exec_driver_sql(statement.format(**self.names() | more))
        return list(found) if found.returns_rows else []

    def names(self) -> dict[str, str]:
        """What the statements name."""
        work, name = self.work, self._name
        identity = (*work.keys, *(work.newest_by if work.write == HISTORY else ()))
        kept = dict.fromkeys([*work.keys, *work.newest_by, *([VALID_FROM] if work.write == HISTORY else [])])
        return {
            "target": name(work.table),
            "deleted": name(ownership.MYSQL.deleted(work.table)),
            "arriving": name(TABLE),
            "columns": self._listed(self.columns),
            "keys": self._listed(work.keys),
            "identity": self._listed(identity),
            "kept": self._listed(kept),
            "deletes": name(work.deletes or ""),
            "same": " AND ".join(f"there.{name(key)} = {name(TABLE)}.{name(key)}" for key in work.keys),
            "moved": ", ".join(f"{name(c)} = VALUES({name(c)})" for c in kept if c not in identity)
            or f"{name(identity[0])} = VALUES({name(identity[0])})",
            "left": f"WHERE NOT {name(TABLE)}.{name(work.deletes)}" if work.deletes else "",
        }

    def ordered(self, side: str) -> str:
        """The columns of one side by which rows are put in order."""
        return ", ".join(
            self._ordered(f"{self._name(side)}.{self._name(column)}", column) for column in self.work.newest_by
        )

    def same_version(self) -> str:
        """That a version of the target is one of those that were found."""
        return " AND ".join(
            f"target.{self._name(c)} = found.{self._name(c)}" for c in (*self.work.keys, *self.work.newest_by)
        )

    def _values(self) -> str:
        work, target = self.work, self._name(self.work.table)
        latest = (
            LATEST
            if later_window_wins(work.write, work.keys, self.columns)
            else work.newest_by
            if work.write == "upsert"
            else ()
        )
        # Values are set one after the other, and each is seen by those after it. What the condition compares comes
        # last, the first of it at the very last: so the condition holds for all of a row's columns or for none.
        others = [c for c in self.columns if c not in work.keys and c not in latest]
        order = [*others, *(c for c in reversed(latest) if c not in work.keys)] or [
            work.keys[0]
        ]  # keys alone: there is nothing to replace
        new = {column: f"VALUES({self._name(column)})" for column in order}
        if latest:
            there = ", ".join(self._ordered(f"{target}.{self._name(c)}", c) for c in latest)
            arriving = ", ".join(self._ordered(f"VALUES({self._name(c)})", c) for c in latest)
            newer = f"{target}.{self._name(latest[0])} IS NULL OR ({there}) <= ({arriving})"
            new = {column: f"IF({newer}, {value}, {target}.{self._name(column)})" for column, value in new.items()}
        return ", ".join(f"{target}.{self._name(column)} = {new[column]}" for column in order)

    def _ordered(self, value: str, column: str) -> str:
        # Texts by their bytes, as Spark has put them in order within the batch, and not by the collation of the column.
        return f"CAST(CONVERT({value} USING utf8mb4) AS BINARY)" if column in self.texts else value

    def _listed(self, columns: Iterable[str]) -> str:
        return ", ".join(map(self._name, columns))

    def _name(self, name: str) -> str:
        return mysql.quoted(self.connection, name)


# Histories (SCD type 2) in MySQL, as `postgres_history` has them: each change is a version of its key's row, with the
# time from which and to which it held.
#
# A version ends where the next change of its key begins, by the order of `newest_by`. A delete is no version: it ends
# the one before it, and is kept in `<table>_deleted`. After a unit's rows are in, the changes of its keys are gathered
# from both tables, and the ends of their versions found anew. All is one transaction, that of the unit's claim. What
# was written before is written over itself.
#
# Who calls it: `mysql_rows`. Errors: those of the server. Not promised: that times grow. Where the source's clock went
# back, a version ends before it begins.


ENDS = {VALID_TO: "datetime(6)", IS_CURRENT: "tinyint"}
"""The columns that the platform computes, and their types."""
OLD_CHANGES = "DROP TEMPORARY TABLE IF EXISTS oo_changes"
CHANGES = (
    "CREATE TEMPORARY TABLE oo_changes ENGINE = InnoDB SELECT {kept} FROM {target} WHERE ({keys}) IN (SELECT "
    "{keys} FROM {arriving})"
)
ENDED = "INSERT INTO oo_changes ({kept}) SELECT {kept} FROM {deleted} WHERE ({keys}) IN (SELECT {keys} FROM {arriving})"
FIND_ENDS = """
UPDATE {target} AS target JOIN (
    SELECT {identity}, LEAD(valid_from) OVER later AS valid_to, LEAD(1) OVER later IS NULL AS is_current
    FROM oo_changes WINDOW later AS (PARTITION BY {keys} ORDER BY {ordered})
) AS found ON {same_version}
SET target.valid_to = found.valid_to, target.is_current = found.is_current
WHERE NOT (target.valid_to <=> found.valid_to AND target.is_current <=> found.is_current)
"""


def write_history(arriving: Arriving) -> None:
    """Put the rows of a unit in their places."""
    arriving.merge()
    if arriving.work.deletes:
        arriving.run(REMEMBER)
    passing("postgres-unit-after-delete")
    arriving.run(OLD_CHANGES)
    arriving.run(CHANGES)
    if arriving.work.deletes:
        arriving.run(ENDED)
    arriving.run(FIND_ENDS, ordered=arriving.ordered("oo_changes"), same_version=arriving.same_version())
    arriving.run(OLD_CHANGES)


# Loads the rows of a unit into a MySQL table, in the transaction of its claim: many rows a statement, by JSON_TABLE.
#
# LOAD DATA LOCAL would be as fast, but it turns what does not fit into warnings, and most servers refuse it. A driver's
# `executemany` loops over the values in Python. So Spark makes each row a JSON text, and a chunk of them is one
# parameter.
#
# Who calls it: the unit's task (`postgres_unit`, `postgres_plain`). Errors: Refused for rows that the table can't hold,
# InvariantBroken for two rows of the same keys. Not promised: which row of a chunk was the wrong one, beyond what the
# server says.


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
        write_history(arriving)
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
