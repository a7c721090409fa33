"""Batches of several sources in the log: how far each had come is fixed when a batch begins, and the pipeline is as far
as the least that is not idle."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from onlyonce.commitlog import units
from onlyonce.commitlog.batches import Batches, WatermarkMarkers
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.incarnations import Driver, SourceBatches
from onlyonce.commitlog.units import Units
from onlyonce.core.batch import Batch, to_micros
from onlyonce.core.frontier import Frontier, Progress
from onlyonce.core.units import Content, Counts, UnitId
from onlyonce.database.connect import run
from tests.contract.conftest import NOON, Log, plan_of

SOURCES = ("web", "till")
MINUTE = timedelta(minutes=1)


@pytest.fixture
def driver(log: Log) -> Driver:
    """A driver of receive."""
    return log.start()


def begin(log: Log, driver: Driver, number: int, source: str, sources: tuple[str, ...] = SOURCES) -> Batch:
    """The batch of a source, in a transaction of its own."""
    plan = plan_of(
        driver,
        number,
        partitions=1,
        source_to={"source": source, "lines": 1, "batch_no": number},
        ingestion_time=NOON + number * MINUTE,
    )
    return Batches(log.database).begin(driver, "shop", plan, None, sources=sources)


def whole(
    log: Log, driver: Driver, number: int, source: str, largest: datetime | None, sources: tuple[str, ...] = SOURCES
) -> Batch:
    """A batch that keeps one record with that event time."""
    batch = begin(log, driver, number, source, sources)
    counts = Counts(kept=1, invalid=0, expired=0, duplicate=0, unknown_fields=0, largest=largest)

    def end(conn: Any) -> None:
        unit = UnitId(driver.incarnation, number, "events", 0)
        Units(conn).claim(units.Claim(unit, driver.epoch, "test", "reference"))
        Units(conn).fill(unit, Content(1, "x"), counts)
        Batches(conn).end_receive(driver, batch, 1, number + 1, bounded=False)

    run(log.database, end)
    return batch


def max_event_time(log: Log) -> int | None:
    """How far the pipeline is."""
    return Batches(log.database).frontier("shop").max_event_time


def micros(time: datetime) -> int:
    """Whole microseconds since 1970."""
    found = to_micros(time)
    assert found is not None
    return found


def test_the_log_is_as_far_as_the_least_source_and_a_replay_sees_what_its_batch_saw(log: Log, driver: Driver) -> None:
    """Whatever has become of the sources since: a close that was between the attempts, and other sources that are
    declared."""
    whole(log, driver, 0, "web", NOON + 9 * MINUTE)
    assert max_event_time(log) is None
    whole(log, driver, 1, "till", NOON)
    assert max_event_time(log) == micros(NOON)
    first = begin(log, driver, 2, "web")

    def idle(conn: Any) -> None:
        known = SourceBatches(conn).known("shop")
        later = Progress({**known.of, "till": replace(known.of["till"], idle=True)})
        number, _, _ = WatermarkMarkers(conn).begin(driver, "idle", Frontier(max_event_time=later.least()), later)
        WatermarkMarkers(conn).end(driver, number, 9)

    run(log.database, idle)
    assert max_event_time(log) == micros(NOON + 9 * MINUTE)
    newer = log.restart(driver)
    again = begin(log, newer, 2, "web", ("web", "kiosk"))

    assert again.replayed
    assert first.source_batch is not None
    assert again.source_batch == first.source_batch
    assert {name: one.max_event_time for name, one in first.source_batch.before.of.items()} == {
        "web": micros(NOON + 9 * MINUTE),
        "till": micros(NOON),
    }
    assert again.frontier == first.frontier
    whole(log, newer, 3, "till", NOON + MINUTE)
    assert max_event_time(log) == micros(NOON + 9 * MINUTE)  # it wakes, and moves nothing back


def test_lag_and_sources_tell_each_source_and_whom_the_watermark_waits_for(log: Log, driver: Driver) -> None:
    """A source that never sent has no event time and holds; of one source there are no rows."""
    whole(log, driver, 0, "web", NOON + 9 * MINUTE)
    whole(log, driver, 1, "till", NOON)
    begin(log, driver, 2, "till", (*SOURCES, "kiosk"))

    rows = Views(log.database).rows("lag")
    shown = [
        (row["stage"], row["max_event_time"], row["idle"], row["holds_watermark"], row["batches_waiting"])
        for row in rows
    ]
    assert shown == [
        ("receive", NOON, None, None, 1), ("receive/till", NOON, False, True, 1), ("receive/web", NOON + 9 * MINUTE, False, False, 0),
    ]  # fmt: skip
    assert log.rows("SELECT source, last_arrival, pipeline_max_event_time FROM onlyonce.sources ORDER BY source") == [
        ("till", NOON + MINUTE, NOON), ("web", NOON, NOON),
    ]  # fmt: skip
    assert log.rows("SELECT source FROM onlyonce.batches ORDER BY batch") == [("web",), ("till",), ("till",)]
