"""Sessions of a backfill are whole, though the span ends inside of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce import Delta, Output, Session
from onlyonce.core.backfill import OpenWindows, Span
from onlyonce.core.batch import to_micros
from onlyonce.lookups.seen import NOTHING
from onlyonce.outputs import backfill_windows
from onlyonce.outputs.backfill_windows import Backfilled
from onlyonce.receive import events
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
START = to_micros(NOON) or 0
OUTPUT = Output(
    name="bursts",
    transform="tests.support.shop_transforms:per_shop",
    window=Session(timedelta(seconds=10)),
    sink=Delta(),
)


def test_a_session_that_reaches_out_of_the_span_is_whole(spark: SparkSession) -> None:
    """A span of one microsecond, as late rows have it, has all records of the session that starts there."""
    rows = [(f"{n}", "north", NOON + timedelta(seconds=5 * n), 100, 1.0) for n in range(5)]
    kept = spark.createDataFrame(rows, SHOP.schema).withColumns(
        {
            "oo_event_time": F.col("at"),
            "oo_ingestion_time": F.lit(NOON),
            "oo_frontier": F.lit(None).cast(events.FRONTIER),
        }
    )
    context: Any = SimpleNamespace(pipeline=replace(SHOP, outputs=(OUTPUT,)), instance="shop", seen=NOTHING)
    reach: Any = SimpleNamespace(closed_until=lambda _: START + 3_600_000_000)
    span = Span(START, START + 1)

    made = backfill_windows.backfilled_sessions(context, OUTPUT, span, span, reach, kept)

    found = [(row.oo_window.start, row.oo_window.end, row.sales) for row in made.rows.collect()]
    assert [sales for _, _, sales in found] == [5]
    assert (made.counts, made.span.start) == ({"in_time": 1, "late": 0}, START)


def many(sales: DataFrame) -> DataFrame:
    """The sessions that have many records, each with its number of records."""
    counted = sales.groupBy("oo_window", "shop").agg(F.count(F.lit(1)).alias("sales"))
    return counted.filter(f"sales >= {MANY}").withColumn("twice", F.col("sales") * 2)


IN_TIME = [*range(0, 205, 5), *range(211, 400, 5), 500, 505]
"""Seconds of records: two long sessions, of which a guess at the edges reads a part, and a short one."""
MANY = 30


@pytest.mark.parametrize("late", [[], [206]], ids=["in time", "with a late record"])
@pytest.mark.parametrize("second", [0, 206, 211, 391])
def test_session_is_whole_though_its_function_leaves_out_small_ones(
    spark: SparkSession, second: int, late: list[int]
) -> None:
    """A part of a session may have too few records to have a row, at either edge of what is read."""
    span, made = backfilled(spark, second, IN_TIME, late, closed=3600)

    rows_made = made.rows.select(F.unix_micros("oo_window.start") - START, "sales").collect()
    found = {tuple(row) for row in rows_made}
    assert len(found) == len(rows_made)
    before, wanted = of_many(IN_TIME), of_many([*IN_TIME, *late])
    assert made.span.hull([(span.start, span.stop)]) == made.span
    assert found == {one for one in wanted if made.span.start <= START + one[0] < made.span.stop}
    touched = [one for one in before - wanted if second]
    assert all(made.span.start <= START + start < made.span.stop for start, _ in touched)


def test_span_holds_the_late_records_of_a_changed_session(spark: SparkSession) -> None:
    """The log then counts all of them as included, and no second backfill sends the session again."""
    _, made = backfilled(spark, 206, IN_TIME, [206, 303], closed=3600)

    assert made.span == Span(START, START + 303_000_001)
    assert made.counts is not None
    assert made.counts["late"] == 2


def test_open_session_is_refused_though_its_function_leaves_it_out(spark: SparkSession) -> None:
    """It may get more records, and the late one of the span would not be among them."""
    with pytest.raises(OpenWindows):
        backfilled(spark, 7, [9, 14], [7], closed=20)


def backfilled(
    spark: SparkSession, second: int, in_time: list[int], late: list[int], *, closed: int
) -> tuple[Span, Backfilled]:
    """A backfill of the microsecond that begins with a second; times are in seconds after noon."""
    at_once, not_yet = ((NOON + timedelta(hours=1), None, None, None), (None, None, None, None))
    met = [*((at, not_yet) for at in in_time), *((at, at_once) for at in late)]
    rows = [
        (f"{n}", "north", NOON + timedelta(seconds=at), 100, 1.0, NOON, frontier)
        for n, (at, frontier) in enumerate(met)
    ]
    kept = spark.createDataFrame(
        rows, f"{SHOP.schema}, oo_ingestion_time timestamp, oo_frontier {events.FRONTIER}"
    ).withColumn("oo_event_time", F.col("at"))
    output = replace(OUTPUT, transform="tests.spark.outputs.test_backfilled_sessions:many")
    context: Any = SimpleNamespace(pipeline=replace(SHOP, outputs=(output,)), instance="shop", seen=NOTHING)
    reach: Any = SimpleNamespace(closed_until=lambda _: START + closed * 1_000_000)
    span = Span(START + second * 1_000_000, START + second * 1_000_000 + 1)
    return span, backfill_windows.backfilled_sessions(context, output, span, span, reach, kept)


def of_many(seconds: list[int]) -> set[tuple[int, int]]:
    """The start in microseconds and the number of records of each session with many records."""
    sessions: list[list[int]] = []
    for at in sorted(seconds):
        if sessions and at - sessions[-1][-1] <= 10:
            sessions[-1].append(at)
        else:
            sessions.append([at])
    return {(one[0] * 1_000_000, len(one)) for one in sessions if len(one) >= MANY}


def test_a_session_of_maps_is_compared_with_itself_before(spark: SparkSession) -> None:
    """A late row merges two sessions; Spark's own comparison takes neither maps nor variants."""
    seconds, max_event_time = (0, 15, 8), (None, None, NOON + timedelta(hours=1))
    rows = [
        (
            f"{n}",
            "north",
            NOON + timedelta(seconds=second),
            100,
            1.0,
            NOON,
            (None, None, None, None) if at is None else (at, None, None, None),
        )
        for n, (second, at) in enumerate(zip(seconds, max_event_time, strict=True))
    ]
    kept = spark.createDataFrame(
        rows, f"{SHOP.schema}, oo_ingestion_time timestamp, oo_frontier {events.FRONTIER}"
    ).withColumn("oo_event_time", F.col("at"))
    output = replace(OUTPUT, transform="tests.support.shop_transforms:by_id")
    context: Any = SimpleNamespace(pipeline=replace(SHOP, outputs=(output,)), instance="shop", seen=NOTHING)
    reach: Any = SimpleNamespace(closed_until=lambda _: START + 3_600_000_000)
    span = Span(START + 15_000_000, START + 15_000_001)

    made = backfill_windows.backfilled_sessions(context, output, span, span, reach, kept)

    assert [row.cents for row in made.rows.collect()] == [{"0": 100, "1": 100, "2": 100}]
    assert (made.counts, made.span.start) == ({"in_time": 2, "late": 1}, START)
