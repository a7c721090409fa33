"""A person who has the reader's password, and wants to stop the platform."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest
from psycopg2.extensions import connection

from onlyonce.commitlog import lineages
from onlyonce.database.connect import run
from onlyonce.local.database import cluster
from tests.contract.conftest import Log, log, new_log  # noqa: F401 - fixtures
from tests.security.statements import states
from tests.support.platform import Server


@pytest.fixture
def reader(server: Server) -> Iterator[connection]:
    """Yield a session of the reader in a new database of the platform, without its read-only default: any role may change its own settings."""
    with closing(psycopg2.connect(server.url("admin").replace("+psycopg2", ""))) as admin:
        admin.autocommit = True
        admin.cursor().execute("DROP DATABASE IF EXISTS onlyonce WITH (FORCE)")
        admin.cursor().execute("ALTER ROLE onlyonce_reader CONNECTION LIMIT -1")
    cluster.provision(server.folder / "postgres")
    with closing(psycopg2.connect(server.url("reader").replace("+psycopg2", ""))) as session:
        session.set_session(readonly=False, autocommit=True)
        yield session


@states(
    "On the embedded server and on compose's it takes no advisory lock, so it stops no driver, no deliverer, no gc and no `migrate`; makes no large object;",
    "and connects to no other database.",
)
def test_the_reader_takes_no_lock_and_stores_nothing(reader: connection, server: Server) -> None:
    """Nor anything else that PostgreSQL lets every role do by default, except in its own session."""
    forbidden = (
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_try_advisory_xact_lock(1, 2)",
        "SELECT lo_create(0)",
        "SELECT lo_from_bytea(0, 'x')",
        "CREATE TEMPORARY TABLE mine (x int)",
        "CREATE TABLE public.mine (x int)",
    )
    for statement in forbidden:
        with pytest.raises(psycopg2.errors.InsufficientPrivilege), reader.cursor() as cursor:
            cursor.execute(statement)
    for database in ("postgres", "template1", "airflow"):
        with pytest.raises(psycopg2.OperationalError, match="permission denied"):
            psycopg2.connect(server.url("reader", database).replace("+psycopg2", ""))
    with closing(psycopg2.connect(server.url("writer").replace("+psycopg2", ""))) as writer, writer.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(1)")


@states("It has 60 of the server's 200 connections at most, and a statement of a client of its own ends after ten minutes.")
def test_the_reader_leaves_connections_to_drivers(reader: connection) -> None:
    """The time limit is a default that the role may change; the number of connections is not."""
    with reader.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout'), rolconnlimit FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == ("10min", 60)
        cursor.execute("SHOW max_connections")
        assert cursor.fetchone() == ("200",)


@states("A session that calls itself a driver, but may not write the log, is none: it holds up no erasure and no repair.")
def test_a_session_with_a_drivers_name_is_no_driver(log: Log) -> None:  # noqa: F811
    """Any role may give its session any name, also with an epoch of 23 digits."""
    driver = log.start()
    at_work = "SELECT onlyonce_private.at_work(%s, NULL)"
    for epoch in ("1", "9" * 23):
        name = f"onlyonce/{driver.number}/{epoch}"
        url = log.server.url("reader", log.name).replace("+psycopg2", "")
        with closing(psycopg2.connect(url, application_name=name)) as session:
            with session.cursor() as cursor:
                cursor.execute("SELECT 1")
            assert log.rows(at_work, driver.number) == [(False,)]
            assert log.restart(driver).epoch > driver.epoch
            assert not session.closed
    with closing(psycopg2.connect(log.url.replace("+psycopg2", ""), application_name=f"onlyonce/{driver.number}/99")):
        assert log.rows(at_work, driver.number) == [(True,)]


@states("The digits of an epoch in a session's name are bounded, so no name makes the start of a driver fail.")
def test_a_name_of_many_digits_ends_no_driver(log: Log) -> None:  # noqa: F811
    """Also in a session of the writer's own role."""
    driver = log.start()
    with closing(psycopg2.connect(log.url.replace("+psycopg2", ""), application_name=f"onlyonce/{driver.number}/{'9' * 23}")):
        run(log.database, lambda conn: lineages._end_older_sessions(conn, driver))
