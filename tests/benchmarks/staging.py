"""The pipeline of the benchmark of staging: one function, whose rows one output stages and the other does not."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline


def scored(rows: DataFrame) -> DataFrame:
    """Each record with a value that is computed from it."""
    return rows.select("id", "key", F.xxhash64("id", "key").alias("score"))


PIPELINES = [
    Pipeline(
        name="bench", source=Files(max_files_a_batch=1), schema="id long, key long, at timestamp", record_id=("id",),
        event_time="at",
        outputs=(
            Output(name="plain", transform="tests.benchmarks.staging:scored", sink=Delta(), stable_input=False),
            Output(name="staged", transform="tests.benchmarks.staging:scored", sink=Delta(), stable_input=True),
        ),
    )
]  # fmt: skip
