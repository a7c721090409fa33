"""A window is final when it has closed, not when a row of it was written: the log's side of it, on the real
PostgreSQL."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.api.pipeline import Delta, Output
from onlyonce.commitlog import batches
from onlyonce.commitlog.backfills import Backfills, Panes
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.commitlog.new_incarnations import NewIncarnations
from onlyonce.core.batch import Outcome, Plan
from onlyonce.core.windows import Fixed
from onlyonce.database.connect import run
from tests.contract.commitlog.test_backfills import DAY, HOUR, receive
from tests.contract.conftest import Log, plan_of

OUTPUT = Output(name="per_shop", transform="a:b", window=Fixed(HOUR), watermark_delay=HOUR, sink=Delta())


def write(log: Log, driver: Driver, number: int, max_event_time: datetime, windows: dict[int, int]) -> None:
    """A receive batch with this max event time, and the output's batch that writes rows of these hours as they come; ended twice,
    as after an answer that was lost."""
    receive(log, log.start("shop", "receive"), number, max_event_time)
    rows = [
        {"window_start": DAY + hour * HOUR, "window_end": DAY + (hour + 1) * HOUR, "rows": count}
        for hour, count in windows.items()
    ]
    written = pa.Table.from_pylist(rows, batches.WRITTEN)
    offset = {"reservoirVersion": number + 1, "index": -1}
    plan = plan_of(driver, number, source_to=offset, facts={"stateless": True})

    def end(conn: Any) -> None:
        batch = Batches(conn).begin(driver, "shop", plan, None)
        Panes(conn).add_rows(batch, "shop", "per_shop", written)
        closed = Backfills(conn).closed_at("shop", OUTPUT, number)
        if closed is not None:
            Panes(conn).close("shop", ["per_shop"], closed)
        Batches(conn).end(driver, batch, Outcome(in_time=0, late=0))

    run(log.database, end)
    run(log.database, end)


def known(log: Log) -> Counter[Any]:
    """(hour, rows, final) of each window."""
    return log.multiset(
        "SELECT extract(hour FROM window_start AT TIME ZONE 'UTC')::int, rows, final FROM onlyonce_private.panes"
    )


def test_rows_of_a_window_add_up_until_it_closes(log: Log) -> None:
    """By the rule for late records, with the max event time that the batch has read; a batch that is ended twice counts once."""
    driver = log.start("shop", "per_shop")
    write(log, driver, 0, DAY + HOUR, {0: 2, 1: 1})
    assert known(log) == Counter({(0, 2, False): 1, (1, 1, False): 1})

    write(log, driver, 1, DAY + 2 * HOUR, {0: 3, 2: 1})
    assert known(log) == Counter({(0, 5, True): 1, (1, 1, False): 1, (2, 1, False): 1})


@pytest.mark.parametrize("stateless", [True, False])
def test_a_new_incarnation_reads_what_was_written_as_it_came_no_more(log: Log, stateless: bool) -> None:
    """Unless the old one kept state, which the new incarnation needs again."""
    driver = log.start("shop", "per_shop")
    offset = {"reservoirVersion": 8, "index": -1}
    plan = plan_of(driver, source_to=offset, facts={"stateless": stateless})

    def work(conn: Any) -> None:
        batch = Batches(conn).begin(driver, "shop", plan, None)
        met = [{"window_start": DAY, "window_end": DAY + HOUR, "in_time": 1, "late": 0}]
        Batches(conn).count_windows(batch, "per_shop", pa.Table.from_pylist(met, batches.COUNTED))
        Batches(conn).end(driver, batch, Outcome(in_time=1, late=0))

    run(log.database, work)
    NewIncarnations(log.database).begin("shop", "per_shop", driver, None)

    incarnation = Incarnations(log.database).live("shop", "per_shop")
    assert incarnation is not None
    assert incarnation.start_from == {"version": 0, "counted_upto": 7, "closed_by": -1} | (
        {"rows_from": 8} if stateless else {}
    )


def test_no_new_incarnation_of_receive_takes_in_a_batch_again(log: Log) -> None:
    """The last one may have skipped batches that the one before it had taken in, and ended after the first of them."""
    for index, number in ((2, 7), (0, 5)):
        driver = log.start("shop", "receive")
        plan = plan_of(driver, source_to={"reservoirVersion": 4, "index": index, "batch_no": number})

        def work(conn: Any, driver: Driver = driver, plan: Plan = plan) -> None:
            Batches(conn).end(driver, Batches(conn).begin(driver, "shop", plan, None), Outcome(kept=0))

        run(log.database, work)
        NewIncarnations(log.database).begin("shop", "receive", driver, None)

    incarnation = Incarnations(log.database).live("shop", "receive")
    assert incarnation is not None
    assert incarnation.start_from == {"version": 4, "after_batch_no": 7}
