"""Queries of Nexmark, each as a pipeline of its own, against plain Spark streaming without guarantees: wall time of
drains, in turn.

Both take the same files. Ours judges each event by its id, keeps it in `events`, writes the result once, and has its
log; the plain job reads JSON and appends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from onlyonce import settings
from tests.benchmarks import measure, nexmark, page
from tests.nexmark import events as made
from tests.nexmark.declarations import QUERIES
from tests.support.platform import Platform, Server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(7200)]

EVENTS = int(os.environ.get("ONLYONCE_BENCH_EVENTS", "500000"))
"""In a round, for each query."""
ROUNDS = int(os.environ.get("ONLYONCE_BENCH_ROUNDS", "3"))
"""The first one is left out: there Spark compiles."""
FILES = 2 * nexmark.FILES_A_BATCH
A_SECOND, SEED = 10_000, 8
ROW_BY_ROW = {"q1": ("id",), "q2": ("id",), "q13": ("id",)}
"""Their rows are all there after a drain, so both ways are compared; windows and joins keep some back."""


def test_nexmark(new_platform: Callable[..., Platform], server: Server, spark: SparkSession) -> None:
    """By turns, each drain two batches of the same files."""
    platform = new_platform("tests/benchmarks/nexmark.py")
    side = ", ".join(f"({key}, '{value}')" for key, value in nexmark.SIDE.items())
    platform.sql(
        "CREATE SCHEMA nexmark; CREATE TABLE nexmark.side (key bigint, value text); INSERT INTO nexmark.side "
        f"VALUES {side}"
    )
    files = made.write(platform.home / "input", EVENTS * ROUNDS, FILES * ROUNDS, SEED, A_SECOND)
    found = {query: _measured(platform, server, spark, query, files) for query in nexmark.ASKED}
    _show(found)


def _measured(platform: Platform, server: Server, spark: SparkSession, query: str, files: list[Path]) -> dict[str, Any]:
    bare, name = nexmark.Bare(spark, platform.home, query), f"nexmark_{query}"
    works: dict[str, Callable[[], object]] = {"bare": bare.drain, "exactly_once": lambda: platform.run(name)}
    inboxes = {"bare": bare.inbox, "exactly_once": settings.inbox(name)}
    clock: dict[str, list[float]] = {way: [] for way in works}
    cpu: dict[str, list[float]] = {way: [] for way in works}
    for number in range(ROUNDS):
        for way, work in works.items():
            inboxes[way].mkdir(parents=True, exist_ok=True)
            for file in files[number * FILES : (number + 1) * FILES]:
                (inboxes[way] / file.name).hardlink_to(file)
            began, used = time.monotonic(), measure.cpu_seconds(server)
            work()
            clock[way].append(round(time.monotonic() - began, 2))
            cpu[way].append(round(measure.cpu_seconds(server) - used, 2))
    if query in ROW_BY_ROW:
        ours = nexmark.distinct_rows(settings.tables_dir() / name / query, ROW_BY_ROW[query])
        assert ours == nexmark.distinct_rows(bare.home / "table", ROW_BY_ROW[query]) > 0
    seconds = {way: measure.median(each[1:] or each) for way, each in clock.items()}
    processor = {way: measure.median(each[1:] or each) for way, each in cpu.items()}
    return {
        "events_a_second": {way: round(EVENTS / each) for way, each in seconds.items()},
        "ratio": round(seconds["bare"] / seconds["exactly_once"], 3),
        "cpu_ratio": round(processor["bare"] / processor["exactly_once"], 3),
        "seconds": clock, "cpu_seconds": cpu,
    }  # fmt: skip


def _show(found: dict[str, dict[str, Any]]) -> None:
    circumstances = {"events_a_round": EVENTS, "rounds": ROUNDS, "seed": SEED}
    # Each query may have a process of its own: what the others have found under the same circumstances stays.
    there = measure.kept("nexmark", **circumstances).get("queries", {}) | found
    found = {query: there[query] for query in QUERIES if query in there}
    head = ["query", "exactly once, events/s", "plain Spark, events/s", "ratio", "of processor time"]
    rows = [
        [
            query,
            f"{one['events_a_second']['exactly_once']:,}",
            f"{one['events_a_second']['bare']:,}",
            f"{one['ratio']:.2f}",
            f"{one['cpu_ratio']:.2f}",
        ]
        for query, one in found.items()
    ]
    shown = Table(*head, title=f"Nexmark: {EVENTS:,} events a round in two batches")
    for row in rows:
        shown.add_row(*row)
    Console(width=110).print(shown)
    measure.keep("nexmark", queries=found, **circumstances, **measure.circumstances())
    page.table("nexmark", head, rows, page.DOCS / "nexmark.md")
