"""The functions of the pipeline in `sending.py`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def sale(sales: DataFrame) -> DataFrame:
    """Each record as a row, with a null and a number that JSON may spoil."""
    return sales.select("id", "shop", "at", "cents", "weight", F.lit(None).cast("string").alias("note"))


def numbered(sales: DataFrame) -> DataFrame:
    """Each record as a row; those of one shop don't fit the table."""
    return sales.select("id", F.when(F.col("shop") != "shop-3", F.col("cents")).alias("n"))
