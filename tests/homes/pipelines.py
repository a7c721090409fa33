"""The pipelines of the home of format 1: declarations and functions that stay as they are while that home is tested.

A begun batch ends under the declaration that began it, so a change here needs the home made again.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce import Delta, Files, Fixed, Growing, Output, Pipeline, Postgres, Session, Sliding, Webhook

ME = "tests.homes.pipelines"
MINUTE, DELAY = Fixed(timedelta(minutes=1)), timedelta(minutes=1)
SALES = "id string, shop string, at timestamp, cents long, weight double"
IDS = {
    "a_string": "string", "a_boolean": "boolean", "a_tinyint": "tinyint", "a_smallint": "smallint", "an_int": "int",
    "a_bigint": "bigint", "a_float": "float", "a_double": "double", "a_decimal": "decimal(12,2)",
    "a_long_decimal": "decimal(38,18)", "a_date": "date", "a_timestamp": "timestamp",
    "a_timestamp_ntz": "timestamp_ntz", "a_binary": "binary",
}  # fmt: skip
"""A column of each type that a record id may have."""


def each(rows: DataFrame) -> DataFrame:
    """Return each sale as it is."""
    return rows.select("id", "shop", "cents")


def each_id(rows: DataFrame) -> DataFrame:
    """Return each record's columns."""
    return rows.select(*IDS)


def with_time(rows: DataFrame) -> DataFrame:
    """Return each sale with its time, in UTC."""
    return rows.select("id", "shop", F.date_format("at", "yyyy-MM-dd HH:mm:ss").alias("at"), "cents")


def by_window(rows: DataFrame) -> DataFrame:
    """Return the sums of each shop and window."""
    return rows.groupBy("oo_window", "shop").agg(F.count(F.lit(1)).alias("sales"), F.sum("cents").alias("cents"))


def total(shops: DataFrame) -> DataFrame:
    """Return the sums of each window, from the rows of each shop."""
    return shops.groupBy("oo_window").agg(F.sum("sales").alias("sales"), F.sum("cents").alias("cents"))


def sevenths(rows: DataFrame) -> Column:
    """Return why a sale is rejected."""
    return F.when(F.col("cents") % 7 == 0, "cents that seven divides")


PIPELINES = (
    Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema=SALES,
        record_id="id",
        event_time="at",
        partitions=2,
        outputs=(
            Output(name="per_shop", transform=f"{ME}:by_window", window=MINUTE, watermark_delay=DELAY, sink=Delta()),
            Output(name="total", transform=f"{ME}:total", from_output="per_shop", sink=Postgres(table="results.total")),
            Output(
                name="balance", transform=f"{ME}:by_window", window=MINUTE, watermark_delay=DELAY, on_backfill="skip",
                sink=Postgres(table="results.balance", write="increment", keys=("shop",)),
            ),
            Output(
                name="visits", transform=f"{ME}:by_window", window=Session(timedelta(seconds=20.5)),
                watermark_delay=DELAY, sink=Delta(),
            ),
            Output(
                name="sliding", transform=f"{ME}:by_window", window=Sliding(timedelta(minutes=2), timedelta(minutes=1)),
                watermark_delay=DELAY, sink=Delta(),
            ),
            Output(
                name="sound", transform=f"{ME}:each", reject=f"{ME}:sevenths", sink=Postgres(table="results.sound")
            ),
        ),
    ),
    Pipeline(
        name="ids",
        source=Files(max_files_a_batch=1),
        schema=", ".join(f"{name} {kind}" for name, kind in IDS.items()) + ", at timestamp",
        record_id=tuple(IDS),
        event_time="at",
        outputs=(
            Output(
                name="staged", transform=f"{ME}:each_id", stable_input=True, sink=Postgres(table="results.staged")
            ),
            Output(name="plain", transform=f"{ME}:each_id", sink=Delta()),
        ),
    ),
    Pipeline(
        name="log",
        source=Growing(),
        schema=SALES,
        record_id="id",
        event_time="at",
        outputs=(
            Output(
                name="notify", transform=f"{ME}:with_time",
                sink=Webhook(connection="TEST_ENDPOINT", keys=("shop",), pause=timedelta(milliseconds=20)),
            ),
            Output(name="per_minute", transform=f"{ME}:by_window", window=MINUTE, watermark_delay=DELAY, sink=Delta()),
        ),
    ),
    Pipeline(
        name="places",
        source=Files(max_files_a_batch=1),
        schema=SALES,
        record_id=(),
        event_time="at",
        outputs=(Output(name="each", transform=f"{ME}:each", sink=Delta()),),
    ),
)  # fmt: skip
