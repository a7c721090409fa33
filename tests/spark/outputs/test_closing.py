"""Windows close when the source falls silent, never past the clock; and the rule for late records is one rule."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from onlyonce.context import RunContext
from onlyonce.core.batch import EPOCH, to_micros, to_time
from onlyonce.core.errors import Refused
from onlyonce.core.frontier import Frontier, closed_until
from onlyonce.core.windows import Chained, Fixed, Joined, Session, Sliding, Window, micros
from onlyonce.receive import loop
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

START = to_micros(datetime(2026, 1, 1, tzinfo=UTC)) or 0
HOUR = micros(timedelta(hours=1))
YEAR = 365 * 24 * HOUR


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


def test_silence_lasts_until_the_last_search_for_input(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that comes while the run takes in a backlog is not known yet: its record is in time for the next run."""
    platform = new_platform("tests/support/quiet.py")
    ahead = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(hours=2)
    platform.put("shop", "a.jsonl", [sale("first", ahead)])
    take_in = loop.take_in

    class DaysLater(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=2)

    def two_days_long(context: RunContext) -> None:
        platform.put("shop", "b.jsonl", [sale("meanwhile", ahead + timedelta(seconds=1))])
        take_in(context)
        slow.setattr(loop, "datetime", DaysLater)

    with monkeypatch.context() as slow:
        slow.setattr(loop, "take_in", two_days_long)
        platform.run("shop")
    platform.run("shop")
    platform.run("shop", "--close")

    assert platform.table("shop/per_shop")["sales"].tolist() == [2]
    assert platform.sql("SELECT * FROM onlyonce.late").empty


def test_a_silent_source_is_closed_once(new_platform: Callable[..., Platform], spark: object) -> None:
    """Further drains of a silent source write no more control rows."""
    platform = new_platform("tests/support/quiet.py")
    platform.put("shop", "a.jsonl", [sale("old", datetime(2026, 1, 1, tzinfo=UTC))])

    for _ in range(3):
        platform.run("shop")

    assert platform.sql("SELECT count(*) AS n FROM onlyonce.watermark_markers")["n"][0] == 1


HALF = timedelta(hours=12)
DAYS = [
    Fixed(timedelta(days=1), offset, zone)
    for zone, offset in [
        ("Europe/Berlin", timedelta(0)), ("Europe/Berlin", timedelta(hours=2, minutes=30)), ("America/New_York", HALF),
        ("Australia/Lord_Howe", timedelta(0)), ("Asia/Kathmandu", timedelta(0)), ("Africa/Casablanca", timedelta(hours=3)),
        ("Asia/Beirut", timedelta(0)), ("America/Sao_Paulo", timedelta(0)), ("America/St_Johns", timedelta(0)),
        ("America/Havana", timedelta(0)), ("Pacific/Apia", timedelta(hours=6)), ("Antarctica/Troll", timedelta(hours=1)),
    ]
]  # fmt: skip
WINDOWS: list[Window] = [
    Fixed(timedelta(hours=1)), Fixed(timedelta(hours=1), timedelta(minutes=13, microseconds=1)),
    Fixed(timedelta(days=7), timedelta(days=4)), Sliding(timedelta(hours=1), timedelta(minutes=20)),
    Sliding(timedelta(hours=1), timedelta(minutes=20), timedelta(minutes=19)), Session(timedelta(minutes=7)),
    DAYS[0], DAYS[3], Fixed(timedelta(days=7), timedelta(days=4), "America/New_York"),
    Joined(timedelta(hours=1), within=timedelta(minutes=90)),
    Chained(timedelta(hours=1), upstream=Sliding(timedelta(minutes=7), timedelta(minutes=1)), waits_before=timedelta(minutes=3)),
    Chained(timedelta(days=1), timezone="Europe/Berlin", upstream=Chained(timedelta(hours=1), upstream=Fixed(timedelta(minutes=7)))),
]  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: type(w).__name__)
def test_watermark_delay_on_spark_is_the_rule_of_the_model(spark: Any, window: Window) -> None:
    """closed_until as a Spark expression gives what the pure function gives, for any frontier, nulls too."""
    from pyspark.sql import functions as F

    from onlyonce.outputs import windows
    from onlyonce.receive import events

    chance = random.Random(7)
    watermark_delay = timedelta(minutes=13)
    frontiers = [_frontier(chance) for _ in range(300)]
    rows = [
        (n, tuple(to_time(v) for v in (f.max_event_time, f.ended, f.silent_max_event_time, f.silent_clock)))
        for n, f in enumerate(frontiers)
    ]

    frame = spark.createDataFrame(rows, f"n int, oo_frontier {events.FRONTIER}")
    found = (
        frame.select("n", F.unix_micros(windows.closed_until(window, watermark_delay)).alias("closed"))
        .orderBy("n")
        .collect()
    )

    wanted = [closed_until(f, window, micros(watermark_delay)) for f in frontiers]
    assert wanted == [r.closed for r in found]


def test_late_rows_of_sessions_are_counted_with_where_in_their_hour_they_are(spark: Any) -> None:
    """The first and the last of them, to the microsecond; rows in time don't count for that, nor do windows of a
    size."""
    from onlyonce.outputs import windows
    from onlyonce.receive import events

    closed = (to_time(START + HOUR), None, None, None)
    times = [START + HOUR // 2 + 1, START + HOUR // 3, START + HOUR + 5, START + HOUR - 7]
    rows = spark.createDataFrame(
        [(to_time(t), closed) for t in times], f"oo_event_time timestamp, oo_frontier {events.FRONTIER}"
    )

    def counts(window: Window) -> Counter[Any]:
        found = windows.counted(rows, window, timedelta(0))
        return Counter(map(tuple, found.select("in_time", "late", "late_from", "late_to").collect()))

    assert counts(Session(timedelta(minutes=1))) == Counter(
        {(0, 3, START + HOUR // 3, START + HOUR - 7): 1, (1, 0, None, None): 1}
    )
    assert counts(Fixed(timedelta(hours=1))) == Counter({(0, 3, None, None): 1, (1, 0, None, None): 1})


def test_the_driver_counts_the_windows_of_a_batch_as_sparks_executors_do(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    from onlyonce.outputs import window_log, windows
    from onlyonce.receive import events

    frontiers = [None, (to_time(START + HOUR), None, None, None), (to_time(START + 4 * HOUR), None, None, None)]
    rows = [(to_time(START + n * HOUR // 7), frontiers[n % 3]) for n in range(60)]
    frame = spark.createDataFrame(rows, f"oo_event_time timestamp, oo_frontier {events.FRONTIER}")
    frame.coalesce(1).write.parquet(f"{tmp_path}/rows")
    files = sorted((tmp_path / "rows").glob("*.parquet"))

    for window in (*WINDOWS, *DAYS):
        by_spark = windows.counted(frame, window, timedelta(minutes=10)).select(
            *[time.alias(name) for name, time in windows.bounds().items()],
            "in_time",
            "late",
            F.lit(0).alias("rejected"),
            "late_from",
            "late_to",
        )
        found = window_log.counted_windows(files, window, timedelta(minutes=10))
        wanted = by_spark.toArrow().cast(found.schema)
        assert Counter(tuple(row.values()) for row in found.to_pylist()) == Counter(
            tuple(row.values()) for row in wanted.to_pylist()
        ), window


def test_windows_on_spark_are_those_of_the_model(spark: Any) -> None:
    """Each time is in the same windows, to the microsecond: at random times since 1960, and around each change of the
    clocks of a zone, at midnight too, over half hours, and over a day that was left out."""
    from onlyonce.outputs import windows
    from onlyonce.receive import events

    for window in (w for w in (*WINDOWS, *DAYS) if not isinstance(w, Session)):
        times = _telling_times(window)
        schema = f"time long, oo_event_time timestamp, oo_frontier {events.FRONTIER}"
        rows = spark.createDataFrame([(time, to_time(time), None) for time in times], schema)
        assigned = windows.assign(rows, window).selectExpr(
            "time", "unix_micros(oo_window.start) AS start", "unix_micros(oo_window.end) AS end"
        )
        found = Counter(map(tuple, assigned.collect()))

        assert found == Counter((time, *bounds) for time in times for bounds in window.assign(time)), window


def test_a_zone_that_java_and_python_know_differently_is_refused(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written: Spark would cut other days than the model, and `late` or a backfill not find them."""
    from onlyonce.outputs import windows

    window = Fixed(timedelta(days=1), timezone="Europe/Oslo")
    rows = spark.createDataFrame([(to_time(START),)], "oo_event_time timestamp")
    right = Fixed.start_of
    monkeypatch.setattr(Fixed, "start_of", lambda self, number: right(self, number) + (HOUR if number == 20_000 else 0))

    with pytest.raises(Refused, match="Java and Python have different rules for the time zone Europe/Oslo") as refusal:
        windows.assign(rows, window)

    assert "tzdata" in refusal.value.hint


def _telling_times(window: Fixed | Sliding) -> list[int]:
    """Random ones, the edges of their windows, and each quarter of an hour near changes of the zone's clocks."""
    chance = random.Random(repr(window))
    times = [chance.randrange(-10 * YEAR, 70 * YEAR) for _ in range(200)]
    times += [edge + near for time in times for edge in window.assign(time)[-1] for near in (-1, 0, 1)]
    if isinstance(window, Fixed) and not window.in_utc:
        changes = _changes(window.timezone)
        times += [
            at + quarter * HOUR // 4 + near for at in changes for quarter in range(-120, 121, 3) for near in (-1, 0)
        ]
    return sorted(set(times))


def _changes(zone: str) -> list[int]:
    """The hour before each change of a zone's clocks in the years that tell: both rules of summer time, and 2011,
    2017."""
    found = []
    for year in (1987, 2009, 2011, 2017, 2026):
        first = to_micros(datetime(year, 1, 1, tzinfo=UTC)) or 0
        apart = [(to_time(first + n * HOUR) or EPOCH).astimezone(ZoneInfo(zone)).utcoffset() for n in range(366 * 24)]
        found += [first + n * HOUR for n in range(366 * 24 - 1) if apart[n] != apart[n + 1]]
    return found


def _frontier(chance: random.Random) -> Frontier:
    def some() -> int | None:
        return None if chance.random() < 0.3 else START + chance.randrange(-(10**12), 10**12)

    silent = some()
    return Frontier(some(), some(), silent, None if silent is None else START + chance.randrange(10**12))
