"""The tables of a Postgres sink, made by drivers that start at the same instant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection

from onlyonce.database.connect import Database, transaction
from onlyonce.declare.pipeline import Output, Postgres
from onlyonce.sinks.postgres.postgres_table import SinkTable
from tests.contract.conftest import Log
from tests.support.steps import Stage, Steps


def making(log: Log, table: str) -> Steps:
    """The transaction in which a driver makes its table; it ends at the second step."""
    output = Output(name="per_shop", transform="a:b", sink=Postgres(table=table))
    made = SinkTable(Database(log.url), output, Postgres(table=table), "")

    def make(connection: Connection) -> None:
        made.make(connection, made.name, {"shop": "text", "cents": "bigint"}, ())

    def steps(session: str) -> Iterator[None]:
        with transaction(Database(log.url, session)) as connection:
            make(connection)
            yield
        yield

    return steps


def test_pipelines_that_start_at_once_make_their_tables_in_one_schema(log: Log, monkeypatch: Any) -> None:
    """Of two that grant on one schema at once PostgreSQL fails one ("tuple concurrently updated"); so the second waits."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    log.rows("CREATE SCHEMA results")
    with Stage(log.url) as stage:
        played = stage.play("ABAB", A=making(log, "results.one"), B=making(log, "results.two"))

    assert [attempt.error for attempt in played.values()] == [None, None]
    tables = log.multiset("SELECT tablename FROM pg_tables WHERE schemaname = 'results'")
    assert tables == {("one",): 1, ("two",): 1}
