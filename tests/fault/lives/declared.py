"""The declaration of a case, which LIVES_CASE holds as JSON: kind, sink, life, and whether the declaration has
changed."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Delta, Files, FileSink, Output, Pipeline, Postgres, Sink, Webhook
from onlyonce.core.windows import Session, Sliding, Window
from tests.support.shop import MINUTE, WATERMARK_DELAY

ME = "tests.fault.lives.declared"
WINDOW = ("window_start", "window_end")
OTHER = "TEST_OTHER_DATABASE"
GAP = timedelta(seconds=20)


def by_window(sales: DataFrame) -> DataFrame:
    """Sums of each shop and window."""
    return sales.groupBy("oo_window", "shop").agg(F.sum("cents").alias("cents"), F.count(F.lit(1)).alias("sales"))


def by_window_doubled(sales: DataFrame) -> DataFrame:
    """The same columns, of another meaning."""
    return sales.groupBy("oo_window", "shop").agg(
        F.sum(F.col("cents") * 2).alias("cents"), F.count(F.lit(1)).alias("sales")
    )


def totals(sales: DataFrame) -> DataFrame:
    """Sums without a window."""
    return sales.groupBy("shop").agg(F.sum("cents").alias("cents"), F.count(F.lit(1)).alias("sales"))


def totals_doubled(sales: DataFrame) -> DataFrame:
    """The same columns, of another meaning."""
    return sales.groupBy("shop").agg(F.sum(F.col("cents") * 2).alias("cents"), F.count(F.lit(1)).alias("sales"))


def raw(sales: DataFrame) -> DataFrame:
    """Each record with its window: no state is kept."""
    return sales.select("oo_window", "id", "shop", "cents")


def raw_doubled(sales: DataFrame) -> DataFrame:
    """The same columns, of another meaning."""
    return sales.select("oo_window", "id", "shop", (F.col("cents") * 2).alias("cents"))


def raw_sums(sales: DataFrame) -> DataFrame:
    """Each record as what it adds to its shop, with its window."""
    return sales.select("oo_window", "shop", "cents", F.lit(1).alias("sales"))


def raw_sums_doubled(sales: DataFrame) -> DataFrame:
    """The same columns, of another meaning."""
    return sales.select("oo_window", "shop", (F.col("cents") * 2).alias("cents"), F.lit(1).alias("sales"))


def plain(sales: DataFrame) -> DataFrame:
    """Each record."""
    return sales.select("id", "shop", "cents")


def plain_sums(sales: DataFrame) -> DataFrame:
    """Each record as what it adds to its shop."""
    return sales.select("shop", "cents", F.lit(1).alias("sales"))


def made(shops: DataFrame) -> DataFrame:
    """Sales and cents of each window, from the rows of its shops."""
    return shops.groupBy("oo_window").agg(F.sum("cents").alias("cents"), F.sum("sales").alias("sales"))


FUNCTIONS = {"totals": "totals", "raw": "raw", "plain": "plain"}
WINDOWS: dict[str, Window] = {"sliding": Sliding(timedelta(minutes=2), timedelta(minutes=1)), "session": Session(GAP)}
OWN_KEYS = {"raw": ("id",), "plain": ("id",), "made": ()}


def pipeline(kind: str, sink: str, life: str, *, changed: bool) -> Pipeline:
    """The pipeline `shop` with the output `out`, which is made from `root` if the kind says so."""
    planned, reprocessed = changed and life == "planned", changed and life == "reprocess"
    window = None if kind in ("plain", "totals") else WINDOWS.get(kind, MINUTE)
    function = FUNCTIONS.get(kind, "by_window")
    if sink.endswith("increment") and kind in ("raw", "plain"):
        function += "_sums"
    function = f"{ME}:{function}{'_doubled' if planned else ''}"
    of_window = {"window": window, "watermark_delay": WATERMARK_DELAY} if window else {}
    late = {"late": "backfill"} if life == "recompute" else {}
    name = "root" if kind == "made" else "out"
    to = Delta() if kind == "made" else _sink(kind, sink)
    more = {"on_backfill": "refuse"} if kind == "made" else _on_backfill(kind, sink)
    panes = "early" if kind in ("early", "totals") else "on_time"
    outputs = [Output(name=name, transform=function, sink=to, panes=panes, **of_window, **late, **more)]  # type: ignore[arg-type]
    if kind == "made":
        on_backfill = _on_backfill(kind, sink)
        outputs.append(
            Output(name="out", transform=f"{ME}:made", from_output="root", sink=_sink(kind, sink), **on_backfill)  # type: ignore[arg-type]
        )
    return Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",),
        event_time="at",
        outputs=tuple(outputs),
        partitions=4 if changed and life == "changed" else 2,
        max_ahead=timedelta(days=9 if reprocessed else 1),
    )


def _sink(kind: str, sink: str) -> Sink:
    of, _, way = sink.partition(" ")
    own = OWN_KEYS.get(kind, ("shop",))
    keys = own if kind in ("plain", "totals") else (*WINDOW, *own)
    if of == "files":
        return FileSink(shards=2)
    if of == "outbox":
        return Webhook(connection="TEST_ENDPOINT", keys=own)
    if way == "append":
        keys = ()
    if way == "latest":
        keys = own
    if way == "increment":
        keys = WINDOW if kind == "made" else ("shop",)
    if of == "delta":
        return Delta(write="append" if way == "append" else "upsert", keys=keys)
    return Postgres(table="results.out", write=way, keys=keys, connection=OTHER if of == "other" else None)  # type: ignore[arg-type]


def _on_backfill(kind: str, sink: str) -> dict[str, str]:
    if sink == "outbox":
        return {"on_backfill": "skip"}
    if sink.endswith("increment") and kind not in ("plain", "made"):
        return {"on_backfill": "correct"}
    return {}


def declared() -> list[Pipeline]:
    """What LIVES_CASE declares."""
    asked = json.loads(os.environ["LIVES_CASE"])
    return [pipeline(asked["kind"], asked["sink"], asked["life"], changed=asked["changed"])]


if "LIVES_CASE" in os.environ:  # else it is imported for its functions
    PIPELINES = declared()
