"""The smallest pipeline with a sink: each record is a row. For tests of what comes in."""

from __future__ import annotations

from pyspark.sql import DataFrame

from onlyonce.api.pipeline import Files, Output, Pipeline, Postgres


def rows(records: DataFrame) -> DataFrame:
    """Each record as a row."""
    return records.select("id", "shop", "at", "cents", "weight")


PIPELINES = [
    Pipeline(
        name="plain",
        source=Files(max_files_a_batch=100),
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",),
        event_time="at",
        outputs=(Output(name="rows", transform="tests.support.plain:rows", sink=Postgres(table="results.rows")),),
    )
]
