"""The functions of the outputs that `tests/spark/run/test_broken_outputs.py` breaks."""

from __future__ import annotations

from pyspark.sql import DataFrame


def ids(sales: DataFrame) -> DataFrame:
    """Return the ids of the records."""
    return sales.select("id")


def found(sales: DataFrame, cities: DataFrame) -> DataFrame:
    """Return the ids of records whose shop is in a lookup."""
    return sales.join(cities, "shop").select("id")
