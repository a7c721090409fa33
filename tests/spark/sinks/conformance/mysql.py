"""MySQL (a MariaDB), read by its client."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar
from unittest import mock

import pyarrow as pa

from onlyonce.api.pipeline import MySQL, Sink
from tests.spark.sinks.conformance import values
from tests.spark.sinks.conformance.stage import LONGER, OF_DATABASES, TOO_LONG, Kept, Stage, Team, as_versions, held_now
from tests.support.mariadb import MariaDB

VARIABLE = "TEST_CONFORMANCE_MYSQL"
NOT_FINITE = [values.NAN, values.INF, -values.INF]


ID = "id varchar(99) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY"
TEAMS = {
    "its own values": Team(
        f"CREATE TABLE kept ({ID}, number int NOT NULL AUTO_INCREMENT, KEY (number), by_them varchar(9) NOT NULL " "DEFAULT 'them', n bigint NOT NULL CHECK (n > 0), twice bigint AS (n * 2) STORED) "
        "PARTITION BY KEY (id) PARTITIONS 2",
        {"by_them": "them", "twice": lambda row: 2 * row["n"], "number": int},
        has=("default", "identity", "generated", "NOT NULL", "CHECK", "partition"),
    ),
    "NOT NULL": Team(f"CREATE TABLE kept ({ID}, n bigint, theirs bigint NOT NULL)", refused="theirs"),
    "CHECK": Team(f"CREATE TABLE kept ({ID}, n bigint, CONSTRAINT few CHECK (n < 2))", refused="few"),
    "trigger": Team(
        f"CREATE TABLE kept ({ID}, n bigint); CREATE TRIGGER no BEFORE INSERT ON kept FOR EACH ROW SIGNAL SQLSTATE " "'45000' SET MESSAGE_TEXT = 'closed on Sundays'",
        refused="closed on Sundays",
    ),
    "foreign key": Team(f"CREATE TABLE known (n bigint PRIMARY KEY); CREATE TABLE kept ({ID}, n bigint, FOREIGN KEY (n) " "REFERENCES known (n))", refused="foreign key"),
    "narrower type": Team(f"CREATE TABLE kept ({ID}, n int unsigned)", refused=r"column n is bigint, but in kept it is int unsigned"),
    "shorter strings": Team(f"CREATE TABLE kept ({ID.replace('99', '3')}, n bigint)", refused=TOO_LONG, rows=LONGER, has=("narrower type",)),
    "encoding": Team(
        "CREATE TABLE kept (id varchar(99) CHARACTER SET latin1 NOT NULL PRIMARY KEY, n bigint)", refused="Incorrect string value|different texts are the same key"
    ),
    "partition": Team("CREATE TABLE kept (id varchar(99) CHARACTER SET utf8mb4, n bigint) PARTITION BY RANGE (n) (PARTITION " "one VALUES LESS THAN (2))", refused="no partition|no primary key"),
}  # fmt: skip


class MySQLAppend(Kept):
    """Appends."""

    point = "postgres-after-units"
    kills = OF_DATABASES
    ways = ("tasks",)
    slow_refusals = True
    server: ClassVar[MariaDB]
    keys: ClassVar[dict[str, Any]] = {}
    cannot: ClassVar[dict[str, list[Any]]] = {"double": NOT_FINITE, "float": NOT_FINITE}

    teams: ClassVar[dict[str, Team]] = TEAMS

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.name = self.server.new_database()
        self._given = mock.patch.dict(os.environ, {VARIABLE: self.server.url(self.name)})
        self._given.start()

    def close(self) -> None:
        self._given.stop()
        self.server.rows("", f"DROP DATABASE {self.name}")

    @property
    def sink(self) -> Sink:
        return MySQL(table="kept", connection=VARIABLE, **self.keys)

    def make(self, statements: str) -> None:
        for statement in statements.split("; "):
            self.server.rows(self.name, statement)

    def read(self) -> list[dict[str, Any]]:
        names = [row[0] for row in self.server.rows(self.name, "SHOW COLUMNS FROM kept")]
        # A float is told with six digits, and the client reads no year of three digits.
        told = {
            "float": "CAST(`float` AS DOUBLE)",
            **{name: f"CAST(`{name}` AS CHAR)" for name in ("date", "timestamp", "timestamp_ntz", "valid_from")},
        }
        found = self.server.rows(
            self.name, f"SELECT {', '.join(told.get(name, f'`{name}`') for name in names)} FROM kept"
        )
        return [
            {
                name: values.parsed(value) if pa.types.is_nested(values.KINDS.get(name, [pa.string()])[0]) else value
                for name, value in zip(names, row, strict=True)
            }
            for row in found
        ]

    def wanted(self, kind: pa.DataType, value: Any) -> Any:
        if value is None:
            return None
        if pa.types.is_boolean(kind):
            return int(value)
        if pa.types.is_date(kind):
            return value.isoformat()
        if pa.types.is_timestamp(kind):
            return value.replace(tzinfo=None).isoformat(" ", "microseconds")
        return values.as_json(kind, value) if pa.types.is_nested(kind) else values.without_signs_of_zero(value)

    def other_writer(self) -> Any:
        return lambda: self.server.rows(self.name, "INSERT INTO kept (id) VALUES ('theirs')")


class MySQLUpsert(MySQLAppend):
    """Upserts by the id."""

    keys: ClassVar[dict[str, Any]] = {"write": "upsert", "keys": "id"}


def versioned(team: Team) -> Team:
    """Return a team's table with the column that a history needs, in its primary key."""
    return replace(team, made=re.sub(
        r"(\bid varchar\(\d+\)[^,]*?)( PRIMARY KEY)?(?=,)",
        lambda found: f"{found[1]}, valid_from datetime(6) NOT NULL" + (", PRIMARY KEY (id, valid_from)" if found[2] else ""),
        team.made,
    ))  # fmt: skip


class MySQLHistory(MySQLAppend):
    """Keeps the versions of each id."""

    keys: ClassVar[dict[str, Any]] = {"write": "history", "keys": "id", "sequence_by": "valid_from"}
    teams: ClassVar[dict[str, Team]] = {name: versioned(team) for name, team in TEAMS.items()}

    def write(
        self, batch: int, rows: pa.Table, way: str = "tasks", point: str | None = None, kills: Sequence[str] = ()
    ) -> None:
        super().write(batch, as_versions(rows), way, point, kills)

    def read(self) -> list[dict[str, Any]]:
        return held_now(super().read())

    def other_writer(self) -> Any:
        return lambda: self.server.rows(self.name, "INSERT INTO kept (id, valid_from) VALUES ('theirs', '2026-03-02')")
