"""What is made of the rows of another pipeline's table."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def sums(shops: DataFrame) -> DataFrame:
    """Sales and cents of each shop in each hour, from those of its minutes."""
    return shops.groupBy("oo_window", "shop").agg(F.sum("sales").alias("sales"), F.sum("cents").alias("cents"))


def changes(rows: DataFrame) -> DataFrame:
    """Each change of a table."""
    return rows.select("id", "shop", "cents", "_change_type", "_commit_version")
