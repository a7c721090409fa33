"""PostgreSQL, read by psycopg2."""

from __future__ import annotations

from contextlib import closing
from typing import Any, ClassVar

import psycopg2
import psycopg2.extras
import pyarrow as pa

from onlyonce.declare.pipeline import Postgres, Sink
from tests.spark.sinks.conformance import values
from tests.spark.sinks.conformance.stage import Kept, Team

NUL = "nul \0."


COLUMNS = "id text NOT NULL, n bigint"
RAISES = "CREATE FUNCTION theirs_table_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'closed on Sundays'; END $$; CREATE"
TEAMS = {
    "its own values": Team(
        "CREATE TABLE theirs_table (number bigint GENERATED ALWAYS AS IDENTITY, serial serial, by_them text NOT NULL DEFAULT 'them', id text NOT NULL UNIQUE, "
        "n bigint NOT NULL CHECK (n > 0), twice bigint NOT NULL GENERATED ALWAYS AS (n * 2) STORED) PARTITION BY HASH (id); "
        "CREATE TABLE theirs_table_0 PARTITION OF theirs_table FOR VALUES WITH (MODULUS 2, REMAINDER 0); "
        "CREATE TABLE theirs_table_1 PARTITION OF theirs_table FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        {"by_them": "them", "twice": lambda row: 2 * row["n"], "number": int, "serial": int},
    ),
    "NOT NULL": Team(f"CREATE TABLE theirs_table ({COLUMNS}, theirs text NOT NULL, UNIQUE (id))", refused="theirs"),
    "CHECK": Team(f"CREATE TABLE theirs_table ({COLUMNS} CONSTRAINT few CHECK (n < 2), UNIQUE (id))", refused="few"),
    "trigger": Team(
        f"CREATE TABLE theirs_table ({COLUMNS}, UNIQUE (id)); {RAISES} TRIGGER no BEFORE INSERT ON theirs_table FOR EACH ROW EXECUTE FUNCTION theirs_table_no()",
        refused="closed on Sundays",
    ),
    "deferred constraint": Team(
        f"CREATE TABLE theirs_table_known (n bigint PRIMARY KEY); CREATE TABLE theirs_table ({COLUMNS}, UNIQUE (id), "
        "CONSTRAINT known FOREIGN KEY (n) REFERENCES theirs_table_known DEFERRABLE INITIALLY DEFERRED)",
        refused="known",
    ),
    "partition": Team(f"CREATE TABLE theirs_table ({COLUMNS}, UNIQUE (id, n)) PARTITION BY RANGE (n)", refused="no partition|no unique index"),
}  # fmt: skip


class PostgresAppend(Kept):
    """Appends."""

    point = "postgres-after-units"
    keys: ClassVar[dict[str, Any]] = {}
    cannot: ClassVar[dict[str, list[Any]]] = {"string": [NUL], "array": [[None, "", "𠮷", NUL]]}

    teams = TEAMS

    @property
    def sink(self) -> Sink:
        return Postgres(table=f"results.{self.stage.name}", **self.keys)

    def make(self, statements: str) -> None:
        self.stage.log.rows("CREATE SCHEMA IF NOT EXISTS results; " + statements.replace("theirs_table", f"results.{self.stage.name}"))

    def read(self) -> list[dict[str, Any]]:
        session = psycopg2.connect(self.stage.log.url.replace("+psycopg2", ""), options="-c timezone=UTC")
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

    teams: ClassVar[dict[str, Team]] = {"its own values": TEAMS["its own values"]}
    keys: ClassVar[dict[str, Any]] = {"write": "upsert", "keys": "id"}
