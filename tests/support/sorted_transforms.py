"""Functions that give several results: what was paid, and what was paid back (cents below zero)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def by_window(rows: DataFrame) -> dict[str, DataFrame]:
    """Sales of each shop in each window, and how much each window has paid back."""
    back = F.col("cents") < 0
    return {
        "sales": rows.where(~back).groupBy("oo_window", "shop").agg(F.sum("cents").alias("cents")),
        "refunds": rows.where(back)
        .groupBy("oo_window")
        .agg(F.count("*").alias("refunds"), F.sum("cents").alias("back")),
    }


def total(sales: DataFrame) -> DataFrame:
    """The cents of each window, from the rows of `sales`."""
    return sales.groupBy("oo_window").agg(F.sum("cents").alias("cents"))


def one_by_one(rows: DataFrame) -> dict[str, DataFrame]:
    """Each record as it is, paid or paid back."""
    back = F.col("cents") < 0
    return {"paid_back": rows.where(back).select("id", "shop"), "paid": rows.where(~back).select("id", "cents")}


def visits(rows: DataFrame) -> dict[str, DataFrame]:
    """The sessions of each shop with the records of each kind."""
    back = F.col("cents") < 0
    return {
        "visits": rows.where(~back).groupBy("oo_window", "shop").agg(F.count("*").alias("records")),
        "odd_visits": rows.where(back).groupBy("oo_window", "shop").agg(F.count("*").alias("records")),
    }


def staged(rows: DataFrame) -> dict[str, DataFrame]:
    """Each record in its window."""
    return _apart(rows, "staged")


def files(rows: DataFrame) -> dict[str, DataFrame]:
    """The same."""
    return _apart(rows, "files")


def _apart(rows: DataFrame, name: str) -> dict[str, DataFrame]:
    back = F.col("cents") < 0
    return {
        name: rows.where(~back).select("oo_window", "id", "cents"),
        f"odd_{name}": rows.where(back).select("oo_window", "id", "shop"),
    }
