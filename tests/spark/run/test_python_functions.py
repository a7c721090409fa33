"""Python functions in the session of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark


@pytest.mark.timeout(120)
def test_a_python_function_of_a_tables_columns_comes_to_an_end(spark: SparkSession, tmp_path: Path) -> None:
    """Spark 4.2.0 sends the columns of a Parquet file as they are, unless told otherwise; the function then waits for
    ever."""
    spark.range(10).write.format("delta").save(str(tmp_path / "numbers"))
    numbers = spark.read.format("delta").load(str(tmp_path / "numbers"))
    plus_one = F.udf(lambda number: number + 1, "long")

    assert sorted(numbers.select(plus_one("id")).toArrow()[0].to_pylist()) == list(range(1, 11))
