"""Orders and payments in one stream, joined by order in each kind of join, into both kinds of tables."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.joins_and_state import Join
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.core.windows import Fixed

ME = "tests.support.joined_shop"
WITHIN = timedelta(seconds=30)
WATERMARK_DELAY = timedelta(seconds=10)
MINUTE = Fixed(timedelta(minutes=1))


def orders(records: DataFrame) -> DataFrame:
    """The records that are orders."""
    return records.where("kind = 'order'").select("shop", "oo_event_time", F.col("id").alias("order_id"))


def payments(records: DataFrame) -> DataFrame:
    """The records that are payments."""
    return records.where("kind = 'payment'").select("shop", "oo_event_time", F.col("id").alias("payment_id"), "cents")


def join(kind: str) -> Join:
    """One of the joins."""
    return Join(left=f"{ME}:orders", right=f"{ME}:payments", on="shop", within=WITHIN, kind=kind)  # type: ignore[arg-type]


PIPELINES = [
    Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema="id string, kind string, shop string, at timestamp, cents long",
        record_id="id",
        event_time="at",
        outputs=[
            Output(name="paid", join=join("inner"), window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=Delta()),
            Output(
                name="all_of_both",
                join=join("full"),
                window=MINUTE,
                watermark_delay=WATERMARK_DELAY,
                late="backfill",
                sink=Postgres(table="results.all_of_both", write="append"),
            ),
        ],
    )
]
