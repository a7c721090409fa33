"""Two outputs that an erasure computes again. The function of one fails while a file has the name in ERASED_FAILS."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame

from onlyonce.api.pipeline import FileSink, Output, Postgres
from tests.support.shop import MINUTE, SHOP, WATERMARK_DELAY
from tests.support.shop_transforms import per_shop


def failing(sales: DataFrame) -> DataFrame:
    """Return the rows of `per_shop`, or fail as a person's function does."""
    if Path(os.environ["ERASED_FAILS"]).exists():
        raise ValueError("the function has a fault")
    return per_shop(sales)


PIPELINES = [
    replace(
        SHOP,
        outputs=(
            Output(
                name="broken", transform="tests.support.erased_outputs:failing", window=MINUTE, watermark_delay=WATERMARK_DELAY,
                sink=Postgres(table="results.broken", write="append"),
            ),
            Output(
                name="filed", transform="tests.support.shop_transforms:per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY,
                sink=FileSink(shards=1),
            ),
        ),
    )
]  # fmt: skip
