"""A whole pipeline against the same Spark job without guarantees: wall time of drains, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from onlyonce import settings
from tests.benchmarks import deliveries, measure, whole
from tests.benchmarks.test_receive import BATCHES, RECORDS, SEED
from tests.support.platform import Platform, Server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

ROUNDS = 4
TARGET = 0.7


def test_whole(new_platform: Callable[..., Platform], server: Server, spark: SparkSession) -> None:
    """Two batches each round; the first round is left out. Both have written windows at the end."""
    platform = new_platform("tests/benchmarks/whole.py")
    (platform.home / "input").mkdir()
    files = deliveries.Input(RECORDS // BATCHES * 2 * ROUNDS, 2 * ROUNDS, SEED).make(spark, platform.home / "input")
    bare = whole.Bare(spark, platform.home)
    works: dict[str, Callable[[], object]] = {"bare": bare.drain, "exactly_once": lambda: platform.run("whole")}
    inboxes = {"bare": bare.received.inbox, "exactly_once": settings.inbox("whole")}
    clock: dict[str, list[float]] = {name: [] for name in works}
    cpu: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS):
        for name, work in works.items():
            inboxes[name].mkdir(parents=True, exist_ok=True)
            for file in (file for batch in files[2 * number : 2 * number + 2] for file in batch):
                (inboxes[name] / file.name).hardlink_to(file)
            began, used = time.monotonic(), measure.cpu_seconds(server)
            work()
            clock[name].append(time.monotonic() - began)
            cpu[name].append(measure.cpu_seconds(server) - used)

    windows = platform.sql("SELECT count(DISTINCT window_start) AS n FROM bench.per_user")["n"][0]
    assert windows == platform.sql("SELECT count(DISTINCT window_start) AS n FROM bare_per_user")["n"][0] > 0
    assert platform.table("whole/per_kind")["window_start"].nunique() == windows
    ratio = measure.median(clock["bare"][1:]) / measure.median(clock["exactly_once"][1:])
    of_cpu = measure.median(cpu["bare"][1:]) / measure.median(cpu["exactly_once"][1:])
    said = "met" if ratio >= TARGET else "MISSED"
    shown = Table(
        "way",
        "seconds each round",
        title=f"whole pipeline: {ratio:.2f} of the bare job's speed, at least {TARGET}: {said}",
    )
    for name, each in clock.items():
        shown.add_row(name, ", ".join(f"{s:.1f}" for s in each))
    Console(width=110).print(shown)
    measure.keep(
        "receive",
        whole={"ratio": round(ratio, 3), "cpu_ratio": round(of_cpu, 3), "target": TARGET, "seconds": clock, "cpu_seconds": cpu,
               "lines_a_round": files and RECORDS // BATCHES * 2, **measure.circumstances()},
    )  # fmt: skip
