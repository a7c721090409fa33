"""Sinks as they are often written, each wrong in one way. The conformance suite must fail every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

import psycopg2

from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.core.errors import InvariantBroken
from onlyonce.database.connect import Database, transaction
from onlyonce.failpoints import passing
from onlyonce.testing.suite import OfLog, Row, Rows, multiset


@dataclass
class Right(OfLog):
    """A small table that does it right: claim, epoch, rows, commit; a unit that is there is compared.

    The suite passes it.

    The broken ones change one step each. A unit's content is kept as text, to be compared.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.log.rows(f"CREATE SCHEMA {self.output}")
        self.log.rows(f"CREATE TABLE {self.output}.rows (id text, key text, n bigint, text text)")
        self.log.rows(f"CREATE TABLE {self.output}.noted (unit text PRIMARY KEY, content text)")

    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """One unit for each partition."""
        for partition, parts in self.brought(rows, cut):
            mine = [row for part in parts for row in part]
            self.unit_of(f"{batch}/{partition}", mine)

    def unit_of(self, unit: str, rows: list[Row]) -> None:
        """One transaction."""
        passing("small-before-claim")
        with transaction(self.database) as connection:
            cursor = connection.connection.cursor()
            claimed = self.claim(cursor, unit, rows)
            Incarnations(connection).check_epoch(self.driver.incarnation, self.driver.epoch)
            passing("small-after-claim")
            if claimed:
                self.put(cursor, rows)
            passing("small-before-commit")
        passing("small-after-commit")

    @property
    def database(self) -> Database:
        """Under the driver's name."""
        return self.driver.session(self.log.database)

    def claim(self, cursor: object, unit: str, rows: list[Row]) -> bool:
        """The unit's row first; whether it is ours. Raises InvariantBroken for other rows under the same name."""
        content = repr(sorted(multiset(rows).items()))
        cursor.execute(f"INSERT INTO {self.output}.noted VALUES (%s, %s) ON CONFLICT DO NOTHING", (unit, content))  # type: ignore[attr-defined]
        if cursor.rowcount:  # type: ignore[attr-defined]
            return True
        cursor.execute(f"SELECT content FROM {self.output}.noted WHERE unit = %s", (unit,))  # type: ignore[attr-defined]
        if cursor.fetchone()[0] != content:  # type: ignore[attr-defined]
            raise InvariantBroken(f"unit {unit} has other rows")
        return False

    def put(self, cursor: object, rows: list[Row]) -> None:
        """The rows."""
        values = [(row["id"], row["key"], row["n"], row["text"]) for row in rows]
        cursor.executemany(f"INSERT INTO {self.output}.rows VALUES (%s, %s, %s, %s)", values)  # type: ignore[attr-defined]

    def seen(self) -> list[Row]:
        """The table."""
        found = self.log.rows(f"SELECT id, key, n, text FROM {self.output}.rows")
        return [dict(zip(("id", "key", "n", "text"), row, strict=True)) for row in found]

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """The table is away."""
        return {"missing": self._away}

    @contextmanager
    def _away(self) -> Iterator[None]:
        self.log.rows(f"ALTER TABLE {self.output}.rows RENAME TO gone")
        yield
        self.log.rows(f"ALTER TABLE {self.output}.gone RENAME TO rows")


class ChecksThenWrites(Right):
    """Looks whether the unit is there, writes the rows, notes the unit at the end: between look and note is a gap."""

    def unit_of(self, unit: str, rows: list[Row]) -> None:
        """The look is no lock."""
        there = self.log.rows(f"SELECT 1 FROM {self.output}.noted WHERE unit = %s", unit)
        passing("small-after-look")
        if there:
            return
        with transaction(self.database) as connection:
            cursor = connection.connection.cursor()
            self.put(cursor, rows)
            cursor.execute(f"INSERT INTO {self.output}.noted VALUES (%s, '') ON CONFLICT DO NOTHING", (unit,))


class ForgetsTheClaim(Right):
    """Writes what comes."""

    def claim(self, cursor: object, unit: str, rows: list[Row]) -> bool:
        """Always."""
        return True


class WritesBeforeItClaims(Right):
    """Rows in one transaction, the unit in the next: a kill between them writes the rows twice."""

    def unit_of(self, unit: str, rows: list[Row]) -> None:
        """Two effects."""
        if self.log.rows(f"SELECT 1 FROM {self.output}.noted WHERE unit = %s", unit):
            return
        with transaction(self.database) as connection:
            self.put(connection.connection.cursor(), rows)
        passing("small-between")
        with transaction(self.database) as connection:
            self.claim(connection.connection.cursor(), unit, rows)


class ClaimsBeforeItWrites(Right):
    """The unit in one transaction, rows in the next: a kill between them loses the rows."""

    def unit_of(self, unit: str, rows: list[Row]) -> None:
        """Two effects."""
        with transaction(self.database) as connection:
            claimed = self.claim(connection.connection.cursor(), unit, rows)
        passing("small-between")
        if claimed:
            with transaction(self.database) as connection:
                self.put(connection.connection.cursor(), rows)


class SwallowsErrors(Right):
    """Logs what goes wrong, and goes on."""

    def unit_of(self, unit: str, rows: list[Row]) -> None:
        """A shrug."""
        with suppress(Exception):
            super().unit_of(unit, rows)


class KnowsNoEpoch(Right):
    """An old driver may write as well as the new one."""

    def unit_of(self, unit: str, rows: list[Row]) -> None:
        """Without the check."""
        passing("small-before-claim")
        with transaction(self.log.database) as connection:
            cursor = connection.connection.cursor()
            if self.claim(cursor, unit, rows):
                self.put(cursor, rows)


class ComparesNothing(Right):
    """A unit that is there is skipped, whatever the replay means: e3 is nowhere, and nobody knows."""

    def claim(self, cursor: object, unit: str, rows: list[Row]) -> bool:
        """By the name alone."""
        cursor.execute(f"INSERT INTO {self.output}.noted VALUES (%s, '') ON CONFLICT DO NOTHING", (unit,))  # type: ignore[attr-defined]
        return bool(cursor.rowcount)  # type: ignore[attr-defined]


class NamesUnitsByTask(Right):
    """The unit is the task that Spark happened to run, as in (batch id, partition id): another cut moves rows between
    them."""

    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """As many units as there are pieces."""
        brought = [row for _, parts in self.brought(rows, cut) for part in parts for row in part]
        for task in range(cut):
            self.unit_of(f"{batch}/{task}", brought[task::cut])

    def claim(self, cursor: object, unit: str, rows: list[Row]) -> bool:
        """By the name alone."""
        return ComparesNothing.claim(self, cursor, unit, rows)  # type: ignore[arg-type]


class PastesValues(Right):
    """SQL by hand."""

    def put(self, cursor: object, rows: list[Row]) -> None:
        """A quote ends the text."""
        for row in rows:
            values = ", ".join("NULL" if row[n] is None else f"'{row[n]}'" for n in ("id", "key", "n", "text"))
            with suppress(psycopg2.Error):
                cursor.execute("SAVEPOINT row")  # type: ignore[attr-defined]
                cursor.execute(f"INSERT INTO {self.output}.rows VALUES ({values})".replace("%", "%%"), ())  # type: ignore[attr-defined]
                continue
            cursor.execute("ROLLBACK TO SAVEPOINT row")  # type: ignore[attr-defined]
