"""What the contract tests share: a log on the real PostgreSQL, migrated, with a database of its own for each test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg2
import pytest

from onlyonce.commitlog import lineages
from onlyonce.commitlog.lineages import Driver
from onlyonce.database.connect import Database, forget_connections, run
from onlyonce.database.migrate import migrate
from onlyonce.model.batch import Plan
from tests.support.platform import Server

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Log:
    """One platform's database: what tests do with it by the product's functions, and look at by plain SQL."""

    server: Server
    name: str
    database: Database = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "database", Database(self.url))

    @property
    def url(self) -> str:
        """The writer's URL."""
        return self.server.url("writer", self.name)

    def start(self, instance: str = "shop", query: str = "receive") -> Driver:
        """A driver as it starts: instance and lineage registered, the epoch bumped."""
        run(self.database, lambda conn: lineages.add_instance(conn, instance, instance.split("@")[0]))
        lineage = run(self.database, lambda conn: lineages.register(conn, instance, query, uuid4()))
        return run(self.database, lambda conn: lineages.bump(conn, lineage, "run"))

    def restart(self, driver: Driver) -> Driver:
        """The next driver of the same lineage."""
        instance, query, _ = driver.lineage.rsplit("/", 2)
        return self.start(instance, query)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement by the writer, in a session of its own."""
        return ask(self.url, statement, *values)

    def multiset(self, statement: str) -> Counter[tuple[Any, ...]]:
        """The same as a multiset."""
        return Counter(self.rows(statement))


def ask(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of a statement, committed, in a session of its own."""
    session = psycopg2.connect(url.replace("+psycopg2", ""))
    try:
        with session, session.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []
    finally:
        session.close()


def plan_of(driver: Driver, batch_id: int = 0, **changed: Any) -> Plan:
    """What a driver means to do in a batch."""
    plain: dict[str, Any] = {
        "lineage": driver.lineage, "batch_id": batch_id, "source_from": None, "source_to": {"version": batch_id},
        "offsets_hash": f"hash {batch_id}", "partitions": 2, "system_time": NOON, "bucket": 7,
        "settings": {"spark.sql.shuffle.partitions": "2"}, "mode": "exactly_once", "declaration_hash": "d1",
    }  # fmt: skip
    return Plan(**plain | changed)


@pytest.fixture
def new_log(server: Server) -> Iterator[Callable[[], Log]]:
    """Makes logs, each with a database of its own; their sessions end with the test."""
    made: list[Log] = []

    def make() -> Log:
        log = Log(server, server.new_database())
        migrate(log.url)
        made.append(log)
        return log

    yield make
    forget_connections()
    for log in made:
        server.drop(log.name)


@pytest.fixture
def log(new_log: Callable[[], Log]) -> Log:
    """A log of this test's own."""
    return new_log()


@pytest.fixture(scope="module")
def shared(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """A platform for all tests of a file, which keep apart by their names; the environment's, with a home."""
    log = Log(server, server.new_database())
    migrate(log.url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONLYONCE_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("ONLYONCE_DATABASE_URL", log.url)
        yield log
    forget_connections()
    server.drop(log.name)
