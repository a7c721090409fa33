"""Pipelines whose functions are not deterministic: with and without stable input."""

from __future__ import annotations

import random
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.core.windows import Fixed

_chance = F.udf(lambda _: random.random(), DoubleType())
SCHEMA = "id string, shop string, at timestamp, cents long, weight double"


def restless(sales: DataFrame) -> DataFrame:
    """Another number of rows, and other values, at each call."""
    return sales.select("id", "cents", F.rand().alias("chance"), F.current_timestamp().alias("seen")).filter(
        (F.rand() < 0.8) & (F.xxhash64("id", F.current_timestamp()) % 5 != 0)
    )


def unseen(sales: DataFrame) -> DataFrame:
    """The same by a Python function, of which Spark can't know it: where Spark can, the check before a run refuses
    it."""
    rows = sales.select("id", "cents", _chance("id").alias("chance"), F.current_timestamp().alias("seen"))
    return rows.filter((_chance("cents") < 0.8) & (F.xxhash64("id", F.current_timestamp()) % 5 != 0))


def _pipeline(name: str, *, stable: bool) -> Pipeline:
    transform = f"tests.support.restless:{'restless' if stable else 'unseen'}"
    delta = Output(name="picked", transform=transform, sink=Delta(), stable_input=stable)
    postgres = Output(
        name="stored", transform=transform, stable_input=stable,
        sink=Postgres(table=f"results.{name}"),
    )  # fmt: skip
    return Pipeline(
        name=name, source=Files(max_files_a_batch=1), schema=SCHEMA, record_id=("id",), event_time="at",
        outputs=(delta, postgres),
    )  # fmt: skip


def per_shop(sales: DataFrame) -> DataFrame:
    """The cents of each shop."""
    return sales.groupBy("oo_window", "shop").agg(F.sum("cents").alias("cents"))


def drawn(shops: DataFrame) -> DataFrame:
    """Each shop of a window with another number at each call."""
    return shops.select("oo_window", "shop", F.rand().alias("chance"))


def _chained() -> Pipeline:
    root = Output(
        name="per_shop", transform="tests.support.restless:per_shop", window=Fixed(timedelta(minutes=1)), sink=Delta()
    )
    made = Output(
        name="drawn", transform="tests.support.restless:drawn", from_output="per_shop", sink=Delta(), stable_input=True
    )
    return Pipeline(
        name="chained", source=Files(), schema=SCHEMA, record_id=("id",), event_time="at", outputs=(root, made)
    )


PIPELINES = [_pipeline("stable", stable=True), _pipeline("restless", stable=False), _chained()]
