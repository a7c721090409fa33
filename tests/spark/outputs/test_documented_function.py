"""The function that the README shows gives what the README says."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

import jobs.pipelines
from onlyonce.settings import ROOT
from tests.docs.pages import blocks


@pytest.mark.slow
def test_the_tests_that_a_page_shows_pass(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of how to test a pipeline, as a reader has them beside a `pipelines.py` of their own."""
    monkeypatch.setitem(sys.modules, "pipelines", jobs.pipelines)
    names: dict[str, Any] = {}
    for block in (block for block in blocks("python") if block.page.name == "test-your-pipeline.md"):
        exec(block.text, names)
    shown = [function for name, function in names.items() if name.startswith("test_")]
    assert len(shown) == 2
    for function in shown:
        function()


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
