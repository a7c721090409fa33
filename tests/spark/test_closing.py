"""Windows close when the source falls silent, never past the clock; and the rule of lateness is one rule."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.model.batch import to_micros, to_time
from jobs.model.frontier import Frontier, closed_until
from jobs.model.windows import Fixed, Session, Sliding, Window, micros
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

START = to_micros(datetime(2026, 1, 1, tzinfo=UTC)) or 0


def sale(name: str, at: datetime) -> dict[str, Any]:
    """A record."""
    return {"id": name, "shop": "a", "at": at.isoformat(), "cents": 1, "weight": 1.0}


def test_old_windows_close_by_silence_and_the_running_one_stays_open(
    new_platform: Callable[..., Platform], spark: object
) -> None:
    """A drain without --close writes the last window of old data, while the minute that still runs stays open; the
    next record of that minute is in time."""
    platform = new_platform("tests/support/quiet.py")
    platform.put("shop", "a.jsonl", [sale("old", datetime(2026, 1, 1, tzinfo=UTC))])
    platform.run("shop")
    assert platform.table("shop/per_shop")["sales"].tolist() == [1]
    ahead = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(hours=2)
    platform.put("shop", "b.jsonl", [sale("running", ahead)])

    platform.run("shop")
    platform.put("shop", "c.jsonl", [sale("running too", ahead + timedelta(seconds=1))])
    platform.run("shop")

    assert platform.table("shop/per_shop")["sales"].tolist() == [1]
    platform.run("shop", "--close")
    assert sorted(platform.table("shop/per_shop")["sales"]) == [1, 2]
    assert platform.sql("SELECT * FROM onlyonce.late").empty


def test_a_silent_source_is_closed_once(new_platform: Callable[..., Platform], spark: object) -> None:
    """Further drains of a silent source write no more control rows."""
    platform = new_platform("tests/support/quiet.py")
    platform.put("shop", "a.jsonl", [sale("old", datetime(2026, 1, 1, tzinfo=UTC))])

    for _ in range(3):
        platform.run("shop")

    assert platform.sql("SELECT count(*) AS n FROM onlyonce.closes")["n"][0] == 1


@pytest.mark.parametrize(
    "window",
    [Fixed(timedelta(hours=1)), Sliding(timedelta(hours=1), timedelta(minutes=20)), Session(timedelta(minutes=7))],
    ids=lambda w: type(w).__name__,
)
def test_lateness_on_spark_is_the_rule_of_the_model(spark: Any, window: Window) -> None:
    """closed_until as a Spark expression gives what the pure function gives, for any frontier, nulls too."""
    from pyspark.sql import functions as F

    from jobs.spark import events, windowing

    chance = random.Random(7)
    lateness = timedelta(minutes=13)
    frontiers = [_frontier(chance) for _ in range(300)]
    rows = [(n, tuple(to_time(v) for v in (f.tide, f.ended, f.silent_tide, f.silent_clock))) for n, f in enumerate(frontiers)]

    frame = spark.createDataFrame(rows, f"n int, oo_frontier {events.FRONTIER}")
    found = frame.select("n", F.unix_micros(windowing.closed_until(window, lateness)).alias("closed")).orderBy("n").collect()

    wanted = [closed_until(f, window, micros(lateness)) for f in frontiers]
    assert wanted == [r.closed for r in found]


def _frontier(chance: random.Random) -> Frontier:
    def some() -> int | None:
        return None if chance.random() < 0.3 else START + chance.randrange(-(10**12), 10**12)

    silent = some()
    return Frontier(some(), some(), silent, None if silent is None else START + chance.randrange(10**12))
