"""Other engines at what receive does: the first record of each id, from the same files on the same cores.

`make bench-peers` makes their environment and runs this.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from tests.benchmarks import deliveries, measure, page, ways
from tests.benchmarks.plot import bars
from tests.benchmarks.test_receive import SEED
from tests.support.platform import ROOT, Platform

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(7200)]

LINES = int(os.environ.get("ONLYONCE_BENCH_RECORDS", "2000000"))
BATCHES = 4
PEERS = ROOT / ".venv" / "peers"
SCRIPTS = Path(__file__).parent / "peers"
WARM = 100_000
"""Lines of a file before the others: enough that tasks are started for them."""
FIRST = ("flink_heap", "flink_rocksdb", "bytewax")
"""Those that keep the first row by id; what they have kept is compared."""


def test_peers(new_platform: Callable[..., Platform], spark: SparkSession) -> None:
    """Each from nothing to its end, and once over nothing, which is its start; Spark's ways in a session that is up,
    after a file of the warm-up."""
    python = PEERS / "bin" / "python"
    assert python.exists(), "run `make bench-peers`: it makes the environment of the other engines"
    home = new_platform("tests/benchmarks/pipelines.py").home
    (home / "input").mkdir()
    files = deliveries.Input(LINES, BATCHES, SEED).make(spark, home / "input")
    exact = deliveries.read(spark, files).dropDuplicates(["id"]).cache()
    kept = exact.count()
    seconds = _ours(spark, home, files, exact) | _others(spark, home, python, files, exact)
    rates = {name: round(LINES / taken) for name, taken in seconds.items()}
    show(rates, LINES)
    measure.keep(
        "peers", records_per_second=rates, seconds={name: round(taken, 2) for name, taken in seconds.items()}, lines=LINES, records=kept, seed=SEED,
        versions_of_peers=(SCRIPTS / "requirements.txt").read_text().split("\n")[1:-1], **measure.circumstances(),
    )  # fmt: skip
    bars(
        rates, page.DOCS / "peers.svg", f"the first record of each id, {LINES:,} lines of JSON, 2 cores, {date.today()}"
    )


def _ours(spark: SparkSession, home: Path, files: list[list[Path]], exact: DataFrame) -> dict[str, float]:
    compared: dict[str, ways.Way] = {
        "exactly_once": ways.Ours(spark, "exactly"), "spark_append": ways.append(spark, home), "spark_drop_duplicates": ways.drop_duplicates(spark, home),
        "spark_merge": ways.merge(spark, home), "row_per_record": ways.row_per_record(spark, home),
    }  # fmt: skip
    warm = home / "input" / "warm.jsonl"
    warm.write_text(
        "".join(
            f'{{"id":"warm {n}","user":1,"at":"2025-01-01T00:00:00Z","amount":1,"kind":"view","note":"-"}}\n'
            for n in range(WARM)
        )
    )
    seconds = {}
    for name, way in compared.items():
        way.inbox.mkdir(parents=True, exist_ok=True)
        (way.inbox / "a-warm.jsonl").hardlink_to(warm)
        way.drain()
        for file in (file for batch in files for file in batch):
            (way.inbox / file.name).hardlink_to(file)
        began = time.monotonic()
        way.drain()
        seconds[name] = time.monotonic() - began
        if name != "spark_append":
            assert deliveries.differing(spark, way.result().filter("id NOT LIKE 'warm %'"), exact) == 0, name
    return seconds


def _others(
    spark: SparkSession, home: Path, python: Path, files: list[list[Path]], exact: DataFrame
) -> dict[str, float]:
    """The same of each that runs in a process of its own; its start is taken off."""
    given, nothing = home / "peers" / "input", home / "peers" / "nothing"
    for folder in (given, nothing):
        folder.mkdir(parents=True)
    (nothing / "empty.jsonl").touch()
    for file in (file for batch in files for file in batch):
        (given / file.name).hardlink_to(file)
    seconds = {}
    for name in (*FIRST, "flink_append"):
        taken = {}
        for folder in (nothing, given):
            target = home / "peers" / name / folder.name / "kept"
            target.mkdir(parents=True)
            taken[folder] = timed(python, name, folder, target)
        seconds[name] = taken[given] - taken[nothing]
        found = spark.read.parquet(str(target)).withColumn("at", F.col("at").cast("timestamp"))
        if name in FIRST:
            assert deliveries.differing(spark, found.select(*exact.columns), exact) == 0, name
        else:
            assert found.count() == LINES
    return seconds


def timed(python: Path, name: str, source: Path | str, target: Path) -> float:
    """The seconds of one engine over one input, from its start to the end of its process."""
    environment = os.environ | {
        "JAVA_TOOL_OPTIONS": "",
        "JDK_JAVA_OPTIONS": "",
        "INPUT": str(source),
        "OUTPUT": str(target),
    }
    if name == "bytewax":
        store = target.parent / "recovery"
        store.mkdir()
        subprocess.run([python, "-m", "bytewax.recovery", store, "2"], check=True, env=environment)
        environment["BYTEWAX_RECOVERY_BACKUP_INTERVAL"] = "0"
        flow = f"{SCRIPTS / 'bytewax_flow.py'}:flow"
        command: list[str | Path] = [python, "-m", "bytewax.testing", flow, "-p", "2", "-r", store, "-s", "2"]
    else:
        jars = (PEERS / "jars").glob("flink-sql-*.jar")
        # What the format asks of Hadoop is on Spark's path as well.
        spark_jars = next((ROOT / ".venv").glob("lib/python*/site-packages/pyspark/jars"))
        environment["HADOOP_CLASSPATH"] = ":".join(str(jar) for jar in spark_jars.glob("hadoop-client-*.jar"))
        command = [python, SCRIPTS / "flink_sql.py", source, target, name.removeprefix("flink_"), *jars]
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    return time.monotonic() - began


def show(rates: dict[str, int], lines: int) -> None:
    """As a table."""
    shown = Table("way", "lines/s", "exactly once of it", title=f"{lines:,} lines, 2 cores")
    for name, rate in rates.items():
        shown.add_row(name, f"{rate:,}", f"{rates['exactly_once'] / rate:.2f}")
    Console(width=100).print(shown)
