"""What the matrix shares: the process that forks, and a database for each module's runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onlyonce.database.connect import forget_connections
from onlyonce.database.migrate import migrate
from tests.fault.matrix.world import World
from tests.fault.matrix.zygote import Zygote
from tests.support.platform import Server


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Forks the processes under fault."""
    with Zygote() as started:
        yield started


@pytest.fixture(scope="module")
def world(server: Server, zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A database and a folder for the runs of one module."""
    name = server.new_database()
    url = server.url("writer", name)
    migrate(url)
    made = World(url, Path(tmp_path_factory.mktemp("matrix")), zygote)
    yield made
    made.session.close()
    forget_connections()
    server.drop(name)
