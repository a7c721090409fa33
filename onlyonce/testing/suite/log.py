"""A platform's database for a test. The test changes it by the product's functions and reads it by plain SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2

from onlyonce import settings
from onlyonce.commitlog.lineages import Driver, Lineages
from onlyonce.database import formats
from onlyonce.database.connect import Database, forget_connections
from onlyonce.database.migrate import migrate
from onlyonce.model.batch import Plan
from onlyonce.testing.crashtest.scratch import Server

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
        Lineages(self.database).add_instance(instance, instance.split("@")[0])
        lineage = Lineages(self.database).register(instance, query, uuid4())
        return Lineages(self.database).bump(lineage, "run")

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


@contextmanager
def platform(server: Server, home: Path) -> Iterator[Log]:
    """A platform of its own on a server, which is that of the environment meanwhile."""
    log = Log(server, server.new_database())
    migrate(log.url)
    with settings.within({"ONLYONCE_HOME": str(home), "ONLYONCE_DATABASE_URL": log.url}):
        formats.make_home()
        yield log
    forget_connections()
    server.drop(log.name)
