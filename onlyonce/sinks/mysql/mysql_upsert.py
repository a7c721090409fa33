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

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from onlyonce.database import mysql
from onlyonce.declare.outputs.newest import HISTORY
from onlyonce.declare.outputs.sinks import later_window_wins
from onlyonce.failpoints import passing
from onlyonce.model.errors import Refused
from onlyonce.model.sinks import names
from onlyonce.model.stored_names import VALID_FROM, WINDOW_END, WINDOW_START
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
            "deleted": name(names.MYSQL.deleted(work.table)),
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
