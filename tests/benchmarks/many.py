"""A pipeline with twenty small outputs: rows as they come and windows, to Delta and to PostgreSQL, five of each."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.core.windows import Fixed

HOUR = timedelta(hours=1)
EACH = 5
"""Outputs of each of the four kinds."""


def as_they_come(rows: DataFrame) -> DataFrame:
    """Each record, with a column more."""
    return rows.select("id", "key", "at", (F.col("amount") * 2).alias("twice"))


def per_key(rows: DataFrame) -> DataFrame:
    """Count and sum of each key in each hour."""
    return rows.groupBy("oo_window", "key").agg(F.count(F.lit(1)).alias("rows"), F.sum("amount").alias("amount"))


def _outputs(number: int) -> tuple[Output, ...]:
    me = "tests.benchmarks.many"
    return (
        Output(name=f"rows_delta_{number}", transform=f"{me}:as_they_come", sink=Delta()),
        Output(
            name=f"windows_delta_{number}", transform=f"{me}:per_key", window=Fixed(HOUR), watermark_delay=HOUR, sink=Delta(),
        ),
        Output(
            name=f"rows_postgres_{number}", transform=f"{me}:as_they_come", sink=Postgres(table=f"many.rows_{number}"),
        ),
        Output(
            name=f"windows_postgres_{number}", transform=f"{me}:per_key", window=Fixed(HOUR), watermark_delay=HOUR,
            sink=Postgres(table=f"many.windows_{number}"),
        ),
    )  # fmt: skip


PIPELINES = [
    Pipeline(
        name="many",
        source=Files(max_files_a_batch=4),
        schema="id string, key long, at timestamp, amount long",
        record_id=("id",),
        event_time="at",
        max_ahead=timedelta(days=36500),
        outputs=tuple(output for number in range(EACH) for output in _outputs(number)),
    )
]
