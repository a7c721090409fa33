"""A sink of one's own, as a user writes it: rows in an SQLite file, each unit's name in the transaction of its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import ClassVar

from onlyonce.core.delivery import Guarantee, Row


class Ledger:
    """Exactly once: the primary key of `units` is the claim, and it is the transaction's first statement."""

    guarantee: ClassVar[Guarantee] = "exactly_once"

    def __init__(self, where: str) -> None:
        self._file = sqlite3.connect(where, timeout=30, isolation_level=None)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("CREATE TABLE IF NOT EXISTS units (unit TEXT PRIMARY KEY)")
        self._file.execute("CREATE TABLE IF NOT EXISTS rows (unit TEXT, seq INTEGER, row TEXT)")

    def committed(self, unit: str) -> bool:
        """Whether its name is there."""
        return self._file.execute("SELECT 1 FROM units WHERE unit = ?", (unit,)).fetchone() is not None

    def write(self, unit: str, rows: Iterator[Row]) -> None:
        """Claim, rows, commit. IMMEDIATE: a twin waits here, and then finds the unit."""
        self._file.execute("BEGIN IMMEDIATE")
        try:
            if not self._file.execute("INSERT OR IGNORE INTO units VALUES (?)", (unit,)).rowcount:
                self._file.execute("ROLLBACK")
                return
            self._file.executemany("INSERT INTO rows VALUES (?, ?, ?)", ((unit, row.seq, row.payload) for row in rows))
            self._file.execute("COMMIT")
        except BaseException:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Diary(Ledger):
    """At least once: it knows no units, so a row may be there twice where an answer was lost."""

    guarantee = "at_least_once"

    def committed(self, unit: str) -> bool:
        """It can't tell."""
        return False

    def write(self, unit: str, rows: Iterator[Row]) -> None:
        """Row by row."""
        for row in rows:
            self._file.execute("INSERT INTO rows VALUES (?, ?, ?)", (unit, row.seq, row.payload))
