"""Duplicates that came nearly too late to be told are counted, and said where a user looks."""

from __future__ import annotations

import pytest

from onlyonce.catalog import look_up
from onlyonce.operate import audit, gc
from tests.contract.conftest import Log
from tests.contract.receive import Receive
from tests.contract.receiver import Record, uniform

DAY = 144
HOURS = range(1000, 1000 + DAY + 13, 6)
NEWEST = max(HOURS)
OLDEST = NEWEST - DAY  # the floor after a collection; the oldest tenth is 15 buckets: OLDEST, +6, +12


@pytest.fixture
def stream(log: Log, monkeypatch: pytest.MonkeyPatch) -> Receive:
    """A day and two hours of the pipeline `shop`, a batch each hour, collected."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/shop.py")
    look_up.forget()
    made = Receive(log)
    for bucket in HOURS:
        made.batch(bucket, of_hour(bucket))
    assert gc.main([]).warnings == []
    return made


def of_hour(bucket: int) -> list[Record]:
    """Its records."""
    return uniform(4, bucket)


def near(stream: Receive) -> list[tuple[int, int | None]]:
    """(duplicates, near the horizon) of the batches with duplicates."""
    return [tuple(row) for row in stream.log.rows(
        "SELECT duplicate, near_horizon FROM onlyonce.batches WHERE duplicate > 0 ORDER BY batch"
    )]  # fmt: skip


def test_those_of_the_oldest_tenth_are_counted(stream: Receive) -> None:
    """Seven of them, among others that came in time; new records count for nothing."""
    stream.batch(NEWEST, of_hour(OLDEST) + of_hour(OLDEST + 12)[:3] + of_hour(OLDEST + 18) + uniform(5, 1))

    assert near(stream) == [(11, 7)]


def test_a_replay_counts_them_once(stream: Receive) -> None:
    """The unit is there already."""
    records = of_hour(OLDEST)
    begun = stream.begin(NEWEST)
    stream.units(begun, records)
    stream.restart()
    stream.batch(NEWEST, records, begun.plan.batch_id)

    assert near(stream) == [(4, 4)]


def test_collect_and_audit_say_what_to_do(stream: Receive) -> None:
    """A warning of one, a table of the other, which finds nothing wrong."""
    stream.batch(NEWEST, of_hour(OLDEST) + of_hour(NEWEST))
    collected, audited = gc.main([]), audit.examine_log()

    assert len(collected.warnings) == 1
    assert "4 of 8 duplicates" in collected.warnings[0]
    assert "dedup_horizon" in collected.warnings[0]
    assert audited.warnings == []
    [[row]] = [rows for name, rows in audited.tables.items() if "horizon" in name]
    assert (row["pipeline"], row["near_the_edge"], row["duplicate"]) == ("shop", 4, 8)


def test_duplicates_in_time_warn_of_nothing(stream: Receive) -> None:
    """However many."""
    stream.batch(NEWEST, [record for bucket in HOURS if bucket >= OLDEST + 18 for record in of_hour(bucket)])

    assert [count for _, count in near(stream)] == [None]
    assert gc.main([]).warnings == []


def test_before_anything_was_collected_there_is_no_edge(log: Log) -> None:
    """The floor is 0: nothing will be forgotten soon."""
    young = Receive(log, "young")
    young.batch(3, of_hour(3))
    young.batch(4, of_hour(3))

    assert near(young) == [(4, None)]


def test_the_count_outlives_the_units(stream: Receive) -> None:
    """When these are removed, long after."""
    stream.batch(NEWEST, of_hour(OLDEST))
    stream.batch(NEWEST, uniform(1, 2))
    stream.log.rows("UPDATE onlyonce_private.batches SET committed_at = committed_at - interval '100 days'")
    assert gc.main([]).facts["units removed"] > 0

    assert near(stream) == [(4, 4)]
