"""The pipeline of the benchmarks: one windowed output, and a transform as people write them."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.core.windows import Fixed

HOUR = timedelta(hours=1)


def per_key(rows: DataFrame) -> DataFrame:
    """Count, sum and mean of each key in each hour."""
    return rows.groupBy("oo_window", "key").agg(
        F.count(F.lit(1)).alias("rows"), F.sum("amount").alias("amount"), F.avg("amount").alias("mean")
    )


PIPELINES = [
    Pipeline(
        name="bench",
        source=Files(max_files_a_batch=4),
        schema="id long, key long, at timestamp, amount long",
        record_id=("id",),
        event_time="at",
        outputs=(
            Output(
                name="per_key", transform="tests.benchmarks.pipelines:per_key", window=Fixed(HOUR), watermark_delay=HOUR,
                sink=Delta(),
            ),
        ),
    )
]  # fmt: skip
