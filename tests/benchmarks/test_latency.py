"""What a small batch costs, and a drain with nothing to do: the fixed costs, in which exactly once shows the most."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from tests.benchmarks import measure, ways
from tests.support.platform import Platform

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

ROUNDS = 6
BATCHES = 5
"""Small batches of each drain; the first one of a drain also starts the query, and is left out."""
TARGETS = {"exactly_once": 1.3, "at_least_once": 1.1}


def test_latency(new_platform: Callable[..., Platform], spark: SparkSession, clock: measure.Clock) -> None:
    """Batches of ten records, the ways in turn; then drains with nothing to do. The first round is left out."""
    home = new_platform("tests/benchmarks/pipelines.py").home
    compared: dict[str, ways.Way] = {"append": ways.append(spark, home), "exactly_once": ways.Ours(spark, "exactly")}
    if (mode := ways.known_mode("at_least_once")) is not None:
        compared["at_least_once"] = ways.Ours(spark, "at_least", **mode)
    seconds: dict[str, list[float]] = {name: [] for name in compared}
    idle: dict[str, list[float]] = {name: [] for name in compared}
    for number in range(ROUNDS):
        for name, way in compared.items():
            for batch in range(BATCHES):
                put_ten(way.inbox, number * BATCHES + batch)
            way.drain()
            clock.settle()
            seconds[name] += clock.seconds.pop(way.query)[1:] if number else clock.seconds.pop(way.query)[:0]
            began = time.monotonic()
            way.drain()
            idle[name].append(time.monotonic() - began)
    _report(
        seconds, {name: each[1:] for name, each in idle.items()}, {n: clock.parts[w.query] for n, w in compared.items()}
    )


def put_ten(inbox: Path, number: int) -> None:
    """A batch of ten records, in as many files as a batch takes."""
    inbox.mkdir(parents=True, exist_ok=True)
    records = [
        {
            "id": f"{number}-{n}",
            "user": n,
            "at": f"2026-01-01T00:{number % 60:02d}:00Z",
            "amount": n,
            "kind": "view",
            "note": "",
        }
        for n in range(10)
    ]
    for part, half in enumerate((records[:5], records[5:])):  # as many files as a batch takes
        partial = inbox / f".{number:04d}-{part}"
        partial.write_text("".join(json.dumps(record) + "\n" for record in half))
        partial.rename(inbox / f"{number:04d}-{part}.jsonl")


def _report(seconds: dict[str, list[float]], idle: dict[str, list[float]], parts: dict[str, list[Any]]) -> None:
    bare = measure.median(seconds["append"])
    shown = Table("way", "batch of 10, seconds", "of append", "target", "drain with nothing to do", title="fixed costs")
    for name, each in seconds.items():
        ratio, most = measure.median(each) / bare, TARGETS.get(name)
        said = "" if most is None else f"at most {most}: {'met' if ratio <= most else 'MISSED'}"
        shown.add_row(name, f"{measure.median(each):.3f}", f"{ratio:.2f}", said, f"{measure.median(idle[name]):.3f}")
    Console(width=110).print(shown)
    measure.keep(
        "receive",
        latency={
            "batch_of_10_seconds": {name: round(measure.median(each), 4) for name, each in seconds.items()},
            "of_append": {name: round(measure.median(each) / bare, 3) for name, each in seconds.items()},
            "idle_drain_seconds": {name: round(measure.median(each), 4) for name, each in idle.items()},
            "parts_ms": {
                name: {part: measure.median([p.get(part, 0) for p in each]) for part in each[-1]}
                for name, each in parts.items()
            },
            **measure.circumstances(),
        },
    )  # fmt: skip
