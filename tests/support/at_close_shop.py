"""A pipeline whose functions get all records of a window when it closes: of fixed and of sliding windows, and one that
no stream of Spark could run.

And one with a state.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from onlyonce import Delta, Fixed, Output, Postgres, Sliding
from tests.support import shop

MINUTE = timedelta(minutes=1)
HERE = "tests.support.shop_transforms"


def largest(sales: DataFrame) -> DataFrame:
    """The largest sale of each shop in each window, by rank: an operation that Spark refuses of a stream."""
    place = F.row_number().over(Window.partitionBy("oo_window", "shop").orderBy(F.desc("cents"), "id"))
    return sales.withColumn("place", place).filter("place = 1").select("oo_window", "shop", "id", "cents")


def newest(sales: DataFrame) -> DataFrame:
    """The newest window of those that close. An aggregate without a group gives a row of no records, too."""
    return sales.agg(F.max("oo_window").alias("oo_window"), F.count(F.lit(1)).alias("sales"))


def rolled_up(sales: DataFrame) -> DataFrame:
    """The sales of each window, and of all windows together: that row has no window."""
    return sales.rollup("oo_window").agg(F.count(F.lit(1)).alias("sales"))


SHOP = replace(
    shop.SHOP,
    outputs=(
        Output(
            name="counted",
            transform=f"{HERE}:per_shop",
            window=Fixed(5 * MINUTE),
            watermark_delay=MINUTE,
            panes="at_close",
            sink=Postgres(table="results.counted"),
        ),
        Output(
            name="sliding",
            transform=f"{HERE}:per_shop",
            window=Sliding(4 * MINUTE, 2 * MINUTE),
            panes="at_close",
            sink=Delta(),
        ),
        Output(
            name="largest",
            transform="tests.support.at_close_shop:largest",
            window=Fixed(MINUTE),
            panes="at_close",
            sink=Delta(),
        ),
        Output(name="by_state", transform=f"{HERE}:per_shop", window=Fixed(MINUTE), sink=Delta()),
    ),
)

TOLD = replace(
    shop.SHOP, name="told", outputs=(Output(name="newest", transform="tests.support.at_close_shop:newest", window=Fixed(5 * MINUTE), panes="at_close", sink=Delta()),)
)  # fmt: skip

ROLLED_UP = replace(
    shop.SHOP, name="rolled", outputs=(Output(name="rolled_up", transform="tests.support.at_close_shop:rolled_up", window=Fixed(5 * MINUTE), panes="at_close", sink=Postgres(table="results.rolled_up")),)
)  # fmt: skip

PIPELINES = [SHOP, TOLD, ROLLED_UP]
