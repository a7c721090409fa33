"""The pipeline `shop` with a function whose result differs each time it is computed, for each sink whose unit is
committed before its rows."""

from __future__ import annotations

import random
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Delta, Iceberg, Output
from tests.support.iceberg_shop import CATALOG
from tests.support.shop import SHOP


def chances(sales: DataFrame) -> DataFrame:
    """Each sale with a number that no two attempts share, which Spark is not told."""
    return sales.select("id", F.udf(lambda _: random.SystemRandom().random(), "double")("id").alias("chance"))


_HERE = "tests.support.backfilled_shop:chances"

PIPELINES = [
    replace(
        SHOP,
        outputs=(
            Output(name="added", transform=_HERE, sink=Delta()),
            Output(name="replaced", transform=_HERE, sink=Delta(write="upsert", keys=("id",))),
            Output(name="iced", transform=_HERE, sink=Iceberg(table="results.iced", catalog=CATALOG)),
        ),
    )
]
