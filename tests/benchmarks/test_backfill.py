"""What a backfill costs, against the same computation as a bare Spark batch job over the same rows."""

from __future__ import annotations

import json
import os
import platform as machine
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from onlyonce import settings
from tests.benchmarks.pipelines import per_key
from tests.support.platform import Platform, multiset

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = int(os.environ.get("ONLYONCE_BENCH_RECORDS", "10000000"))
ROUNDS = 3
DAYS = 30
RESULTS = Path(__file__).parent / "results"


def fill(spark: SparkSession, inbox: Path) -> None:
    """The input, made by Spark: records over a month, in order, 16 files."""
    step = DAYS * 86_400 / RECORDS
    rows = spark.range(0, RECORDS, 1, 16).select(
        "id",
        F.pmod(F.xxhash64("id"), F.lit(200)).alias("key"),
        F.timestamp_micros(F.lit(1_767_225_600_000_000) + F.col("id") * F.lit(int(step * 1_000_000))).alias("at"),
        F.pmod("id", F.lit(1000)).alias("amount"),
    )
    made = inbox.parent / "made"
    rows.select(F.to_json(F.struct("*"), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"})).write.text(str(made))
    inbox.mkdir(parents=True, exist_ok=True)
    for part in sorted(made.glob("part-*")):
        part.rename(inbox / f"{part.name}.jsonl")


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def test_a_backfill_costs_little_more_than_a_bare_batch(
    new_platform: Callable[..., Platform], spark: SparkSession
) -> None:
    """Alternately, on the same rows of `events`; both results are the same multiset."""
    bench = new_platform("tests/benchmarks/pipelines.py")
    fill(spark, settings.inbox("bench"))
    bench.run("bench", "--close")
    events, target = str(settings.data_dir("bench") / "events"), str(bench.home / "bare")

    def bare() -> None:
        kept = spark.read.format("delta").load(events).filter("oo_kind = 'kept'")
        rows = per_key(kept.withColumn("oo_window", F.window("oo_event_time", "1 hour")))
        flat = rows.select(F.col("oo_window.start").alias("window_start"), "key", "rows", "amount", "mean")
        flat = flat.withColumn("window_date", F.to_date("window_start"))
        flat.write.format("delta").mode("overwrite").partitionBy("window_date").save(target)

    def backfill() -> None:
        bench.backfill("bench", "--from", "2026-01-01", "--to", "2026-03-01")

    seconds: dict[str, list[float]] = {"bare": [], "backfill": []}
    for _ in range(ROUNDS):
        seconds["bare"].append(timed(bare))
        seconds["backfill"].append(timed(backfill))
    columns = ("window_start", "key", "rows", "amount")
    assert multiset(DeltaTable(target).to_pandas(), *columns) == multiset(bench.table("bench/per_key"), *columns)
    report(seconds)


def report(seconds: dict[str, list[float]]) -> None:
    """A table for people, a file for comparison."""
    ratio = statistics.median(seconds["backfill"]) / statistics.median(seconds["bare"])
    shown = Table(
        "way", "seconds (each round)", "median", title=f"backfill of {RECORDS:,} rows: {ratio:.2f} of a bare batch"
    )
    for way, each in seconds.items():
        shown.add_row(way, ", ".join(f"{s:.1f}" for s in each), f"{statistics.median(each):.1f}")
    Console(width=100).print(shown)
    found = {
        "records": RECORDS, "seconds": seconds, "ratio": round(ratio, 3), "target": 1.3, "cores": os.cpu_count(),
        "machine": machine.machine(), "python": machine.python_version(), "spark": pyspark.__version__,
    }  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "backfill.json").write_text(json.dumps(found, indent=1) + "\n")
