"""Pipelines whose functions are not deterministic: one whose plan says so, and one of a Python function, which does not.

`restless_told` declares the latter's stable input.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import DoubleType

from onlyonce.api.joins_and_state import Join, Stateful
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
    """The same by a Python function, of which Spark's plan shows nothing: what it shows is staged."""
    rows = sales.select("id", "cents", _chance("id").alias("chance"))
    return rows.filter(_chance("cents") < 0.6)


def picked(name: str, function: str, stable: bool | None = None) -> Pipeline:
    """Two outputs of one function."""
    transform = f"tests.support.restless:{function}"
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
    made = Output(name="drawn", transform="tests.support.restless:drawn", from_output="per_shop", sink=Delta())
    return Pipeline(
        name="chained", source=Files(), schema=SCHEMA, record_id=("id",), event_time="at", outputs=(root, made)
    )


def marked(sales: DataFrame) -> dict[str, DataFrame]:
    """Two results: each row of the further one has a random value of its own."""
    dear = F.col("cents") > 100
    return {
        "cheap": sales.filter(~dear).select("id"),
        "dear": sales.filter(dear).select("id", F.expr("uuid()").alias("mark")),
    }


def _results() -> Pipeline:
    return Pipeline(
        name="results", source=Files(), schema=SCHEMA, record_id=("id",), event_time="at",
        outputs=(
            Output(name="cheap", transform="tests.support.restless:marked", sink=Delta()),
            Output(name="dear", from_output="cheap", sink=Delta()),
        ),
    )  # fmt: skip


def with_number(sales: DataFrame) -> DataFrame:
    """The left side of a join, with a random value."""
    return sales.select("id", "oo_event_time", F.rand().alias("number"))


def with_cents(sales: DataFrame) -> DataFrame:
    """The right side."""
    return sales.select("id", "oo_event_time", "cents")


def _joined() -> Pipeline:
    join = Join(
        left="tests.support.restless:with_number", right="tests.support.restless:with_cents", on="id",
        within=timedelta(seconds=1),
    )  # fmt: skip
    return Pipeline(
        name="joined", source=Files(), schema=SCHEMA, record_id=("id",), event_time="at",
        outputs=(Output(name="pairs", join=join, sink=Delta(), watermark_delay=timedelta(hours=1)),),
    )  # fmt: skip


class Drawing(StatefulProcessor):
    """Numbers the records of a shop, which is its state, and gives each a value by chance, which is not."""

    def init(self, handle: Any) -> None:
        """How many records there were."""
        self.seen = handle.getValueState("seen", "records long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """A row for each record."""
        for frame in rows:
            first = self.seen.get()[0] if self.seen.exists() else 0
            self.seen.update((first + len(frame),))
            numbers = range(first, first + len(frame))
            yield pd.DataFrame({"id": frame["id"], "number": numbers, "chance": [random.random() for _ in numbers]})

    def close(self) -> None:
        """Nothing is open."""


def _stateful() -> Pipeline:
    stateful = Stateful(
        processor="tests.support.restless:Drawing", keys="shop", schema="id string, number long, chance double",
        timers_within=timedelta(0),
    )  # fmt: skip
    return Pipeline(
        name="numbered", source=Files(max_files_a_batch=1), schema=SCHEMA, record_id=("id",), event_time="at",
        outputs=(
            Output(name="drawn", stateful=stateful, sink=Delta(), stable_input=True, watermark_delay=timedelta(hours=1)),
        ),
    )  # fmt: skip


def weighed(sales: DataFrame) -> DataFrame:
    """The cents of each shop, with a number by chance that Spark's plan does not show."""
    return per_shop(sales).withColumn("chance", _chance("cents"))


def copied(shops: DataFrame) -> DataFrame:
    """Each row of a window as it is."""
    return shops


def remade(*, stable: bool) -> Pipeline:
    """Windows of chance in one sink, and a copy of them in another."""
    root = Output(
        name="weighed", transform="tests.support.restless:weighed", window=Fixed(timedelta(minutes=1)), sink=Delta(),
        stable_input=stable,
    )  # fmt: skip
    made = Output(
        name="copied", transform="tests.support.restless:copied", from_output="weighed",
        sink=Postgres(table="results.copied", write="append"),
    )  # fmt: skip
    return Pipeline(
        name="remade", source=Files(), schema=SCHEMA, record_id=("id",), event_time="at", outputs=(root, made)
    )


def drawn_again(windows: DataFrame) -> DataFrame:
    """The cents of each shop in longer windows, with another number at each call."""
    return per_shop(windows).withColumn("chance", F.rand())


def _rolled() -> Pipeline:
    root = Output(
        name="minutes", transform="tests.support.restless:per_shop", window=Fixed(timedelta(minutes=1)), sink=Delta()
    )
    made = Output(
        name="fives", transform="tests.support.restless:drawn_again", window=Fixed(timedelta(minutes=5)),
        from_output="minutes", sink=Delta(),
    )  # fmt: skip
    return Pipeline(
        name="rolled", source=Files(max_files_a_batch=1), schema=SCHEMA, record_id=("id",), event_time="at",
        outputs=(root, made),
    )  # fmt: skip


PIPELINES = [
    picked("stable", "restless"),
    picked("restless", "unseen"),
    _chained(),
    _results(),
    _joined(),
    _stateful(),
    _rolled(),
    remade(stable=False),
]
