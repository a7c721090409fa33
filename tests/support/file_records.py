"""The test pipeline's records as they are, in a file of each of the windows that hold them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from pyspark.sql import DataFrame

from onlyonce.api.pipeline import FileSink, Output
from onlyonce.core.windows import Sliding
from tests.support.shop import SHOP, WATERMARK_DELAY

TWO_MINUTES = Sliding(timedelta(minutes=2), slide=timedelta(minutes=1))


def records(sales: DataFrame) -> DataFrame:
    """Each sale as it is, with its window."""
    return sales.select("oo_window", "id")


PIPELINES = [
    replace(
        SHOP,
        outputs=(
            Output(
                name="records", transform="tests.support.file_records:records", window=TWO_MINUTES, watermark_delay=WATERMARK_DELAY,
                sink=FileSink(format="csv", shards=1),
            ),
        ),
    )
]  # fmt: skip
