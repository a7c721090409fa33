"""What an exactly-once batch spends its time on: a profile by pieces, beside a bare append of the same files."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from tests.benchmarks import deliveries, measure, pieces, ways
from tests.benchmarks.test_receive import BATCHES, RECORDS, SEED
from tests.support.platform import Platform, Server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

ROUNDS = 4


def test_pieces(new_platform: Callable[..., Platform], server: Server, spark: SparkSession) -> None:
    """In turn, the first round left out; in seconds by the clock, and of processor time."""
    home = new_platform("tests/benchmarks/pipelines.py").home
    (home / "input").mkdir()
    files = deliveries.Input(RECORDS // BATCHES, 1, SEED).make(spark, home / "input")[0]
    works = pieces.of_batch(ways.Ours(spark, "pieces"), files, home)
    clock: dict[str, list[float]] = {name: [] for name in works}
    cpu: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            began, used = time.monotonic(), measure.cpu_seconds(server)
            work()
            clock[name].append(time.monotonic() - began)
            cpu[name].append(measure.cpu_seconds(server) - used)
    shown = Table("piece", "seconds", "processor seconds", title=f"one batch of {RECORDS // BATCHES:,} lines")
    found = {}
    for name in works:
        found[name] = {"seconds": measure.median(clock[name][1:]), "cpu_seconds": measure.median(cpu[name][1:])}
        shown.add_row(name, *[f"{value:.2f}" for value in found[name].values()])
    Console(width=100).print(shown)
    measure.keep("pieces", pieces=found, lines=RECORDS // BATCHES, **measure.circumstances())
