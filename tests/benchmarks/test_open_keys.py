"""What a small batch costs beside how many open keys: 10 thousand, 1 and 10 million, on the settings that the platform
ships with."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from onlyonce import settings
from tests.benchmarks import measure, page, plot
from tests.benchmarks.keyed import Input
from tests.support.platform import Platform, Server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

KEYS = [int(part) for part in os.environ.get("ONLYONCE_BENCH_KEYS", "10000,1000000,10000000").split(",")]
SMALL = 1000
"""Records of a small batch."""
DRAINS = 3
"""Small ones at each size; what is told is their median."""


def test_open_keys(
    new_platform: Callable[..., Platform], server: Server, spark: SparkSession, clock: measure.Clock
) -> None:
    """Fill, then small drains, each of which loads the state anew; at the end all closes, and each key has what it
    should."""
    platform = new_platform("tests/benchmarks/keyed.py")
    given = Input(settings.inbox("keyed"))
    found: dict[str, dict[str, float]] = {}

    def keep(keys: int, **values: float) -> None:
        for name, value in values.items():
            found.setdefault(name, {})[str(keys)] = round(value, 3)
        print(keys, {name: round(value, 2) for name, value in values.items()}, flush=True)

    filled = 0
    for keys in KEYS:
        given.fill(filled, keys)
        seconds = _timed(lambda: platform.run("keyed"))
        keep(keys, fill_seconds=seconds, fill_keys_a_second=(keys - filled) / seconds)
        filled = keys
        clock.settle()
        clock.seconds.clear()
        drains, used = [], measure.cpu_seconds(server)
        for number in range(DRAINS):
            given.small(keys, SMALL, 1000 * len(found) + number)
            drains.append(_timed(lambda: platform.run("keyed")))
        clock.settle()
        [batches] = [each for name, each in clock.seconds.items() if name.startswith("keyed/per_key/")]
        keep(
            keys, drain_seconds=measure.median(drains), batch_seconds=measure.median(batches), driver_mb=_peak_mb(spark),
            cpu_seconds=(measure.cpu_seconds(server) - used) / DRAINS, state_mb=_size(settings.data_dir("keyed") / "checkpoints" / "per_key"),
        )  # fmt: skip
    close_seconds = _timed(lambda: platform.run("keyed", "--close"))
    keep(filled, driver_mb=_peak_mb(spark))
    _check(given)
    _report(found, close_seconds)


def _timed(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _peak_mb(spark: SparkSession) -> float:
    """The most memory that the driver's JVM has had, with RocksDB's."""
    status = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/status").read_text()  # type: ignore[union-attr]
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def _size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def _check(given: Input) -> None:
    """Each key once, with its count and its sum."""
    table = DeltaTable(str(settings.tables_dir() / "keyed" / "per_key")).to_pyarrow_table(
        columns=["key", "rows", "amount"]
    )
    there = {name: table[name].to_numpy() for name in table.column_names}
    order = np.argsort(there["key"], kind="stable")
    for name, values in given.expected().items():
        assert np.array_equal(there[name][order], values), name


HEAD = {
    "fill_keys_a_second": "filled, keys a second", "drain_seconds": "a drain of 1,000 records, seconds", "batch_seconds": "its output's batch, seconds",
    "cpu_seconds": "processor of the drain, seconds", "state_mb": "checkpoint, MB", "driver_mb": "driver at its most, MB",
}  # fmt: skip


def _report(found: dict[str, dict[str, float]], close_seconds: float) -> None:
    head = ["open keys", *HEAD.values()]
    rows = [
        [f"{keys:,}", *(f"{found[name][str(keys)]:,.{1 if name.endswith('_seconds') else 0}f}" for name in HEAD)]
        for keys in KEYS
    ]
    shown = Table(*head, title=f"closed in {close_seconds:.0f} s")
    for row in rows:
        shown.add_row(*row)
    Console(width=130).print(shown)
    measure.keep("open_keys", **found, close_seconds=round(close_seconds, 1), circumstances=measure.circumstances())
    plot.by_keys(found, page.DOCS / "open_keys.svg")
    page.table("open_keys", head, rows)
