"""How fast files that grow are read, beside Spark's own text source on the same files: from nothing known to the last
line.

Two pairs. Lines alone: Spark's go nowhere, ours are parsed and packed. And rows in a table: Spark parses them and
appends to Delta, ours are received.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from onlyonce.api.pipeline import Growing
from onlyonce.commitlog.incarnations import Driver
from onlyonce.receive import exchange
from onlyonce.sources import source_files
from onlyonce.sources.discovery import Inbox
from onlyonce.sources.values import fast_json
from tests.benchmarks import measure, ways
from tests.support.platform import Platform, Server
from tests.support.shop import SHOP

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

LINES = int(os.environ.get("ONLYONCE_BENCH_LINES", "8000000"))
FILES = 8
ROUNDS = 4
BATCHES = 4
TARGET = 0.7


def test_growing(new_platform: Callable[..., Platform], server: Server, spark: SparkSession) -> None:
    """In turn, each round over the same files from the begin; the first round is left out."""
    home = new_platform().home
    inbox = home / "inbox" / "shop"
    size = _make(inbox)
    compared = {
        "spark_text": lambda n: _spark(spark, inbox, home / f"spark{n}"),
        "growing": lambda n: _ours(spark, inbox, home / f"ours{n}", size),
        "spark_append": lambda n: _appended(spark, inbox, home / f"append{n}"),
        "received": lambda n: _received(spark, inbox, f"grown{n}", size),
    }
    clock: dict[str, list[float]] = {name: [] for name in compared}
    cpu: dict[str, list[float]] = {name: [] for name in compared}
    for number in range(ROUNDS):
        for name, way in compared.items():
            began, used = time.monotonic(), measure.cpu_seconds(server)
            assert way(number) == LINES, name
            clock[name].append(time.monotonic() - began)
            cpu[name].append(measure.cpu_seconds(server) - used)
    rates = {name: round(LINES / measure.median(clock[name][1:])) for name in compared}
    used_up = {name: round(measure.median(cpu[name][1:]) / LINES * 1e6, 2) for name in compared}
    part, of_append = rates["growing"] / rates["spark_text"], rates["received"] / rates["spark_append"]
    shown = Table(
        "way", "lines/s", "processor s for a million", title=f"{LINES:,} lines, {size / 1e6:,.0f} MB in {FILES} files"
    )
    for name, rate in rates.items():
        shown.add_row(name, f"{rate:,}", str(used_up[name]))
    Console(width=100).print(
        shown,
        f"{part:.2f} of Spark's text source; at least {TARGET}: {'met' if part >= TARGET else 'MISSED'}; received "
        f"{of_append:.2f} of Spark's append",
    )
    measure.keep(
        "growing", lines_a_second=rates, cpu_seconds_a_million=used_up, of_spark_text=round(part, 2), of_spark_append=round(of_append, 2), target=TARGET, lines=LINES,
        megabytes=round(size / 1e6), **measure.circumstances(),
    )  # fmt: skip


def _make(inbox: Path) -> int:
    inbox.mkdir(parents=True)
    line = b'{"id":"s%09d","shop":"shop-%d","at":"2026-01-01T00:00:00Z","cents":%d,"weight":0.5}\n'
    for number in range(FILES):
        with (inbox / f"{number}.log").open("wb") as file:
            for at in range(number, LINES, FILES):
                file.write(line % (at, at % 7, at % 10_000))
    return sum(path.stat().st_size for path in inbox.iterdir())


def _ours(spark: SparkSession, inbox: Path, scratch: Path, size: int) -> int:
    pipeline = replace(SHOP, record_id=(), source=Growing(max_bytes_a_batch=size // BATCHES))
    manifest = Inbox("shop", inbox, scratch / "files", 1000, pipeline)
    source_files.register(spark, manifest, Driver("bench", 0, 1, "bench"), datetime.now(UTC))
    told = []

    def batch(frame: DataFrame, number: int) -> None:
        files = source_files.listed(frame).files
        lines, count = source_files.lines(spark, pipeline, files, source_files.unreadable(pipeline, files))
        now = datetime.now(UTC)
        reader = fast_json.plain_record_reader(pipeline, now, 1)
        with exchange.block_folder(scratch / "blocks", 1) as folder:
            exchange.read_records(spark, lines, pipeline, now, reader, folder)  # parsed as well, as receive has them
        told.append(count)

    _drain(source_files.stream(spark, manifest, 0), scratch / "checkpoint", batch)
    return sum(told)


def _spark(spark: SparkSession, inbox: Path, scratch: Path) -> int:
    reader = spark.readStream.option("maxFilesPerTrigger", FILES // BATCHES).text(str(inbox))
    query = _drain(reader, scratch / "checkpoint", lambda frame, number: _nowhere(frame))
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def _appended(spark: SparkSession, inbox: Path, scratch: Path) -> int:
    table = str(scratch / "table")
    lines = spark.readStream.option("maxFilesPerTrigger", FILES // BATCHES).text(str(inbox))
    rows = lines.select(F.from_json("value", SHOP.schema).alias("row")).select("row.*")
    _drain(rows, scratch / "checkpoint", lambda frame, number: frame.write.format("delta").mode("append").save(table))
    return spark.read.format("delta").load(table).count()


def _received(spark: SparkSession, inbox: Path, name: str, size: int) -> int:
    """By their places, as lines of files that grow are known."""
    way = ways.Ours(spark, name, schema=SHOP.schema, record_id=(), source=Growing(max_bytes_a_batch=size // BATCHES))
    way.inbox.mkdir(parents=True)
    for file in inbox.iterdir():
        os.link(file, way.inbox / file.name)
    way.drain()
    return way.result().count()


def _drain(frame: DataFrame, checkpoint: Path, batch: Callable[[DataFrame, int], None]):
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.foreachBatch(batch).start()
    query.awaitTermination()
    return query


def _nowhere(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()
