"""What the suites share: one PostgreSQL, one Spark session, and a fresh platform for each test."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from onlyonce import environment
from onlyonce.testing import scratch
from tests.fault import ledger, strikes
from tests.fault.ledger import pytest_sessionstart  # noqa: F401 - a hook of every session
from tests.support import broker as brokers
from tests.support import halves, jvm, needed
from tests.support import mariadb as mariadbs
from tests.support.platform import Platform, Server
from tests.support.shared_server import SharedServer

# Short JVMs: the second compiler and a parallel collector cost more than they gain on two cores. With one compiler the
# JVM keeps room for 48 MB of code, which a session of all tests fills; then it goes on without any compiler.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m")

# Images of containers often set this variable, and uv compiles no package: then each of the tests' processes compiles
# pandas, Spark and Airflow again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

FIRST = ("tests/airflow/", "tests/containers/", "tests/contract/")
"""They wait for processes and servers more than they compute; Airflow's take longest."""


class _Files(LoadFileScheduling):  # type: ignore[misc]
    """Files run beside each other, never the tests of one file; the folder of Airflow's tests shares one platform."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/airflow" if nodeid.startswith("tests/airflow/") else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Files:
    """How `pytest -n` shares out the tests. Each worker has a PostgreSQL and a Spark session of its own."""
    return _Files(config, log)


def pytest_configure() -> None:
    """Begin to record at which fail-points the tests strike, if that is asked for."""
    strikes.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note at which fail-points a test has struck."""
    report = yield
    strikes.of_a_test(report)
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take one half if that is asked for.

    Beside each other, files with Spark or kills come before the short ones, which fill the end: else one worker ends
    minutes after the others."""
    halves.keep(config, items)
    if not hasattr(config, "workerinput"):
        return
    long = {item.path for item in items if item.get_closest_marker("spark") or item.get_closest_marker("fault")}
    items.sort(key=lambda item: 0 if item.nodeid.startswith(FIRST) else 1 if item.path in long else 2)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Write the ledger of faulted runs. After pytest's own summary, name the parts that this machine lacks."""
    yield
    ledger.pytest_terminal_summary(terminalreporter)
    needed.summarize(terminalreporter)


@pytest.fixture(scope="session", autouse=True)
def home_of_no_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The home of tests that name none: never the checkout's own, which may have another format."""
    with environment.within({"ONLYONCE_HOME": str(tmp_path_factory.mktemp("home"))}):
        yield


@pytest.fixture(autouse=True)
def no_heart_beats_on() -> Iterator[None]:
    """A long run of a test ends with it.

    A heart that beat on would ask a database that is gone, until the session ends.
    """
    yield
    assert [thread for thread in threading.enumerate() if thread.name == "heartbeat"] == []


@pytest.fixture(scope="session")
def server() -> Iterator[SharedServer]:
    """A real PostgreSQL of the session's own; every platform has a database of its own on it."""
    if lent := os.environ.get("ONLYONCE_TEST_SERVER"):
        yield SharedServer(Path(lent))  # of the session that started this one
        return
    # Not under pytest's folders, which only their owner may enter: as root the server is another account.
    with scratch.server("onlyonce-tests-") as made:
        shared = SharedServer(made.folder)
        shared.hurry()
        yield shared


@pytest.fixture(scope="session")
def mariadb() -> Iterator[mariadbs.MariaDB]:
    """A real MariaDB of the session's own; each test has a database of its own on it.

    Skipped where the machine has none.
    """
    if mariadbs.SERVER is None:
        needed.missing(mariadbs.MISSING)
    with mariadbs.server() as started:
        yield started


@pytest.fixture
def new_platform(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Platform]]:
    """Makes platforms with a folder and a database of their own; the last one made is the one of the environment."""
    made: list[Platform] = []

    def make(pipelines: str = "tests/support/shop.py", name: str = "home") -> Platform:
        platform = Platform.make(server, tmp_path / f"{name}{len(made)}", pipelines)
        made.append(platform)
        platform.enter(monkeypatch)
        return platform

    yield make
    for platform in made:
        server.drop(platform.database)


@pytest.fixture
def platform(new_platform: Callable[..., Platform]) -> Platform:
    """A platform with the test pipeline `shop`."""
    return new_platform()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The Spark session of all tests that need no process of their own. Its own folders outlive each platform."""
    with environment.within({"ONLYONCE_HOME": str(tmp_path_factory.mktemp("spark"))}):
        started = jvm.session("tests")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """A real Kafka broker of the session's own, started where the first test asks for it.

    Each test makes its own topics.
    """
    with brokers.running(tmp_path_factory.mktemp("kafka")) as started:
        yield started
