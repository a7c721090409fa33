"""A pipeline that runs on: rounds of small batches on real Spark, each with what hourly and nightly jobs do, and a
start of its own.

A round is a start, its batches, both outputs, a backfill of an hour, collection and compaction. In it are Spark's own
offsets and commits, the manifest of files and the state of a windowed output, which `test_age` leaves out; it is some
thousand batches old at its end and not a hundred thousand.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from onlyonce.operate import compact, gc
from tests.benchmarks import measure, plot, running
from tests.benchmarks.test_age import DOCS
from tests.support.platform import Platform

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(7200)]

ROUNDS = int(os.environ.get("ONLYONCE_BENCH_ROUNDS", "10"))
BATCHES = int(os.environ.get("ONLYONCE_BENCH_ROUND", "200"))
"""Batches of receive in a round: at least 180, since an hour of the round is computed again."""


@pytest.mark.usefixtures("spark")
def test_running(new_platform: Callable[..., Platform]) -> None:
    """The first round is left out of the ratio: there Spark compiles. The result is that of the batch oracle."""
    platform = new_platform("tests/benchmarks/running.py")
    found: dict[str, dict[str, Any]] = {}
    with Progress(console=Console(stderr=True)) as bar:
        for number in bar.track(range(ROUNDS), description=f"{ROUNDS} rounds of {BATCHES} batches"):
            found[str((number + 1) * BATCHES)] = _round(platform, number)
    platform.run("running", "--close")
    rows = platform.sql(
        "SELECT shop, sum(rows)::bigint, sum(cents)::bigint FROM running.per_shop GROUP BY shop ORDER BY shop"
    )
    assert [tuple(row) for row in rows.itertuples(index=False)] == running.expected(ROUNDS * BATCHES)
    assert len(platform.table("running/all")) == ROUNDS * BATCHES * running.NEW
    figures = {name: {age: row[name] for age, row in found.items()} for name in next(iter(found.values()))}
    _show(found)
    measure.keep("running", **figures, circumstances=measure.circumstances())
    plot.by_round(figures, DOCS / "running.svg")


def _round(platform: Platform, number: int) -> dict[str, Any]:
    running.put(platform, number * BATCHES, BATCHES)
    began = time.monotonic()
    platform.run("running")
    drained = time.monotonic() - began
    now = running.START + timedelta(minutes=(number + 1) * BATCHES)
    closed = now.replace(minute=0) - 2 * running.HOUR
    span = ("--from", (closed - running.HOUR).isoformat(), "--to", closed.isoformat())
    began = time.monotonic()
    platform.backfill("running", "--output", "per_shop", *span)
    backfilled = time.monotonic() - began
    began = time.monotonic()
    gc.main([])
    compact.main([])
    tidied = time.monotonic() - began
    committed = platform.sql(
        "SELECT extract(epoch FROM committed_at)::float8 AS at FROM onlyonce.batches WHERE query = 'receive' "
        f"ORDER BY batch DESC LIMIT {BATCHES}"
    )["at"]
    batch = measure.median([later - earlier for earlier, later in pairwise(reversed(committed.tolist()))])
    return {
        "batch_seconds": round(batch, 4), "run_seconds": round(drained, 1), "backfill_seconds": round(backfilled, 2),
        "jobs_seconds": round(tidied, 2), **asdict(running.Kept.of(platform)),
    }  # fmt: skip


def _show(found: dict[str, dict[str, Any]]) -> None:
    shown = Table("batches", *next(iter(found.values())), title="a pipeline that runs on")
    for age, row in found.items():
        shown.add_row(age, *[f"{value:,}" for value in row.values()])
    Console(width=200).print(shown)
