"""The smallest pipelines for a crash test: one sink that adds up what it is given twice, one batch for each file."""

from __future__ import annotations

import random
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Files, FileSink, Output, Pipeline, Postgres, Webhook


def each(sales: DataFrame) -> DataFrame:
    """Each sale as it is."""
    return sales.select("id", "shop", "cents", "weight")


def shaky(sales: DataFrame) -> DataFrame:
    """Each sale with something else each time, which Spark's plan does not show: what it shows is staged."""
    return each(sales).withColumn("chance", F.udf(lambda _: random.random(), "double")("id"))


def _pipeline(name: str, table: str = "results.written") -> Pipeline:
    written = Output(name="written", transform=f"tests.support.tiny:{name}", sink=Postgres(table=table))
    return Pipeline(
        name=name, source=Files(max_files_a_batch=1), schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",), event_time="at", outputs=(written,),
    )  # fmt: skip


OUTSIDE = replace(
    _pipeline("each"), name="outside",
    outputs=(
        Output(name="filed", transform="tests.support.tiny:each", sink=FileSink(shards=2)),
        Output(name="told", transform="tests.support.tiny:each", sink=Webhook(url="https://nobody.invalid/", keys=("shop",))),
    ),
)  # fmt: skip
"""What is written to files, and what is sent."""

PIPELINES = [_pipeline("each"), _pipeline("shaky", "results.shaky"), OUTSIDE]
