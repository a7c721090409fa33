"""A pipeline that brings a record's shop to each kind of place: state of an aggregate and of a join, Delta tables,
files, PostgreSQL tables, copies of a lookup, rejected rows."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.api.joins_and_state import Join, Lookup
from onlyonce.api.pipeline import Delta, FileSink, Output, Postgres
from tests.support.shop import MINUTE, SHOP, WATERMARK_DELAY

T = "tests.support.shop_transforms:"


def unsound(sales: DataFrame) -> Column:
    """Why a sale is not to be counted, with a value of it."""
    return F.when(F.col("cents") < 0, F.concat(F.lit("paid back by "), F.col("shop")))


def sold(sales: DataFrame) -> DataFrame:
    """The sales."""
    return sales.where("cents >= 0").select("shop", "oo_event_time", F.col("id").alias("sold"))


def returned(sales: DataFrame) -> DataFrame:
    """What was paid back."""
    return sales.where("cents < 0").select("shop", "oo_event_time", F.col("id").alias("returned"))


def owned(sales: DataFrame, owners: DataFrame) -> DataFrame:
    """Each sale with the owner of its shop."""
    return sales.join(owners, "shop", "left").select("id", "shop", "owner")


PAIRS = Join(
    left="tests.support.marked_shop:sold", right="tests.support.marked_shop:returned", on="shop", within=MINUTE.size
)
JOINED = Output(name="pairs", join=PAIRS, window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=Delta())
LOOKED_UP = Output(
    name="owned",
    transform="tests.support.marked_shop:owned",
    lookups=(Lookup(name="owners", table=Postgres(table="public.owners"), keys="shop"),),
    sink=Delta(),
)

PIPELINES = [
    replace(
        SHOP,
        outputs=(
            Output(
                name="per_shop", transform=f"{T}per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=Delta(), reject="tests.support.marked_shop:unsound",
            ),
            Output(name="filed", transform=f"{T}per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=FileSink(shards=1, format="parquet")),
            JOINED,
            Output(name="each", transform=f"{T}each", sink=Postgres(table="results.each", write="append")),
            Output(name="replaced", transform=f"{T}per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=Postgres(table="results.replaced")),
            LOOKED_UP,
        ),
    )
]  # fmt: skip
