"""The views are the interface: explained in full, open to the reader, who can change nothing and sees nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from psycopg2.extensions import connection as Session

from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.health import Views
from onlyonce.core.batch import Outcome
from onlyonce.database.connect import Database
from onlyonce.database.statements import queries
from tests.contract.conftest import NOON, Log, ask, plan_of

VIEWS = {
    "alerts", "backfills", "backlog", "batches", "commits", "conservation", "declarations", "driver_runs", "findings", "formats", "id_chunks", "inputs", "invalid", "lag",
    "late", "incarnations", "long_runs", "lookups", "outbox", "output_files", "outputs", "panes", "range_filters", "reasons", "record_ids", "rejected", "reprocessings", "expired", "removals",
    "sources", "state", "subscriptions", "taken_in",
    "totals", "watermark_markers", "windows",
}  # fmt: skip


@pytest.fixture
def log(log: Log) -> Log:
    """A log with something in it, in a database with the rights that the product's own has."""
    driver = log.start("shop", "receive")
    batch = Batches(log.database).begin(driver, "shop", plan_of(driver), None)
    done = Outcome(read=3, kept=2, invalid=1, expired=0, duplicate=0, max_event_time_after=NOON, delta_version=1)
    Batches(log.database).end(driver, batch, done)
    admin = log.server.url("admin")
    ask(admin, f'REVOKE ALL ON DATABASE "{log.name}" FROM PUBLIC')
    ask(admin, f'GRANT CONNECT ON DATABASE "{log.name}" TO onlyonce_reader')
    return log


@pytest.fixture
def reader(log: Log) -> Iterator[Session]:
    """The reader's session, each statement a transaction, with its own read-only setting taken off."""
    session = psycopg2.connect(log.server.url("reader", log.name).replace("+psycopg2", ""))
    session.autocommit = True
    session.cursor().execute("SET default_transaction_read_only = off")
    yield session
    session.close()


def everything(log: Log) -> Counter[Any]:
    """Every row of every private table, every object and right: what nobody may have changed."""
    tables = log.rows(
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'onlyonce_private'::regnamespace "
        "AND relkind IN ('r', 'p')"
    )
    rows = [row for (table,) in tables for row in log.rows(f"SELECT '{table}', t::text FROM {table} t")]
    catalog = log.rows(
        "SELECT oid::regclass::text, relkind::text, relacl::text, relowner::regrole::text FROM pg_class "
        "WHERE relnamespace::regnamespace::text NOT LIKE 'pg_%' AND relkind IN ('r', 'p', 'v', 'S', 'm') "
        "UNION ALL SELECT oid::regnamespace::text, 'schema', nspacl::text, nspowner::regrole::text FROM pg_namespace "
        "WHERE nspname NOT LIKE 'pg_%' UNION ALL SELECT proname, 'function', proacl::text, proowner::regrole::text "
        "FROM pg_proc WHERE pronamespace::regnamespace::text LIKE 'onlyonce%'"
    )
    roles = log.rows("SELECT rolname, rolsuper, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname !~ '^pg_'")
    return Counter(rows + catalog + [tuple(map(str, role)) for role in roles])


def test_the_views_are_those_that_are_promised(log: Log) -> None:
    """No fewer, and nothing else is in the schema."""
    there = log.rows("SELECT relname, relkind::text FROM pg_class WHERE relnamespace = 'onlyonce'::regnamespace")

    assert Counter(there) == Counter((view, "v") for view in VIEWS)
    functions = log.rows(
        "SELECT proname, prosecdef, proconfig FROM pg_proc WHERE pronamespace = 'onlyonce'::regnamespace ORDER BY 1"
    )
    assert functions == [(name, True, ["search_path=pg_catalog, pg_temp"]) for name in ("ask_stop", "longest_window")]


def test_every_view_and_every_column_says_what_it_is(log: Log) -> None:
    """A comment on each, so that `\\d+` in psql explains the interface."""
    silent = log.rows(
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
        "WHERE c.relnamespace = 'onlyonce'::regnamespace "
        "AND (obj_description(c.oid, 'pg_class') IS NULL OR col_description(c.oid, a.attnum) IS NULL)"
    )

    assert silent == []
    assert log.rows("SELECT obj_description('onlyonce'::regnamespace, 'pg_namespace') IS NOT NULL") == [(True,)]


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_the_reader_sees_what_the_writer_sees(log: Log, view: str) -> None:
    """Every view, every row; but ages, which grow between the two questions."""
    statement = f"SELECT (to_jsonb(v) - ARRAY['system_lag', 'freshness'])::text FROM onlyonce.{view} v"

    assert Counter(ask(log.server.url("reader", log.name), statement)) == log.multiset(statement)


@pytest.mark.parametrize("query", sorted(queries("views")))
def test_every_named_question_can_be_asked_by_the_reader(log: Log, query: str) -> None:
    """The command line asks as the reader; no question needs a private table."""
    values = {
        "run_id": "run",
        "run_ids": ["run"],
        "dag_id": "dag",
        "pipeline": "shop",
        "instance": "shop",
        "instances": ["shop"],
        "n": 5,
        "output": "sales",
        "query": "x",
        "number": 1,
    }
    database = Database(log.server.url("reader", log.name))

    found = Views(database).rows(query, **values)

    assert found == Views(log.database).rows(query, **values) or query in (
        "heartbeats",
        "lag",
        "columns_there",  # of the role
    )


REFUSED = {"42501", "55000", "0A000", "42809"}
"""No right to; a view, or a column, of this kind takes no changes; not for views at all."""
CHANGES = [
    *[change for view in sorted(VIEWS) for change in (
        f"DELETE FROM onlyonce.{view}", f"INSERT INTO onlyonce.{view} DEFAULT VALUES",
        f"TRUNCATE onlyonce.{view}", f"DROP VIEW onlyonce.{view} CASCADE", f"COMMENT ON VIEW onlyonce.{view} IS 'x'",
        f"ALTER VIEW onlyonce.{view} RENAME TO mine",
        f"CREATE OR REPLACE VIEW onlyonce.{view} AS SELECT 1 AS n", f"SELECT * FROM onlyonce.{view} FOR UPDATE",
    )],
    "UPDATE onlyonce.batches SET kept = 0",
    "UPDATE onlyonce.invalid SET invalid = 0",
    "MERGE INTO onlyonce.invalid i USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE",
    "COPY onlyonce.batches FROM STDIN",
    "CREATE TABLE onlyonce.mine (n int)", "CREATE TABLE public.mine (n int)", "CREATE TEMP TABLE mine (n int)",
    "CREATE TABLE mine AS SELECT 1", "SELECT 1 AS n INTO public.mine", "CREATE SCHEMA mine",
    "CREATE VIEW onlyonce.mine AS SELECT 1", "CREATE VIEW public.mine AS SELECT 1",
    "CREATE SEQUENCE onlyonce.mine", "CREATE TYPE onlyonce.mine AS ENUM ('x')", "CREATE DOMAIN onlyonce.mine AS int",
    "CREATE FUNCTION onlyonce.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "DROP EXTENSION plpgsql", "CREATE ROLE mine", "CREATE DATABASE mine", "CREATE PUBLICATION mine FOR ALL TABLES",
    "CREATE EVENT TRIGGER mine ON ddl_command_end EXECUTE FUNCTION pg_notify()",
    "DROP SCHEMA onlyonce CASCADE", "DROP SCHEMA onlyonce_private CASCADE", "DROP DATABASE postgres",
    "DROP OWNED BY onlyonce_writer", "REASSIGN OWNED BY onlyonce_writer TO onlyonce_reader",
    "ALTER SCHEMA onlyonce RENAME TO mine", "ALTER SCHEMA onlyonce OWNER TO onlyonce_reader",
    "ALTER ROLE onlyonce_reader SUPERUSER", "ALTER ROLE onlyonce_writer PASSWORD 'x'", "ALTER SYSTEM SET fsync = off",
    "ALTER DEFAULT PRIVILEGES FOR ROLE onlyonce_writer GRANT ALL ON TABLES TO PUBLIC",
    "GRANT onlyonce_writer TO onlyonce_reader", "SET ROLE onlyonce_writer", "SET ROLE onlyonce_admin",
    "SET SESSION AUTHORIZATION onlyonce_writer", "SET session_replication_role = replica",
    "DO $$ BEGIN LOCK TABLE onlyonce_private.batches; END $$", "DO $$ BEGIN LOCK TABLE onlyonce.batches IN EXCLUSIVE MODE; END $$",
    "COPY (SELECT 1) TO PROGRAM 'true'", "COPY (SELECT 1) TO '/tmp/mine'", "SELECT pg_read_file('postgresql.conf')",
    "SELECT lo_import('/etc/hosts')", "SELECT pg_reload_conf()", "CHECKPOINT",
    "DO $$ BEGIN DELETE FROM onlyonce.batches; END $$", "WITH gone AS (DELETE FROM onlyonce.batches RETURNING 1) TABLE gone",
    "EXPLAIN ANALYZE DELETE FROM onlyonce.batches",
]  # fmt: skip


def test_the_reader_changes_nothing_by_any_kind_of_statement(log: Log, reader: Session) -> None:
    """Each is refused with its read-only setting taken off: rights forbid it, not a setting that it can change."""
    before = everything(log)
    answers = {statement: answer(reader, statement) for statement in CHANGES}

    assert {s: code for s, code in answers.items() if code not in REFUSED} == {}
    assert everything(log) == before


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_the_reader_gives_its_rights_to_nobody(log: Log, reader: Session, view: str) -> None:
    """PostgreSQL only warns of a GRANT that grants nothing; the rights are as before."""
    before = everything(log)
    reader.cursor().execute(f"GRANT ALL ON onlyonce.{view} TO PUBLIC")

    assert "no privileges were granted" in reader.notices[-1]
    assert everything(log) == before


def answer(session: Session, statement: str) -> str:
    """The code of PostgreSQL's error; '' when it did what was asked."""
    try:
        session.cursor().execute(statement)
    except psycopg2.Error as error:
        return error.pgcode or type(error).__name__
    return ""


def test_the_readers_sessions_are_read_only_from_the_start(log: Log) -> None:
    """A first line before the rights: even what would be its own is refused."""
    with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
        ask(log.server.url("reader", log.name), "CREATE TEMP TABLE mine (n int)")


@pytest.mark.parametrize(
    "table", ["units", "epochs", "batches", "incarnations", "pipelines", "catalog_chunks", "formats"]
)
def test_the_reader_does_not_see_private_tables(log: Log, reader: Session, table: str) -> None:
    """Neither their rows nor, by a guess of the name, a function on them."""
    for statement in (
        f"SELECT * FROM onlyonce_private.{table}",
        f"SELECT count(*) FROM onlyonce_private.{table}",
        f"COPY onlyonce_private.{table} TO STDOUT",
        f"SELECT 'onlyonce_private.{table}'::regclass",
    ):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            reader.cursor().execute(statement)


def test_the_reader_sees_nobody_elses_passwords_or_queries(reader: Session) -> None:
    """Not the hashes, and not the text of what the writer runs."""
    cursor = reader.cursor()
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        cursor.execute("SELECT rolpassword FROM pg_authid")
    cursor.execute("SELECT DISTINCT query FROM pg_stat_activity WHERE usename NOT IN (current_user)")
    assert {query for (query,) in cursor.fetchall()} <= {"<insufficient privilege>"}


def test_a_statement_with_two_columns_of_one_name_gives_both(log: Log) -> None:
    """Each under a name of its own, in order."""
    statement = "SELECT count(*), sum(1) AS sum, sum(2) AS sum, 7 AS sum_2"
    [row] = Views(Database(log.url)).free(statement)

    assert list(row.items()) == [("count", 1), ("sum", 1), ("sum_3", 2), ("sum_2", 7)]
