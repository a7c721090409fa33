"""`onlyonce replay` runs a function once."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from onlyonce import replay

pytestmark = pytest.mark.spark


def test_replay_runs_a_function_once_for_each_record(spark: SparkSession) -> None:
    """Its rows are counted, and then measured and shown."""
    calls = spark.sparkContext.accumulator(0)

    def counted(number: int) -> int:
        calls.add(1)
        return number

    rows = spark.range(20, numPartitions=1).filter(F.udf(counted, "long")("id") >= 0)

    assert replay._shown("each", rows, 100) == [{"id": number} for number in range(20)]
    assert calls.value == 20
