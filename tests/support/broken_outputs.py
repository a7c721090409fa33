"""The function of the output that `tests/spark/run/test_broken_outputs.py` breaks."""

from __future__ import annotations

from pyspark.sql import DataFrame


def ids(sales: DataFrame) -> DataFrame:
    """Return the ids of the records."""
    return sales.select("id")
