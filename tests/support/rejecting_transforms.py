"""Functions of outputs that reject records.

The first outputs fail at a record that is not sound, so they must not get one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def unsound(sales: DataFrame) -> Column:
    """Why a sale is not to be counted."""
    paid_back = F.when(F.col("cents") < 0, F.concat(F.lit("paid back: "), -F.col("cents")))
    return paid_back.when(sales["shop"].isNull(), "no shop")


def _sound(sales: DataFrame) -> Column:
    return F.when(unsound(sales).isNull(), F.col("cents")).otherwise(F.raise_error(F.lit("an unsound record")))


def per_shop(sales: DataFrame) -> DataFrame:
    """Cents of each shop in each window."""
    return sales.groupBy("oo_window", "shop").agg(F.sum(_sound(sales)).alias("cents"))


def visits(sales: DataFrame) -> DataFrame:
    """The sessions of each shop."""
    return sales.groupBy("oo_window", "shop").agg(F.count("*").alias("records"))


def each(sales: DataFrame) -> dict[str, DataFrame]:
    """Each record, small ones apart."""
    small = F.col("cents") < 10
    return {
        "each": sales.where(~small).select("id", _sound(sales).alias("cents")),
        "small": sales.where(small).select("id"),
    }
