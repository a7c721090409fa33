"""PostgreSQL, read by psycopg2."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, ClassVar
from unittest import mock

import psycopg2
import psycopg2.extras
import pyarrow as pa

from onlyonce.api.pipeline import Postgres, Sink
from onlyonce.database.connect import forget_connections
from onlyonce.database.migrate import migrate
from tests.contract.conftest import Log
from tests.spark.sinks.conformance import values
from tests.spark.sinks.conformance.stage import LONGER, OF_DATABASES, TOO_LONG, Kept, Stage, Team, as_versions, held_now
from tests.support.shared_server import SharedServer

NUL = "nul \0."


COLUMNS = "id text NOT NULL, n bigint"
RAISES = (
    "CREATE FUNCTION theirs_table_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'closed on "
    "Sundays'; END $$; CREATE"
)
TEAMS = {
    "its own values": Team(
        "CREATE TABLE theirs_table (number bigint GENERATED ALWAYS AS IDENTITY, serial serial, by_them text NOT " "NULL DEFAULT 'them', id text NOT NULL UNIQUE, "
        "n bigint NOT NULL CHECK (n > 0), twice bigint NOT NULL GENERATED ALWAYS AS (n * 2) STORED) PARTITION BY " "HASH (id); "
        "CREATE TABLE theirs_table_0 PARTITION OF theirs_table FOR VALUES WITH (MODULUS 2, REMAINDER 0); "
        "CREATE TABLE theirs_table_1 PARTITION OF theirs_table FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        {"by_them": "them", "twice": lambda row: 2 * row["n"], "number": int, "serial": int},
        has=("default", "identity", "generated", "NOT NULL", "CHECK", "partition"),
    ),
    "NOT NULL": Team(f"CREATE TABLE theirs_table ({COLUMNS}, theirs text NOT NULL, UNIQUE (id))", refused="theirs"),
    "CHECK": Team(f"CREATE TABLE theirs_table ({COLUMNS} CONSTRAINT few CHECK (n < 2), UNIQUE (id))", refused="few"),
    "trigger": Team(
        f"CREATE TABLE theirs_table ({COLUMNS}, UNIQUE (id)); {RAISES} TRIGGER no BEFORE INSERT ON theirs_table " "FOR EACH ROW EXECUTE FUNCTION theirs_table_no()",
        refused="closed on Sundays",
    ),
    "deferred constraint": Team(
        f"CREATE TABLE theirs_table_known (n bigint PRIMARY KEY); CREATE TABLE theirs_table ({COLUMNS}, UNIQUE (id), "
        "CONSTRAINT known FOREIGN KEY (n) REFERENCES theirs_table_known DEFERRABLE INITIALLY DEFERRED)",
        refused="known", has=("foreign key", "deferred constraint"),
    ),
    "partition": Team(f"CREATE TABLE theirs_table ({COLUMNS}, UNIQUE (id, n)) PARTITION BY RANGE (n)", refused="no partition|no unique index"),
    "narrower type": Team("CREATE TABLE theirs_table (id text, n integer, UNIQUE NULLS NOT DISTINCT (id))", refused=r"column n is bigint, but in results\.\w+ it is integer"),
    "shorter strings": Team("CREATE TABLE theirs_table (id varchar(3) NOT NULL UNIQUE, n bigint)", refused=TOO_LONG, rows=LONGER, has=("narrower type",)),
    "encoding": Team(f"ENCODING LATIN1; CREATE TABLE theirs_table ({COLUMNS}, UNIQUE (id))", {}, rows=pa.table({"id": ["a", "é Ã"], "n": pa.array([1, 2], pa.int64())})),
    "a character that the encoding lacks": Team(
        f"ENCODING LATIN1; CREATE TABLE theirs_table ({COLUMNS}, UNIQUE (id))", refused='no equivalent in encoding "LATIN1"', has=("encoding",)
    ),
}  # fmt: skip
VARIABLE = "TEST_CONFORMANCE_POSTGRES"


class PostgresAppend(Kept):
    """Appends."""

    point = "postgres-after-units"
    kills = OF_DATABASES
    keys: ClassVar[dict[str, Any]] = {}
    cannot: ClassVar[dict[str, list[Any]]] = {"string": [NUL], "array": [[None, "", "𠮷", NUL]]}

    teams: ClassVar[dict[str, Team]] = TEAMS

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.log, self._given = stage.log, ExitStack()

    def close(self) -> None:
        self._given.close()

    @property
    def sink(self) -> Sink:
        return Postgres(
            table=f"results.{self.stage.name}", connection=None if self.log is self.stage.log else VARIABLE, **self.keys
        )

    def make(self, statements: str) -> None:
        if statements.startswith("ENCODING "):
            encoding, statements = statements.removeprefix("ENCODING ").split("; ", 1)
            self.log = self._database(encoding)
        self.log.rows(
            "CREATE SCHEMA IF NOT EXISTS results; " + statements.replace("theirs_table", f"results.{self.stage.name}")
        )

    def _database(self, encoding: str) -> Log:
        """Make another database for the sink, which is dropped with it."""
        server = self.stage.log.server
        assert isinstance(server, SharedServer)
        made = Log(server, server.new_encoded(encoding))
        migrate(made.url)
        self._given.callback(server.drop, made.name)
        self._given.callback(forget_connections)
        self._given.enter_context(mock.patch.dict(os.environ, {VARIABLE: made.url}))
        return made

    def read(self) -> list[dict[str, Any]]:
        session = psycopg2.connect(self.log.url.replace("+psycopg2", ""), options="-c timezone=UTC")
        with closing(session), session.cursor() as cursor:
            psycopg2.extras.register_default_jsonb(cursor, loads=values.parsed)
            cursor.execute(f"SELECT * FROM results.{self.stage.name}")
            names = [one.name for one in cursor.description or []]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def wanted(self, kind: pa.DataType, value: Any) -> Any:
        return values.without_signs_of_zero(values.as_json(kind, value)) if pa.types.is_nested(kind) else value

    def other_writer(self) -> Any:
        return lambda: self.stage.log.rows(f"INSERT INTO results.{self.stage.name} (id) VALUES ('theirs')")


class PostgresUpsert(PostgresAppend):
    """Upserts by the id."""

    keys: ClassVar[dict[str, Any]] = {"write": "upsert", "keys": "id"}


class PostgresIncrement(PostgresAppend):
    """Adds numbers to the row of all other columns, so each value is a key or is added."""

    keys: ClassVar[dict[str, Any]] = {"write": "increment"}
    no_columns = ("map",)
    slow_refusals = True

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._others: tuple[str, ...] = ("id",)

    @property
    def sink(self) -> Sink:
        return Postgres(
            table=f"results.{self.stage.name}",
            connection=None if self.log is self.stage.log else VARIABLE,
            write="increment",
            keys=self._others,
        )

    def write(
        self, batch: int, rows: pa.Table, way: str = "driver", point: str | None = None, kills: Sequence[str] = ()
    ) -> None:
        numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        self._others = tuple(column.name for column in rows.schema if not any(has(column.type) for has in numbers))
        super().write(batch, rows, way, point, kills)


def versioned(team: Team) -> Team:
    """Return a team's table with the column that a history needs, in its unique constraint over the id."""
    made = re.sub(
        r"\bid (text|varchar\(3\))( NOT NULL)?( UNIQUE)?",
        lambda found: (
            f"id {found[1]}{found[2] or ''}, valid_from timestamptz NOT NULL"
            + (", UNIQUE (id, valid_from)" if found[3] else "")
        ),
        team.made,
    )
    return replace(team, made=re.sub(r"(UNIQUE|DISTINCT) \(id\)", r"\1 (id, valid_from)", made))


class PostgresHistory(PostgresAppend):
    """Keeps the versions of each id."""

    keys: ClassVar[dict[str, Any]] = {"write": "history", "keys": "id", "sequence_by": "valid_from"}
    slow_refusals = True
    teams: ClassVar[dict[str, Team]] = {name: versioned(team) for name, team in TEAMS.items()}

    def write(
        self, batch: int, rows: pa.Table, way: str = "driver", point: str | None = None, kills: Sequence[str] = ()
    ) -> None:
        super().write(batch, as_versions(rows), way, point, kills)

    def read(self) -> list[dict[str, Any]]:
        return held_now(super().read())
