"""Every kind of window, pane and sink in one pipeline."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.core.windows import Session, Sliding
from tests.support.shop import MINUTE, WATERMARK_DELAY


def plain(sales: DataFrame) -> DataFrame:
    """Each record as a row."""
    return sales.select("id", "shop", "cents")


def totals(sales: DataFrame) -> DataFrame:
    """Sums without a window."""
    return sales.groupBy("shop").agg(F.sum("cents").alias("cents"), F.count(F.lit(1)).alias("sales"))


def by_window(sales: DataFrame) -> DataFrame:
    """Sums of each shop and window."""
    return sales.groupBy("oo_window", "shop").agg(F.sum("cents").alias("cents"), F.count(F.lit(1)).alias("sales"))


def in_window(sales: DataFrame) -> DataFrame:
    """Each record as a row, with its window: no state is kept."""
    return sales.select("oo_window", "id", "shop", "cents")


ME = "tests.support.kinds"
KEYS = ("window_start", "window_end", "shop")

PIPELINES = [
    Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",),
        event_time="at",
        outputs=(
            Output(name="plain", transform=f"{ME}:plain", sink=Postgres(table="results.plain")),
            Output(name="totals", transform=f"{ME}:totals", panes="early", sink=Delta(write="upsert", keys=("shop",))),
            Output(
                name="early", transform=f"{ME}:by_window", window=MINUTE, watermark_delay=WATERMARK_DELAY, panes="early",
                sink=Delta(write="upsert", keys=KEYS),
            ),
            Output(
                name="elsewhere", transform=f"{ME}:by_window", window=MINUTE, watermark_delay=WATERMARK_DELAY,
                sink=Postgres(table="results.elsewhere", write="upsert", keys=KEYS, connection="TEST_OTHER_DATABASE"),
            ),
            Output(
                name="sliding", transform=f"{ME}:by_window", sink=Delta(), watermark_delay=WATERMARK_DELAY,
                window=Sliding(timedelta(minutes=2), timedelta(minutes=1)),
            ),
            Output(name="session", transform=f"{ME}:by_window", window=Session(timedelta(seconds=20)), watermark_delay=WATERMARK_DELAY, sink=Delta()),
        ),
    )
]  # fmt: skip
