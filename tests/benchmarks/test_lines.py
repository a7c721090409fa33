"""What receive costs by the form of its input.

It runs on any commit since the change to one reader, and on the commit before it (`compare_lines`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from onlyonce.api.messages import Debezium
from onlyonce.api.pipeline import Files, Kafka
from tests.benchmarks import forms, measure, ways
from tests.benchmarks.deliveries import FILES_A_BATCH
from tests.benchmarks.forms import FORMS, Form
from tests.support.broker import Broker
from tests.support.platform import Platform, Server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(7200)]

LINES = int(os.environ.get("ONLYONCE_BENCH_LINES", "40000"))
"""The records of one batch of a form."""
BATCHES = int(os.environ.get("ONLYONCE_BENCH_BATCHES", "4"))
"""The first warms the session up and is not counted."""
CHOSEN = os.environ.get("ONLYONCE_BENCH_FORMS", "").split() or list(FORMS)
SEED = 20260301


def test_lines(
    new_platform: Callable[..., Platform],
    server: Server,
    spark: SparkSession,
    clock: measure.Clock,
    request: pytest.FixtureRequest,
) -> None:
    """Each form is received exactly once: processor seconds for a million records, and records a second by the median
    batch."""
    home = new_platform("tests/benchmarks/pipelines.py").home
    found = {}
    for name in CHOSEN:
        form = FORMS[name]
        folder = home / "input" / name
        folder.mkdir(parents=True)
        files = forms.write(form, folder, SEED, BATCHES * FILES_A_BATCH, LINES // FILES_A_BATCH)
        broker = request.getfixturevalue("broker") if form.topic else None
        found[name] = _received(spark, name, form, files, clock, server, broker)
    _show(found)
    if out := os.environ.get("ONLYONCE_BENCH_OUT"):
        measure.RESULTS = Path(out)
    if set(CHOSEN) == set(FORMS) or out:
        measure.keep("lines", forms=found, lines=LINES, batches=BATCHES, seed=SEED, **measure.circumstances())


def _received(
    spark: SparkSession,
    name: str,
    form: Form,
    files: list[Path],
    clock: measure.Clock,
    server: Server,
    broker: Broker | None,
) -> dict[str, float]:
    source, give = _source(spark, form, broker)
    way = ways.Ours(spark, name, source=source, schema=form.schema, **form.options)
    give(way, files[:FILES_A_BATCH])
    way.drain()
    clock.settle()
    give(way, files[FILES_A_BATCH:])
    before = measure.cpu_by_process(server)
    way.drain()
    clock.settle()
    after = measure.cpu_by_process(server)
    rows = {
        row.oo_kind: row["count"]
        for row in spark.read.format("delta").load(str(way.context().events)).groupBy("oo_kind").count().collect()
    }
    all_of_it = LINES * BATCHES
    invalid = len(files) * -(-(LINES // FILES_A_BATCH) // form.invalid_one_in) if form.invalid_one_in else 0
    assert (rows.get("kept"), rows.get("invalid", 0)) == (all_of_it - invalid, invalid), name
    millions = LINES * (BATCHES - 1) / 1e6
    seconds = clock.seconds[way.query][1:]
    by_process = {kind: round((after[kind] - before[kind]) / millions, 2) for kind in before}
    return {
        "cpu_seconds_a_million": round(sum(by_process.values()), 2),
        "records_per_second": round(LINES / measure.median(seconds)),
        **by_process,
    }


def _source(
    spark: SparkSession, form: Form, broker: Broker | None
) -> tuple[Any, Callable[[ways.Ours, list[Path]], None]]:
    if broker is None:
        return Files(format=form.format, max_files_a_batch=FILES_A_BATCH), _put
    topic = broker.topic("lines", FILES_A_BATCH)

    def send(way: ways.Ours, files: list[Path]) -> None:
        del way
        values = spark.read.text([str(file) for file in files])
        values.write.format("kafka").option("kafka.bootstrap.servers", broker.servers).option("topic", topic).save()

    return Kafka(
        topic=topic,
        servers=broker.servers,
        max_offsets_a_batch=LINES,
        value=Debezium(time="at") if "position" in form.schema else None,
    ), send


def _put(way: ways.Ours, files: list[Path]) -> None:
    way.inbox.mkdir(parents=True, exist_ok=True)
    for file in files:
        (way.inbox / file.name).hardlink_to(file)


def _show(found: dict[str, dict[str, float]]) -> None:
    shown = Table(
        "form",
        "records/s",
        "processor s for a million",
        "of them",
        title=f"receive, exactly once, {LINES:,} records in a batch",
    )
    for name, one in found.items():
        parts = ", ".join(f"{kind} {one[kind]}" for kind in ("driver", "jvm", "workers", "postgres"))
        shown.add_row(name, f"{one['records_per_second']:,}", f"{one['cpu_seconds_a_million']}", parts)
    Console(width=130).print(shown)
