"""A session that is ended in mid-unit, and a server that is killed and comes back: nothing half done, work goes on."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import psycopg2
import pyarrow as pa
import pytest
from sqlalchemy import Connection, text

from onlyonce.commitlog import units
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.units import Units
from onlyonce.core.errors import CommitStateUnknown, Retryable
from onlyonce.core.units import Content, UnitId
from onlyonce.database import connect
from onlyonce.database.connect import Database, forget_connections, run, transaction
from onlyonce.database.migrate import migrate
from onlyonce.database.statements import make_home
from onlyonce.local import postgres, processes
from onlyonce.testing.suite import hashed
from tests.contract.conftest import Log, ask
from tests.contract.task import Task, shop_rows
from tests.support.platform import Server, free_port
from tests.support.steps import PATIENCE

LARGE = pa.RecordBatch.from_pydict({"shop": ["x" * 5_000] * 2_000, "cents": [*range(2_000)]})
"""More than fits into the buffers of a connection, so that COPY notices its end while it is under way."""


@pytest.fixture
def driver(log: Log) -> Driver:
    """A driver of an output."""
    return log.start("shop", "per_shop")


def end_session(log: Log, driver: Driver) -> None:
    """Terminate the sessions of a driver's tasks; returns when they are gone."""
    name = driver.session(log.database).name
    ended = log.rows(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = %s AND datname = %s",
        name, log.name,
    )  # fmt: skip
    assert ended, "there was a session to end"


def cut(
    log: Log, driver: Driver, before: list[pa.RecordBatch], after: list[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition; the session is ended between two of them."""
    yield from [hashed(batch, 0) for batch in before]
    end_session(log, driver)
    yield from [hashed(batch, 0) for batch in after]


CUTS: dict[str, tuple[list[pa.RecordBatch], list[pa.RecordBatch]]] = {
    "before the first row": ([], [shop_rows(3)]),
    "claimed, no rows": ([], []),
    "between small pieces": ([shop_rows(3)], [shop_rows(3, first=3)]),
    "before a large piece": ([shop_rows(3)], [LARGE]),
    "after a large piece": ([LARGE], [shop_rows(3)]),
    "after the last row": ([shop_rows(3)], []),
}


@pytest.mark.parametrize("write", ["append", "upsert", "increment"])
@pytest.mark.parametrize("place", CUTS)
def test_a_session_ended_in_mid_unit_leaves_nothing_and_is_retryable(
    log: Log, driver: Driver, place: str, write: str
) -> None:
    """Wherever it strikes; Spark's next attempt writes the rows once."""
    before, after = CUTS[place]
    if write != "append":
        before, after = ([b.slice(0, 1) if b is LARGE else b for b in part] for part in (before, after))
    keys = () if write == "append" else ("shop",)
    task = Task(log, driver, driver.session(log.database), write, keys)
    with pytest.raises(Retryable, match="did not answer") as stopped:
        task.consume(cut(log, driver, before, after))
    between = task.table(), log.rows("SELECT * FROM onlyonce_private.units")
    task.run(*before, *after, attempt=1)

    assert "nothing is half done" in stopped.value.data
    assert between == (Counter(), [])
    assert task.table() == task.wanted(*before, *after)
    assert len(log.rows("SELECT * FROM onlyonce_private.units")) == 1


def test_a_session_that_was_idle_for_too_long_in_mid_unit_is_retryable(
    log: Log, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends it while Spark computes the next rows; the retry writes them once."""
    monkeypatch.setattr(connect, "SESSION_OPTIONS", "-c timezone=UTC -c idle_in_transaction_session_timeout=1ms")
    task = Task(log, driver, replace(log.database, name="onlyonce/idle"))

    def slow() -> Iterator[pa.RecordBatch]:
        # Claimed, and idle: the next row comes when the server has ended the session.
        processes.wait_until(lambda: not sessions(log, "onlyonce/idle"), PATIENCE, "the end of the idle session")
        yield hashed(shop_rows(3), 0)

    with pytest.raises(Retryable):
        task.consume(slow())
    between = task.table()
    replace(task, database=log.database).run(shop_rows(3), attempt=1)

    assert between == Counter()
    assert task.table() == task.wanted(shop_rows(3))


def sessions(log: Log, name: str) -> list[Any]:
    """The sessions of that name."""
    return log.rows("SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = %s", name, log.name)


def test_a_session_ended_at_its_commit_is_neither_done_nor_failed(log: Log, driver: Driver) -> None:
    """COMMIT meets a dead session: the log decides, and it says that nothing is there."""

    def ended() -> None:
        with transaction(driver.session(log.database)) as connection:
            Units(connection).claim(units.Claim(UnitId(driver.incarnation, 0, "s", 0), driver.epoch, "x", "data"))
            end_session(log, driver)

    with pytest.raises(CommitStateUnknown):
        ended()

    assert log.rows("SELECT * FROM onlyonce_private.units") == []


def test_an_error_of_the_work_is_told_also_when_its_session_has_ended(log: Log, driver: Driver) -> None:
    """The rollback fails with the session, and must not hide what went wrong before."""

    def fails() -> None:
        with transaction(driver.session(log.database)) as connection:
            connection.execute(text("SELECT 1"))
            end_session(log, driver)
            raise ZeroDivisionError("of the work")

    with pytest.raises(ZeroDivisionError, match="of the work"):
        fails()


def test_a_lock_that_is_not_given_up_ends_in_retryable(
    log: Log, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the session's own bound, so that a stuck twin never hangs a driver for ever."""
    monkeypatch.setattr(connect, "SESSION_OPTIONS", "-c lock_timeout=1ms")
    unit = UnitId(driver.incarnation, 0, "per_shop", 0)
    claim = units.Claim(unit, driver.epoch, "first", "data")

    def second() -> None:
        with transaction(Database(log.url, "onlyonce/second")) as connection:
            Units(connection).claim(replace(claim, attempt="second"))

    with transaction(log.database) as connection:
        Units(connection).claim(claim)
        with pytest.raises(Retryable, match="lock timeout"):
            second()
        Units(connection).fill(unit, Content(0, ""))

    assert log.rows("SELECT attempt FROM onlyonce_private.units") == [("first",)]


# --- the server itself
# ---------------------------------------------------------------------------------------------------


@pytest.fixture
def own_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of this test's own, to be killed."""
    folder = Path(tempfile.mkdtemp(prefix="onlyonce-own-")).resolve()
    folder.chmod(0o711)
    monkeypatch.setenv("ONLYONCE_HOME", str(folder))
    make_home()
    monkeypatch.setenv("ONLYONCE_PG_PORT", str(free_port()))
    postgres.start()
    yield Server(folder)
    postgres.stop()
    forget_connections()
    shutil.rmtree(folder, ignore_errors=True)


def kill(server: Server) -> None:
    """SIGKILL to the postmaster; returns when it and its sessions are gone (an orphaned session may still commit)."""
    postmaster = psutil.Process(int((server.folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0]))
    sessions = postmaster.children()
    os.kill(postmaster.pid, signal.SIGKILL)
    gone = [postmaster, *sessions]
    processes.wait_until(lambda: not any(map(processes.is_alive, gone)), PATIENCE, "the end of the server")


def refuses(url: str) -> bool:
    """Whether a session that was open is of no use any more, or none can be opened."""
    try:
        ask(url, "SELECT 1")
    except psycopg2.Error:
        return True
    return False


def in_background(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start it; its result or error goes into the list."""
    results: list[Any] = []

    def keep() -> None:
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    return thread, results


def test_a_server_killed_in_mid_transaction_comes_back_and_the_work_goes_on(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` waits within its patience and does the work once; what was committed before is still there."""
    monkeypatch.setenv("ONLYONCE_DATABASE_PATIENCE", str(PATIENCE))
    log = Log(own_server, own_server.new_database())
    migrate(log.url)
    driver = log.start("shop", "per_shop")
    log.rows("CREATE TABLE results (unit text, n int)")
    away, tries = threading.Event(), []
    monkeypatch.setattr(connect, "_say_again", lambda state: away.set())

    def unit(partition: int) -> Callable[[Connection], None]:
        def work(connection: Connection) -> None:
            wanted = UnitId(driver.incarnation, 0, "per_shop", partition)
            there = Units(connection).claim(units.Claim(wanted, driver.epoch, "x", "data"))
            tries.append(partition)
            if there is None:
                insert = "INSERT INTO results SELECT :unit, n FROM generate_series(1, 3) n"
                connection.execute(text(insert), {"unit": str(wanted)})
                if tries == [0, 1]:
                    kill(own_server)
                Units(connection).fill(wanted, Content(3, "x"))

        return work

    run(driver.session(log.database), unit(0))
    thread, results = in_background(lambda: run(driver.session(log.database), unit(1)))
    assert away.wait(PATIENCE)
    assert refuses(log.url)
    postgres.start()
    thread.join(PATIENCE)

    assert results == [None]
    assert set(tries[1:]) == {1}
    assert len(tries) >= 3
    rows = log.multiset("SELECT unit, n FROM results")
    assert rows == Counter((f"shop/per_shop/1/0/per_shop/{p}", n) for p in (0, 1) for n in (1, 2, 3))
    assert log.multiset("SELECT partition, rows FROM onlyonce_private.units") == Counter([(0, 3), (1, 3)])


def test_a_server_killed_in_the_middle_of_copy_leaves_nothing_and_one_clear_error(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is Retryable.

    While the server is away its next attempt is too, when its patience ends; then it passes.
    """
    log = Log(own_server, own_server.new_database())
    migrate(log.url)
    driver = log.start("shop", "per_shop")
    task = Task(log, driver, driver.session(log.database))

    def killed() -> Iterator[pa.RecordBatch]:
        yield hashed(LARGE, 0)
        kill(own_server)
        yield hashed(LARGE, 0)

    with pytest.raises(Retryable):
        task.consume(killed())
    monkeypatch.setenv("ONLYONCE_DATABASE_PATIENCE", "0.0")
    for call in (lambda: task.run(LARGE), lambda: run(log.database, lambda conn: None)):
        with pytest.raises(Retryable, match="did not answer") as away:
            call()
        assert "is the database up at that address?" in away.value.hint
        assert log.url.split(":")[2].split("@")[0] not in str(away.value)
    postgres.start()
    between = task.table()
    task.run(shop_rows(3), attempt=2)

    assert between == Counter()
    assert task.table() == task.wanted(shop_rows(3))
