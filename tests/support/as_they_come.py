"""Outputs whose rows Spark gives in the batch that reads them: by the batch into tables, by the window into files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Delta, Files, FileSink, Output, Pipeline
from onlyonce.core.windows import Sliding
from tests.support.shop import MINUTE, WATERMARK_DELAY


def joined(sales: DataFrame) -> DataFrame:
    """Each record, joined with a table that is no stream, and through a function of Python's."""
    names = sales.sparkSession.createDataFrame([("a", "Anna"), ("b", "Bert")], "shop string, name string")
    known = names.groupBy("shop").agg(F.max("name").alias("name"))
    rows = sales.join(F.broadcast(known), "shop").select("oo_window.start", "oo_window.end", "id", "name")
    told = rows.mapInPandas(_same, rows.schema)
    return told.select(F.struct("start", "end").alias("oo_window"), "id", "name")


def _same(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    yield from parts


ME = "tests.support.as_they_come"
SLIDING = Sliding(timedelta(minutes=2), timedelta(minutes=1))

PIPELINES = [
    Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",),
        event_time="at",
        outputs=(
            Output(name="raw", transform=f"{ME}:joined", window=SLIDING, watermark_delay=WATERMARK_DELAY, sink=Delta()),
            Output(name="files", transform=f"{ME}:joined", window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=FileSink(shards=1)),
        ),
    )
]  # fmt: skip
