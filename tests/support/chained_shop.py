"""Minutes into five minutes into ten: the first two fold late records in by themselves, the last leaves them to a
backfill.

And windows that overlap into five minutes, which both leave them."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce import Delta, Files, Fixed, Output, Pipeline, Postgres, Sliding

ME = "tests.support.chained_shop"
MINUTE = timedelta(minutes=1)
WATERMARK_DELAY = timedelta(seconds=10)


def per_shop(records: DataFrame) -> DataFrame:
    """What a shop has sold in each window."""
    return records.groupBy("oo_window", "shop").agg(F.count(F.lit(1)).alias("sales"), F.sum("cents").alias("cents"))


def best(windows: DataFrame) -> DataFrame:
    """Of the closed windows in each window: how many there are, the best of them, and what was sold in all."""
    return windows.groupBy("oo_window", "shop").agg(
        F.count(F.lit(1)).alias("windows"),
        F.max("cents").alias("best"),
        F.sum("sales").alias("sales"),
        F.sum("cents").alias("cents"),
    )


def pipeline(name: str, *outputs: Output) -> Pipeline:
    """A pipeline of these."""
    return Pipeline(
        name=name,
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp, cents long",
        record_id="id",
        event_time="at",
        outputs=outputs,
    )


PIPELINES = [
    pipeline(
        "shop",
        Output(
            name="tens", from_output="fives", transform=f"{ME}:best", window=Fixed(10 * MINUTE), watermark_delay=WATERMARK_DELAY,
            sink=Delta(write="upsert", keys=("window_start", "shop")),
        ),
        Output(
            name="fives", from_output="minutes", transform=f"{ME}:best", window=Fixed(5 * MINUTE), watermark_delay=2 * WATERMARK_DELAY, late="backfill",
            sink=Postgres(table="results.fives", write="append"),
        ),
        Output(name="minutes", transform=f"{ME}:per_shop", window=Fixed(MINUTE), watermark_delay=WATERMARK_DELAY, late="backfill", sink=Delta()),
    ),
    pipeline(
        "loose",
        Output(name="near", transform=f"{ME}:per_shop", window=Sliding(2 * MINUTE, MINUTE), watermark_delay=WATERMARK_DELAY, sink=Delta()),
        Output(name="of_near", from_output="near", transform=f"{ME}:best", window=Fixed(5 * MINUTE), sink=Delta()),
        Output(name="of_of_near", from_output="of_near", transform=f"{ME}:best", window=Fixed(10 * MINUTE), sink=Delta()),
    ),
]  # fmt: skip
