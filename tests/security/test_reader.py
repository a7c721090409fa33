"""A person who has the reader's password, and wants to stop the platform."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest
from psycopg2.extensions import connection

from onlyonce.commitlog import outbox
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.core import stored_names
from onlyonce.database import locks
from onlyonce.database.connect import Session, run, transaction
from onlyonce.database.migrate import migrate
from onlyonce.local import postgres
from onlyonce.run import stream
from onlyonce.settings import ROOT
from tests.contract.conftest import Log, log, new_log  # noqa: F401 - fixtures
from tests.security.statements import states
from tests.support.platform import Server

LOCKS = (
    stored_names.catalog_lock, stored_names.buckets_lock, stored_names.long_run_lock, stored_names.deliverer_lock,
    stored_names.schema_lock,
)  # fmt: skip


@pytest.fixture
def reader(server: Server) -> Iterator[connection]:
    """Yield a session of the reader in a new database of the platform, without its read-only default: any role may
    change its own settings."""
    with closing(psycopg2.connect(server.url("admin").replace("+psycopg2", ""))) as admin:
        admin.autocommit = True
        admin.cursor().execute("DROP DATABASE IF EXISTS onlyonce WITH (FORCE)")
        admin.cursor().execute("ALTER ROLE onlyonce_reader CONNECTION LIMIT -1")
    postgres.provision(server.folder / "postgres")
    with closing(psycopg2.connect(server.url("reader").replace("+psycopg2", ""))) as session:
        session.set_session(readonly=False, autocommit=True)
        yield session


@states(
    "On the embedded server and on compose's it makes no large object and no temporary table, and connects to no "
    "other database."
)
def test_the_reader_stores_nothing(reader: connection, server: Server) -> None:
    """Nor anything else that PostgreSQL lets every role do by default, except in its own session."""
    forbidden = (
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
        cursor.execute("SELECT lo_create(0)")


KEYS = ("onlyonce deliver shop/mail/deliver", "onlyonce long run shop", "gc shop", "catalog_1", "shop", "public")
"""What the reader may hash, by the names that it reads in the views."""


@pytest.fixture
def hostile(log: Log) -> Iterator[connection]:  # noqa: F811
    """Yield a session of the reader that holds every advisory lock that it can compute, reads every view in an open
    transaction, and has a driver's name."""
    with closing(
        psycopg2.connect(
            log.server.url("reader", log.name).replace("+psycopg2", ""), application_name="onlyonce/shop/mail/deliver"
        )
    ) as session:
        session.set_session(readonly=False)
        with session.cursor() as cursor:
            cursor.execute("SET idle_in_transaction_session_timeout = 0")
            for name in (*KEYS, *(of("shop") for of in LOCKS)):
                cursor.execute(
                    "SELECT pg_advisory_lock(hashtextextended(%s, 0)), pg_advisory_lock(hashtext(%s))", (name, name)
                )
            cursor.execute("SELECT pg_advisory_lock(n) FROM generate_series(0, 1000) n")
            cursor.execute(
                "SELECT pg_advisory_lock(c.oid::bigint), pg_advisory_lock(0, c.oid::int) FROM pg_class c WHERE "
                "c.relnamespace = 'onlyonce'::regnamespace"
            )
            cursor.execute("SELECT viewname FROM pg_views WHERE schemaname = 'onlyonce'")
            for (view,) in cursor.fetchall():
                cursor.execute(f"LOCK TABLE onlyonce.{view} IN ACCESS SHARE MODE")
        yield session


@states(
    "No lock of the platform is an advisory lock, which any role may take: each is a row that only a role with "
    "permission to write the log can lock."
)
def test_nothing_stops_while_the_reader_holds_what_it_can(log: Log, hostile: connection) -> None:  # noqa: F811
    """Its locks, and a transaction over every view. Each lock of ours is taken at once."""
    log.start()
    with closing(Session(log.database)) as other:
        assert run(log.database, lambda conn: [locks.if_free(conn, of("shop")) for of in LOCKS]) == [True] * len(LOCKS)
        assert other.ask(lambda conn: [locks.hold(conn, of("shop")) for of in LOCKS]) == [True] * len(LOCKS)
    for locked in ("ACCESS EXCLUSIVE", "SHARE ROW EXCLUSIVE", "ROW SHARE"):
        hostile.cursor().execute("SAVEPOINT before")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege), hostile.cursor() as cursor:
            cursor.execute(f"LOCK TABLE onlyonce.formats IN {locked} MODE")
        hostile.cursor().execute("ROLLBACK TO before")
    assert migrate(log.url) == []
    with outbox.alone(log.database, outbox.Deliverer("shop", "mail")) as ours:
        assert ours
    place = stream.Place(log.database, "shop")
    assert place.ours()
    place.leave()


@states(
    "A lock that a driver or a deliverer holds for hours is its session, noted in such a row: another session "
    "gets it when its holder gives it up, or as soon as PostgreSQL has ended that one."
)
def test_a_lock_of_hours_ends_with_its_session(log: Log) -> None:  # noqa: F811
    """However it ended; a session that stands by asks without writing anything."""
    first, second = Session(log.database), Session(log.database)
    name = stored_names.long_run_lock("shop")

    assert [one.ask(lambda conn: locks.hold(conn, name)) for one in (first, second, first)] == [True, False, True]
    [(pid, before)] = log.rows(
        "SELECT pid, xmin::text || '/' || xmax::text FROM onlyonce_private.locks WHERE name = %s", name
    )
    assert not second.ask(lambda conn: locks.hold(conn, name))
    assert log.rows("SELECT xmin::text || '/' || xmax::text FROM onlyonce_private.locks WHERE name = %s", name) == [
        (before,)
    ]

    with transaction(log.database) as one, transaction(log.database) as other:
        locks.wait(one, name)
        assert not locks.if_free(other, name)
    log.rows("SELECT pg_terminate_backend(%s, 10000)", pid)
    assert second.ask(lambda conn: locks.hold(conn, name))

    third = Session(log.database)
    third.ask(lambda conn: locks.release(conn, name))  # not its own
    assert not third.ask(lambda conn: locks.hold(conn, name))
    second.ask(lambda conn: locks.release(conn, name))
    assert third.ask(lambda conn: locks.hold(conn, name))
    third.close()
    first.close()
    second.close()


@states(
    "No lock of the platform is an advisory lock, which any role may take: each is a row that only a role with "
    "permission to write the log can lock."
)
def test_no_statement_takes_an_advisory_lock() -> None:
    """Nor any module."""
    sources = [*(ROOT / "onlyonce").rglob("*.py"), *(path for path in (ROOT / "sql").rglob("*.sql"))]

    assert [str(path) for path in sources if re.search(r"pg_(try_)?advisory", path.read_text())] == []


@states(
    "It has 60 of the server's 200 connections at most, and a statement of a client of its own ends after ten minutes."
)
def test_the_reader_leaves_connections_to_drivers(reader: connection) -> None:
    """The time limit is a default that the role may change; the number of connections is not."""
    with reader.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('statement_timeout'), rolconnlimit FROM pg_roles WHERE rolname = current_user"
        )
        assert cursor.fetchone() == ("10min", 60)
        cursor.execute("SHOW max_connections")
        assert cursor.fetchone() == ("200",)


@states(
    "A session that calls itself a driver, but may not write the log, is none: it holds up no erasure and no repair."
)
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
    with (
        closing(
            psycopg2.connect(log.url.replace("+psycopg2", ""), application_name=f"onlyonce/{driver.number}/{'9' * 23}")
        ),
        Incarnations.once(log.database) as incarnations,
    ):
        incarnations._end_older_sessions(driver, None)
