"""Sessions of a backfill are whole, though the span ends inside of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from onlyonce import Delta, Output, Session
from onlyonce.core.backfill import Span
from onlyonce.core.batch import to_micros
from onlyonce.lookups.seen import NOTHING
from onlyonce.outputs import backfill_windows
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
    context: Any = SimpleNamespace(pipeline=replace(SHOP, outputs=(OUTPUT,)), seen=NOTHING)
    reach: Any = SimpleNamespace(closed_until=lambda _: START + 3_600_000_000)
    span = Span(START, START + 1)

    made = backfill_windows.backfilled_sessions(context, OUTPUT, span, span, reach, kept)

    found = [(row.oo_window.start, row.oo_window.end, row.sales) for row in made.rows.collect()]
    assert [sales for _, _, sales in found] == [5]
    assert (made.counts, made.span.start) == ({"in_time": 1, "late": 0}, START)


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
    context: Any = SimpleNamespace(pipeline=replace(SHOP, outputs=(output,)), seen=NOTHING)
    reach: Any = SimpleNamespace(closed_until=lambda _: START + 3_600_000_000)
    span = Span(START + 15_000_000, START + 15_000_001)

    made = backfill_windows.backfilled_sessions(context, output, span, span, reach, kept)

    assert [row.cents for row in made.rows.collect()] == [{"0": 100, "1": 100, "2": 100}]
    assert (made.counts, made.span.start) == ({"in_time": 2, "late": 1}, START)
