"""What exactly once costs at each sink, against the same rows written at least once."""

from __future__ import annotations

import json
import os
import platform as machine
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks import sinks
from tests.support.platform import Platform

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = int(os.environ.get("ONLYONCE_BENCH_RECORDS", "3200000"))
BATCHES = 8
WARM = 2
"""The first batches of each way are left out: what is compiled and made in them is no cost of a batch."""
TARGETS = {"delta": 0.85, "delta upsert": None, "postgres": 0.8, "postgres upsert": None, "files": 0.8}
RESULTS = Path(__file__).parent / "results"


def test_exactly_once_at_each_sink_against_at_least_once(new_platform: Callable[..., Platform], spark: Any) -> None:
    """The same rows, batch by batch, each way first in every second one; both end with the same number of rows. What
    is compared is the two writes of one batch, which follow each other: the machine may be slower a minute later."""
    platform = new_platform()
    rows = sinks.rows(spark, RECORDS // BATCHES)
    found: dict[str, dict[str, Any]] = {}
    for name, sink in sinks.SINKS.items():
        ways = {mode: sinks.way(spark, platform, name, sink, mode) for mode in sinks.modes(sink)}
        seconds: dict[str, list[float]] = {mode: [] for mode in ways}
        for batch in range(BATCHES):
            for mode, way in list(ways.items())[:: 1 if batch % 2 else -1]:
                began = time.monotonic()
                way.write(batch, rows)
                seconds[mode].append(time.monotonic() - began)
        counts = {mode: way.rows() for mode, way in ways.items()}
        assert len(set(counts.values())) == 1, counts
        once, plain = seconds["exactly_once"][WARM:], seconds.get("at_least_once", [])[WARM:]
        ratio = statistics.median(p / o for p, o in zip(plain, once, strict=True)) if plain else None
        found[name] = {
            "seconds": {mode: [round(s, 3) for s in each] for mode, each in seconds.items()}, "target": TARGETS.get(name),
            "rows a second": round(RECORDS / BATCHES / statistics.median(once)), "ratio": ratio and round(ratio, 3),
        }  # fmt: skip
    report(found)


def report(found: dict[str, dict[str, Any]]) -> None:
    """A table for people, a file for comparison."""
    shown = Table(
        "sink", "exactly once, rows/s", "of at least once", "target", title=f"{RECORDS:,} rows, {BATCHES} batches"
    )
    for name, one in found.items():
        shown.add_row(name, f"{one['rows a second']:,}", str(one["ratio"] or "-"), str(one["target"] or "-"))
    Console(width=100).print(shown)
    whole = {
        "records": RECORDS, "batches": BATCHES, "sinks": found, "load": os.getloadavg(), "cores": os.cpu_count(),
        "machine": machine.machine(), "python": machine.python_version(), "spark": pyspark.__version__,
    }  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "sinks.json").write_text(json.dumps(whole, indent=1) + "\n")
