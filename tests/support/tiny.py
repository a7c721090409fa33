"""The smallest pipelines for a crash test: one sink that adds up what it is given twice, one batch for each file."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.model.declare import Files, Output, Pipeline, Postgres


def each(sales: DataFrame) -> DataFrame:
    """Each sale as it is."""
    return sales.select("id", "shop", "cents", "weight")


def shaky(sales: DataFrame) -> DataFrame:
    """Each sale with something else each time."""
    return each(sales).withColumn("chance", F.rand()).withColumn("seen", F.current_timestamp())


def _pipeline(name: str) -> Pipeline:
    written = Output(name="written", transform=f"tests.support.tiny:{name}", sink=Postgres(table="results.written"))
    return Pipeline(
        name=name, source=Files(max_files_a_batch=1), schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",), event_time="at", outputs=(written,),
    )  # fmt: skip


PIPELINES = [_pipeline("each"), _pipeline("shaky")]
