"""What the contract tests share: a log on the real PostgreSQL, migrated, with a database of its own for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from onlyonce.commitlog.units import Authorities
from onlyonce.database.connect import forget_connections
from onlyonce.testing.scratch import NOON, Log, ask, plan_of, platform
from tests.support.platform import Server
from tests.support.shared_server import SharedServer

__all__ = ["NOON", "Log", "ask", "plan_of"]


@pytest.fixture
def new_log(server: SharedServer) -> Iterator[Callable[[], Log]]:
    """Makes logs, each with a database of its own; their sessions end with the test."""
    made: list[Log] = []

    def make() -> Log:
        log = Log(server, server.new_migrated())
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
    with platform(server, tmp_path_factory.mktemp("home")) as log:
        yield log


def platform_of(log: Log) -> UUID:
    """The id of a platform, which the sessions of its drivers in a sink's own database have in their names."""
    found = Authorities(log.database).identity()
    assert found
    return found
