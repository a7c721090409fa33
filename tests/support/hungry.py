"""The pipeline `shop` with an output that asks for more memory than any driver has."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Delta, Output
from tests.support.shop import SHOP


def hungry(sales: DataFrame) -> DataFrame:
    """Each sale with a text of two thousand million letters."""
    return sales.select("id", F.repeat(F.substring("id", 1, 1), F.lit(2_000_000_000)).alias("text"))


PIPELINES = [replace(SHOP, outputs=(Output(name="hungry", transform="tests.support.hungry:hungry", sink=Delta()),))]
