"""A pipeline that brings a record's shop to each kind of place: state, Delta tables, files, a PostgreSQL table, rejected rows."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.declare.pipeline import Delta, FileSink, Output, Postgres
from tests.support.shop import LATENESS, MINUTE, SHOP

T = "tests.support.shop_transforms:"


def unsound(sales: DataFrame) -> Column:
    """Why a sale is not to be counted, with a value of it."""
    return F.when(F.col("cents") < 0, F.concat(F.lit("paid back by "), F.col("shop")))


PIPELINES = [
    replace(
        SHOP,
        outputs=(
            Output(
                name="per_shop", transform=f"{T}per_shop", window=MINUTE, lateness=LATENESS, sink=Delta(), reject="tests.support.marked_shop:unsound",
            ),
            Output(name="filed", transform=f"{T}per_shop", window=MINUTE, lateness=LATENESS, sink=FileSink(shards=1, format="parquet")),
            Output(name="each", transform=f"{T}each", sink=Postgres(table="results.each", write="append")),
        ),
    )
]  # fmt: skip
