"""The tables of a Postgres sink, made by drivers that start at the same instant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from pyspark.sql.types import StructType
from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ProgrammingError

from onlyonce.api.pipeline import Output, Postgres
from onlyonce.commitlog.dropping import Drops
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import Place
from onlyonce.core.windows import Fixed
from onlyonce.database.connect import Database, forget_connections, transaction
from onlyonce.database.migrate import migrate_authority
from onlyonce.sinks.postgres.postgres_table import SinkTable
from tests.contract.conftest import Log
from tests.support.shared_server import SharedServer
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
    """Of two that grant on one schema at once PostgreSQL fails one ("tuple concurrently updated"); so the second
    waits."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    log.rows("CREATE SCHEMA results")
    with Stage(log.url) as stage:
        played = stage.play("ABAB", A=making(log, "results.one"), B=making(log, "results.two"))

    assert [attempt.error for attempt in played.values()] == [None, None]
    tables = log.multiset("SELECT tablename FROM pg_tables WHERE schemaname = 'results'")
    assert tables == {("one",): 1, ("two",): 1}


@pytest.mark.parametrize(("keys", "indexed"), [
    ((), ["window_start"]), (("shop", "window_start"), ["shop, window_start", "window_start"]),
    (("window_start", "shop"), ["window_start, shop"]),
])  # fmt: skip
def test_rows_are_found_by_their_window_through_an_index_of_the_table(
    log: Log, keys: tuple[str, ...], indexed: list[str]
) -> None:
    """Where a key does not begin with the window already.

    A table that was there keeps what it has: an index on it is its owner's to make.
    """
    output = Output(name="per_shop", transform="a:b", sink=Postgres(table="results.shops"))
    made = SinkTable(Database(log.url), output, Postgres(table="results.shops"), "")
    columns = {"window_start": "timestamp with time zone", "shop": "text", "cents": "bigint"}
    ask = "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'results.shops'::regclass"

    def there() -> list[str]:
        return sorted(text.partition("(")[2].rstrip(")") for (text,) in log.multiset(ask))

    with transaction(Database(log.url, "a")) as connection:
        made.make(connection, made.name, columns, keys)
    assert [text.removesuffix(" NULLS NOT DISTINCT").rstrip(")") for text in there()] == indexed
    log.rows("DROP INDEX IF EXISTS results.shops_window_start_idx")
    before = there()
    with transaction(Database(log.url, "b")) as connection:
        made.make(connection, made.name, columns, keys)
    assert there() == before


SUMS = (
    StructType()
    .add("window_start", "timestamp")
    .add("window_end", "timestamp")
    .add("shop", "string")
    .add("cents", "long")
)


def prepared(log: Log, name: str, on_backfill: Any, suffix: str = "") -> SinkTable:
    """Make the tables of an increment, as a driver does."""
    sink = Postgres(table=f"results.{name}", write="increment", keys=("shop",))
    output = Output(name="sums", transform="a:b", window=Fixed(timedelta(hours=1)), on_backfill=on_backfill, sink=sink)
    table = SinkTable(log.database, output, sink, suffix)
    table.prepare(SUMS)
    return table


def tables(log: Log) -> set[str]:
    return {name for (name,) in log.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'results'")}


def test_names_that_postgresql_would_cut_are_tables_of_their_own(log: Log) -> None:
    """Of a table of 63 bytes, its sums by window, two bounded runs and theirs; a drop of one removes its tables and no
    other."""
    name = "é" * 31 + "x"
    for suffix in ("", "@1", "@2"):
        prepared(log, name, "correct", suffix)
    prepared(log, name, "correct", "@2")
    assert len(tables(log)) == 6
    assert name in tables(log)

    for left, suffix in ((4, "@2"), (2, ""), (0, "@1")):
        place = Place(f"postgres::results.{name}{suffix}").where
        with transaction(Database(log.url, "drop")) as connection:
            Drops(connection).drop_table(place)
        assert len(tables(log)) == left


def test_a_teams_table_of_a_derived_name_is_neither_written_nor_dropped(log: Log) -> None:
    """A table `sums_by_window` that the platform has not made; one that it has made is no output's table."""
    log.rows(
        "CREATE SCHEMA results; CREATE TABLE results.sums_by_window (shop text); INSERT INTO "
        "results.sums_by_window VALUES ('a')"
    )
    prepared(log, "sums", "skip")
    Drops(log.database).drop_table("results.sums")
    assert tables(log) == {"sums_by_window"}
    with pytest.raises(Refused, match=r"results\.sums_by_window, which is not the platform's"):
        prepared(log, "sums", "correct")

    log.rows("DROP TABLE results.sums_by_window")
    prepared(log, "sums", "correct")
    with pytest.raises(Refused, match="that the platform keeps for another output's table"):
        prepared(log, "sums_by_window", "skip")


@pytest.fixture
def clerk(server: SharedServer) -> Iterator[Database]:
    """A database of a team, by a role that it grants nothing to."""
    role, name = f"clerk_{uuid4().hex[:12]}", server.new_database()
    url = make_url(server.url("writer", name)).set(username=role, password="secret")
    with as_admin(server.url("admin", name)) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'; GRANT CONNECT ON DATABASE {name} TO {role}")
        yield Database(url.render_as_string(hide_password=False))
        forget_connections()
        admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    server.drop(name)


@contextmanager
def as_admin(url: str) -> Iterator[Any]:
    with closing(psycopg2.connect(url.replace("+psycopg2", ""))) as session:
        session.autocommit = True
        yield session.cursor()


@pytest.mark.parametrize("there", [False, True], ids=["no schema", "a schema with the table"])
def test_check_names_the_grants_that_an_account_lacks(server: SharedServer, clerk: Database, there: bool) -> None:
    """After these grants, and not after fewer, a run makes the table or finds it."""
    sink = Postgres(table="results.shops")
    table = SinkTable(clerk, Output(name="shops", transform="a:b", sink=sink), sink, "")
    rows = StructType().add("shop", "string")
    place = make_url(clerk.url)
    wanted = [
        f"GRANT CREATE ON DATABASE {place.database} TO {place.username}",
        f"GRANT USAGE, CREATE ON SCHEMA results TO {place.username}",
    ]

    with as_admin(server.url("admin", place.database)) as admin:
        if there:
            admin.execute(
                f"CREATE SCHEMA results; CREATE TABLE results.shops (shop text); GRANT ALL ON results.shops TO {place.username}"
            )
        with pytest.raises(Refused, match=rf"the role {place.username} has no privilege CREATE ON DATABASE") as refused:
            table.check(rows)
        grants = refused.value.hint.removeprefix("let the owner run ").partition(". Then")[0].split("; ")
        assert grants == wanted[: 1 + there]
        for grant in grants:
            with pytest.raises((psycopg2.errors.InsufficientPrivilege, ProgrammingError), match="permission denied"):
                as_a_run(table, clerk, rows)
            admin.execute(grant)
    table.check(rows)
    as_a_run(table, clerk, rows)


def as_a_run(table: SinkTable, database: Database, rows: StructType) -> None:
    migrate_authority(database.url)
    table.prepare(rows)
