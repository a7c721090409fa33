"""A COMMIT whose answer was lost is neither done nor failed: the log is read, then it is decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Connection, text

from onlyonce.commitlog import units
from onlyonce.commitlog.batches import COUNTED, WRITTEN, Batches, WatermarkMarkers
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.units import Units
from onlyonce.core.batch import Outcome
from onlyonce.core.errors import CommitStateUnknown, Retryable
from onlyonce.core.units import Content, UnitId
from onlyonce.database.connect import Database, run, transaction
from tests.contract.conftest import NOON, Log, plan_of
from tests.contract.task import Task, shop_rows
from tests.support.proxy import ANSWER_LOST, COMMIT_LOST, Proxy

BOTH = pytest.mark.parametrize("how", [ANSWER_LOST, COMMIT_LOST])


@pytest.fixture
def proxy(log: Log) -> Iterator[Proxy]:
    """A proxy before the server."""
    with Proxy(log.url) as made:
        yield made


@pytest.fixture
def driver(log: Log) -> Driver:
    """A driver of an output."""
    return log.start("shop", "per_shop")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits between attempts; how long is no part of any property here."""
    monkeypatch.setenv("ONLYONCE_DATABASE_PATIENCE", "20.0")


def add_row(connection: Connection) -> None:
    """An effect that shows when it is done twice."""
    connection.execute(text("INSERT INTO results VALUES (1)"))


@BOTH
def test_a_transaction_cut_at_its_commit_is_neither_done_nor_failed(log: Log, proxy: Proxy, how: str) -> None:
    """Both look the same to the client: CommitStateUnknown; in the database one is whole, the other not there at
    all."""
    log.rows("CREATE TABLE results (n int)")
    proxy.cut_next(how)
    with (
        pytest.raises(CommitStateUnknown, match="answer to a COMMIT was lost"),
        transaction(Database(proxy.url)) as conn,
    ):
        add_row(conn)

    assert proxy.cuts == 1
    assert log.multiset("SELECT n FROM results") == Counter({(1,): 1} if how == ANSWER_LOST else {})


def test_a_connection_cut_before_its_commit_has_done_nothing(log: Log, proxy: Proxy) -> None:
    """It is Retryable: no COMMIT was sent, so there is nothing to find out."""
    log.rows("CREATE TABLE results (n int)")

    def cut_between_rows() -> None:
        with transaction(Database(proxy.url)) as connection:
            add_row(connection)
            proxy.refuse()
            add_row(connection)

    with pytest.raises(Retryable, match="did not answer"):
        cut_between_rows()

    assert log.rows("SELECT n FROM results") == []


@pytest.mark.parametrize("cuts", [[ANSWER_LOST], [COMMIT_LOST], [COMMIT_LOST, ANSWER_LOST], [COMMIT_LOST] * 3], ids=str)
def test_run_does_idempotent_work_once_however_its_commits_are_lost(
    log: Log, driver: Driver, proxy: Proxy, cuts: list[str]
) -> None:
    """A reference unit by claim: after each lost answer the work runs again and finds out by itself what is there."""
    unit = UnitId(driver.incarnation, 0, "events", 0)
    tries: list[Content | None] = []

    def work(connection: Connection) -> Content | None:
        there = Units(connection).claim(units.Claim(unit, driver.epoch, f"try {len(tries)}", "reference"))
        tries.append(there)
        if there is None:
            Units(connection).fill(unit, Content(4, "x"))
        return there

    proxy.cut_next(*cuts)
    run(Database(proxy.url), work)

    assert proxy.cuts == len(cuts)
    assert len(tries) == len(cuts) + 1
    assert tries[-1] == (Content(4, "x") if ANSWER_LOST in cuts else None)
    assert log.rows("SELECT unique_id, rows, content_hash FROM onlyonce_private.units") == [(str(unit), 4, "x")]


def test_run_doubles_work_that_is_not_idempotent(log: Log, proxy: Proxy) -> None:
    """The control: without a claim the same loss doubles the row, and the multiset shows it."""
    log.rows("CREATE TABLE results (n int)")
    proxy.cut_next(ANSWER_LOST)
    run(Database(proxy.url), add_row)

    assert log.multiset("SELECT n FROM results") == Counter({(1,): 2})


@BOTH
def test_each_step_of_a_batch_bears_a_lost_answer(log: Log, driver: Driver, proxy: Proxy, how: str) -> None:
    """Begin, end with its windows and panes, begin and end of a close: the log is the same as without the loss."""
    database, window = Database(proxy.url), {"window_start": NOON, "window_end": NOON}
    counts = pa.Table.from_pylist([window | {"in_time": 5, "late": 1}], COUNTED)
    written = pa.Table.from_pylist([window | {"rows": 2}], WRITTEN)

    def end(connection: Connection) -> None:
        Batches(connection).count_windows(batch, "per_shop", counts)
        Batches(connection).add_panes(batch, "shop", "per_shop", written, final=True)
        Batches(connection).end(driver, batch, Outcome(in_time=5, late=1))

    proxy.cut_next(how)
    batch = Batches(database).begin(driver, "shop", plan_of(driver), None)
    proxy.cut_next(how)
    run(database, end)
    proxy.cut_next(how)
    number, _, _ = WatermarkMarkers(database).begin(driver, "ended", batch.frontier)
    proxy.cut_next(how)
    WatermarkMarkers(database).end(driver, number, 3)

    assert proxy.cuts == 4
    assert batch.plan == plan_of(driver)
    assert batch.replayed == (how == ANSWER_LOST)
    assert log.rows("SELECT state, in_time, late FROM onlyonce_private.batches") == [("committed", 5, 1)]
    assert log.rows("SELECT in_time, late FROM onlyonce_private.window_counts") == [(5, 1)]
    assert log.rows("SELECT rows, final FROM onlyonce_private.panes") == [(2, True)]
    assert log.rows("SELECT marker_no, state, delta_version FROM onlyonce_private.watermark_markers") == [
        (1, "committed", 3)
    ]
    assert log.rows("SELECT conserved FROM onlyonce.conservation") == [(True,)]


def test_a_unit_whose_answer_was_lost_is_found_in_the_log_and_passes(log: Log, driver: Driver, proxy: Proxy) -> None:
    """The task goes on as if it had heard: its rows are there once."""
    task = Task(log, driver, Database(proxy.url))
    proxy.cut_next(ANSWER_LOST)

    assert task.run(shop_rows(5)) == {"partition": [0], "rows": [5]}
    assert proxy.cuts == 1
    assert task.table() == task.wanted(shop_rows(5))


def test_a_unit_whose_commit_did_not_arrive_is_retryable_and_passes_the_second_time(
    log: Log, driver: Driver, proxy: Proxy
) -> None:
    """None of its rows are there, and Spark's next attempt writes them once."""
    task = Task(log, driver, Database(proxy.url))
    proxy.cut_next(COMMIT_LOST)
    with pytest.raises(Retryable, match="COMMIT did not arrive"):
        task.run(shop_rows(5))
    between: list[Any] = log.rows("SELECT * FROM results.shop")
    again = task.run(shop_rows(5))

    assert between == []
    assert again == {"partition": [0], "rows": [5]}
    assert task.table() == task.wanted(shop_rows(5))


def test_an_increment_whose_answer_was_lost_is_not_added_again(log: Log, driver: Driver, proxy: Proxy) -> None:
    """The non-idempotent write: once, in the task itself, in Spark's retry, and in the replay of the batch."""
    task = Task(log, driver, Database(proxy.url), write="increment", keys=("shop",))
    rows = pa.RecordBatch.from_pylist([{"shop": "a", "cents": 7}, {"shop": "b", "cents": 1}, {"shop": "a", "cents": 2}])
    proxy.cut_next(ANSWER_LOST)
    for _ in range(3):
        task.run(rows)

    assert proxy.cuts == 1
    assert log.multiset("SELECT shop, cents FROM results.shop") == Counter({("a", 9): 1, ("b", 1): 1})
