"""The transforms of the test pipeline."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def per_shop(sales: DataFrame) -> DataFrame:
    """Sales, cents and weight of each shop in each window."""
    return sales.groupBy("oo_window", "shop").agg(
        F.count(F.lit(1)).alias("sales"), F.sum("cents").alias("cents"), F.sum("weight").alias("weight")
    )


def total(shops: DataFrame) -> DataFrame:
    """Sales and cents of each window, from the rows of `per_shop`."""
    return shops.groupBy("oo_window").agg(F.sum("sales").alias("sales"), F.sum("cents").alias("cents"))


def balance(sales: DataFrame) -> DataFrame:
    """What each window adds to each shop's balance: a non-idempotent effect. No window in the rows."""
    return sales.groupBy("oo_window", "shop").agg(F.sum("cents").alias("cents"), F.count(F.lit(1)).alias("sales"))


def each(sales: DataFrame) -> DataFrame:
    """Each sale as it is, without a window."""
    return sales.select("id", "shop", "cents")


def newest(sales: DataFrame) -> DataFrame:
    """Each sale as a change of its shop, of which every other one deletes it."""
    return sales.select(
        "shop",
        F.date_format("at", "yyyy-MM-dd HH:mm:ss").alias("at"),
        "id",
        "cents",
        (F.col("cents") % 2 == 0).alias("gone"),
    )


def by_id(sales: DataFrame) -> DataFrame:
    """The cents of each sale by its id, as a map and as a variant, of each shop in each window."""
    cents = F.map_from_entries(F.array_sort(F.collect_list(F.struct("id", "cents"))))
    return sales.groupBy("oo_window", "shop").agg(
        cents.alias("cents"), F.parse_json(F.to_json(cents)).alias("document")
    )
