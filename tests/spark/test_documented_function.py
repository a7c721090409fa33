"""The function that the README shows gives what the README says."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from onlyonce.settings import ROOT
from tests.docs.pages import blocks


def test_the_function_of_the_readme_counts_by_window_and_carrier(spark: SparkSession) -> None:
    """As it stands there, on the columns that the platform gives it."""
    names: dict[str, Any] = {}
    for block in (block for block in blocks("python") if block.page == ROOT / "README.md"):
        exec(block.text, names)
    hour = (datetime(2013, 1, 29, 5), datetime(2013, 1, 29, 6))
    schema = "oo_window struct<start timestamp, end timestamp>, carrier string, arr_delay long"
    flights = spark.createDataFrame([(hour, "AA", 4), (hour, "AA", 8), (hour, "UA", None)], schema)

    rows = {(row.carrier, row.flights, row.delay) for row in names["flights_per_carrier"](flights).collect()}

    assert rows == {("AA", 2, 6.0), ("UA", 1, None)}
