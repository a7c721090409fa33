"""What exactly once costs at each sink, against the same rows written at least once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks import measure, sinks
from tests.support.platform import Platform, Server

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = int(os.environ.get("ONLYONCE_BENCH_ROWS", "400000"))
"""Of one batch."""
BATCHES = 9
WARM = 3
"""The first batches of each way are left out: what is compiled and made in them is no cost of a batch."""
TARGETS = {"delta": 0.85, "postgres": 0.8, "files": 0.8}


@pytest.mark.parametrize("name", sinks.SINKS)
def test_exactly_once_against_at_least_once(
    name: str, new_platform: Callable[..., Platform], server: Server, spark: Any
) -> None:
    """The same rows, batch by batch, each way first in every second one; both end with the same number of rows. What
    is compared is the two writes of one batch, which follow each other: the machine may be slower a minute later."""
    sink, rows = sinks.SINKS[name], sinks.rows(spark, ROWS)
    ways = {mode: sinks.way(spark, new_platform(), name, sink, mode) for mode in sinks.modes(sink)}
    clock: dict[str, list[float]] = {mode: [] for mode in ways}
    cpu: dict[str, list[float]] = {mode: [] for mode in ways}
    for batch in range(BATCHES):
        for mode, way in list(ways.items())[:: 1 if batch % 2 else -1]:
            began, used = time.monotonic(), measure.cpu_seconds(server)
            way.write(batch, rows)
            clock[mode].append(round(time.monotonic() - began, 3))
            cpu[mode].append(round(measure.cpu_seconds(server) - used, 3))
    counts = {mode: way.rows() for mode, way in ways.items()}
    assert set(counts.values()) == {ROWS * BATCHES}, counts
    once = measure.median(clock["exactly_once"][WARM:])
    found = {
        "seconds": clock, "cpu_seconds": cpu, "rows_per_second": round(ROWS / once), "of_at_least_once": ratio(clock),
        "of_at_least_once_in_cpu": ratio(cpu), "target": TARGETS.get(name), **measure.circumstances(),
    }  # fmt: skip
    measure.keep("sinks", **{name: found})
    report()


def ratio(taken: dict[str, list[float]]) -> float | None:
    """Exactly once as a part of at least once; None for a sink that has one mode."""
    plain, once = taken.get("at_least_once", [])[WARM:], taken["exactly_once"][WARM:]
    return round(measure.median([p / o for p, o in zip(plain, once, strict=True)]), 2) if plain else None


def report() -> None:
    """The table of all sinks that have been measured."""
    shown = Table(
        "sink",
        "exactly once, rows/s",
        "of at least once",
        "in processor time",
        "target",
        title=f"{ROWS:,} rows a batch",
    )
    for name, one in json.loads((measure.RESULTS / "sinks.json").read_text()).items():
        ratios = (one["of_at_least_once"], one["of_at_least_once_in_cpu"], one["target"])
        shown.add_row(name, f"{one['rows_per_second']:,}", *(str(value or "-") for value in ratios))
    Console(width=100).print(shown)
