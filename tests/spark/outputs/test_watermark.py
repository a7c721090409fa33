"""The watermark of an output moves when a window ends, and not in between: no batch without rows passes over the state
for nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import astuple
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Delta, Output
from onlyonce.core.batch import to_micros, to_time
from onlyonce.core.frontier import MILLI, Frontier, closed_until
from onlyonce.core.windows import Fixed, Session, Sliding, Window, micros
from onlyonce.outputs import at_close, windows
from onlyonce.receive import events
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

WATERMARK_DELAY = timedelta(seconds=30)
WINDOWS: list[Fixed | Sliding] = [
    Fixed(timedelta(hours=1)),
    Fixed(timedelta(days=7), offset=timedelta(days=4)),
    Fixed(timedelta(microseconds=777)),
    Fixed(timedelta(days=1), timezone="Europe/Berlin"),
    Fixed(timedelta(days=2), offset=timedelta(hours=3), timezone="America/New_York"),
    Sliding(timedelta(minutes=10), timedelta(minutes=2), offset=timedelta(seconds=7)),
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_same_windows_have_ended_by_the_last_end_as_by_what_is_closed(
    spark: SparkSession, window: Fixed | Sliding
) -> None:
    """It is never later than what is closed, and no window ends between the two."""
    chance, start = random.Random(7), to_micros(datetime(2026, 1, 1, tzinfo=UTC)) or 0
    progress = [start + chance.randrange(micros(timedelta(days=365))) for _ in range(100)]
    progress += [
        end + micros(WATERMARK_DELAY) + by
        for end in (start, micros(timedelta(days=20_537, hours=22)))
        for by in (-1000, 0, 1000)
    ]
    rows = spark.createDataFrame(
        [(tuple(map(to_time, astuple(Frontier(max_event_time=max_event_time)))),) for max_event_time in progress],
        f"oo_frontier {events.FRONTIER}",
    )

    found = [
        row.found
        for row in rows.select(F.unix_micros(windows.last_closed(window, WATERMARK_DELAY)).alias("found")).collect()
    ]

    for max_event_time, last in zip(progress, found, strict=True):
        closed = closed_until(Frontier(max_event_time=max_event_time), window, micros(WATERMARK_DELAY))
        assert closed is not None
        assert last == max(-(-end // MILLI) * MILLI for end in ends(window, closed))


def ends(window: Fixed | Sliding, closed: int) -> list[int]:
    """The ends of the last windows that have ended by a time."""
    if isinstance(window, Sliding):
        end = window.last_end(closed)
        return [at for at in range(end - 2 * micros(window.size), end + 1, micros(window.slide)) if at <= closed]
    [(at, _)] = window.assign(closed)  # the one that holds the time begins where the last one ended
    return [at]


def grouped(rows: DataFrame) -> DataFrame:
    return (
        rows.filter("cents > 0")
        .withColumn("half", F.col("cents") / 2)
        .groupBy("shop", "oo_window")
        .agg(F.sum("half").alias("half"))
    )


def of_its_own_window(rows: DataFrame) -> DataFrame:
    return rows.groupBy(F.window("oo_event_time", "1 minute").alias("oo_window")).count()


def twice(rows: DataFrame) -> DataFrame:
    return grouped(rows).groupBy("oo_window").count()


FUNCTIONS: dict[str, tuple[Callable[[DataFrame], DataFrame], bool]] = {
    "an aggregation by its window": (grouped, True),
    "no state": (lambda rows: rows.filter("cents > 0"), True),
    "an aggregation by a window of its own": (of_its_own_window, False),
    "two aggregations": (twice, False),
    "duplicates that it drops": (lambda rows: rows.dropDuplicates(["shop", "oo_window"]), False),
    "duplicates before an aggregation": (
        lambda rows: grouped(rows.dropDuplicates(["shop", "oo_window", "cents"])),
        False,
    ),
}


@pytest.mark.parametrize("case", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_only_a_function_that_waits_for_ends_of_windows_has_a_watermark_that_moves_by_them(
    spark: SparkSession, case: tuple[Callable[[DataFrame], DataFrame], bool]
) -> None:
    """What may wait for a time inside a window has the exact one."""
    function, expected = case
    output = Output(
        name="o", transform="a:b", window=Fixed(timedelta(hours=1)), watermark_delay=WATERMARK_DELAY, sink=Delta()
    )
    stream = spark.readStream.format("rate").load().select(
        F.lit("kept").alias("oo_kind"), F.col("timestamp").alias("oo_event_time"), F.lit(None).cast(events.FRONTIER).alias("oo_frontier"),
        F.lit("a").alias("shop"), F.col("value").alias("cents"),
    )  # fmt: skip
    rows = windows.in_stream(stream, output, windows.last_closed)

    assert at_close.is_asked_at_ends(rows, function(rows)) is expected


def test_sessions_have_the_exact_one() -> None:
    """They end at any time."""
    window: Window = Session(timedelta(minutes=1))
    assert str(windows.last_closed(window, WATERMARK_DELAY)) == str(windows.closed_until(window, WATERMARK_DELAY))


def test_a_batch_without_rows_is_planned_only_when_a_window_has_ended(
    new_platform: Callable[..., Platform], spark: SparkSession
) -> None:
    """Three drains of one minute are three batches; the one that ends it is two."""
    platform = new_platform("tests/support/shop.py")
    batches = []
    for number, at in enumerate(("00:01:05", "00:01:10", "00:01:50", "00:03:10")):
        platform.put(
            "shop",
            f"{number}.jsonl",
            [{"id": str(number), "shop": "a", "at": f"2026-01-01T{at}Z", "cents": 1, "weight": 1.0}],
        )
        platform.run("shop")
        found = platform.sql("SELECT count(*) AS n FROM onlyonce_private.batches WHERE incarnation = 'shop/per_shop/1'")
        batches.append(int(found["n"][0]))

    assert [after - before for before, after in zip([0, *batches], batches, strict=False)] == [2, 1, 1, 2]
    assert platform.table("shop/per_shop")["sales"].tolist() == [3]
