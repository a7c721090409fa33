"""A whole pipeline against the same Spark job without guarantees: wall time of drains, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from onlyonce import settings
from tests.benchmarks import deliveries, measure, page, plot, whole
from tests.benchmarks.test_receive import SEED
from tests.support.platform import Platform, Server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

A_BATCH = 500_000
TARGET = 0.85


@pytest.mark.parametrize(("lines", "rounds"), [(1_000_000, 7), (8_000_000, 3)])
def test_whole(
    lines: int,
    rounds: int,
    new_platform: Callable[..., Platform],
    monkeypatch: pytest.MonkeyPatch,
    server: Server,
    spark: SparkSession,
) -> None:
    """Rounds of so many lines in batches of half a million; the first is left out.

    Both have written the same windows at the end.
    """
    platform, batches = new_platform("tests/benchmarks/whole.py"), lines // A_BATCH
    platform.give(monkeypatch, ONLYONCE_OUTPUTS_AT_ONCE="4")  # the default; tests have one by one
    (platform.home / "input").mkdir()
    files = deliveries.Input(lines * rounds, batches * rounds, SEED).make(spark, platform.home / "input")
    bare = whole.Bare(spark, platform.home)
    works: dict[str, Callable[[], object]] = {"bare": bare.drain, "exactly_once": lambda: platform.run("whole")}
    inboxes = {"bare": bare.received.inbox, "exactly_once": settings.inbox("whole")}
    clock: dict[str, list[float]] = {name: [] for name in works}
    cpu: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds):
        for name in list(works)[:: 1 if number % 2 else -1]:
            inboxes[name].mkdir(parents=True, exist_ok=True)
            for file in (file for batch in files[batches * number : batches * (number + 1)] for file in batch):
                (inboxes[name] / file.name).hardlink_to(file)
            began, used = time.monotonic(), measure.cpu_seconds(server)
            works[name]()
            clock[name].append(round(time.monotonic() - began, 2))
            cpu[name].append(round(measure.cpu_seconds(server) - used, 2))

    windows = platform.sql("SELECT count(DISTINCT window_start) AS n FROM bench.per_user")["n"][0]
    assert windows == platform.sql("SELECT count(DISTINCT window_start) AS n FROM bare_per_user")["n"][0] > 0
    assert platform.table("whole/per_kind")["window_start"].nunique() == windows
    ratio, of_cpu = _ratio(clock), _ratio(cpu)
    _show(lines, clock, cpu, ratio)
    one = {"ratio": ratio, "cpu_ratio": of_cpu, "seconds": clock, "cpu_seconds": cpu, **measure.circumstances()}
    known = measure.kept("whole").get("by_lines", {}) | {str(lines): one}
    measure.keep("whole", ratio=min(found["ratio"] for found in known.values()), target=TARGET, by_lines=known)
    plot.by_round_of(known, page.DOCS / "whole.svg", f"{date.today()}")


def _ratio(taken: dict[str, list[float]]) -> float:
    """The median over the rounds after the first: both ways of a round met the same machine."""
    pairs: list[tuple[Any, Any]] = list(zip(taken["bare"][1:], taken["exactly_once"][1:], strict=True))
    return round(measure.median([bare / ours for bare, ours in pairs]), 3)


def _show(lines: int, clock: dict[str, list[float]], cpu: dict[str, list[float]], ratio: float) -> None:
    said = "met" if ratio >= TARGET else "MISSED"
    shown = Table(
        "way",
        "seconds each round",
        "processor seconds",
        title=f"whole pipeline, {lines:,} lines: {ratio:.2f} of the bare job's speed, at least {TARGET}: {said}",
    )
    for name, each in clock.items():
        shown.add_row(name, ", ".join(f"{s:.1f}" for s in each), ", ".join(f"{s:.1f}" for s in cpu[name]))
    Console(width=130).print(shown)
