"""What it costs to stage a batch's rows before they are written: two outputs of one function, in one run."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from tests.benchmarks import measure
from tests.support.platform import Platform

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

SIZES = [int(size) for size in os.environ.get("ONLYONCE_BENCH_STAGED", "10 1000000").split()]
ROUNDS = int(os.environ.get("ONLYONCE_BENCH_ROUNDS", "6"))
"""Runs of one batch each, for each size. The first one is left out."""


def test_staging(new_platform: Callable[..., Platform], spark: SparkSession, clock: measure.Clock) -> None:
    """Both outputs write each batch, one after the other; batches of the sizes in turn."""
    platform = new_platform("tests/benchmarks/staging.py")
    seconds: dict[int, dict[str, list[float]]] = {size: {"plain": [], "staged": []} for size in SIZES}
    first = 0
    for number in range(ROUNDS):
        for size in SIZES:
            rows = [f'{{"id":{n},"key":{n % 100},"at":"2026-01-01T00:00:00Z"}}' for n in range(first, first + size)]
            platform.put("bench", f"{first}.jsonl", ["\n".join(rows)])
            first += size
            platform.run("bench")
            clock.settle()
            for name, each in seconds[size].items():
                [batch] = clock.seconds.pop(f"bench/{name}/1")
                each += [batch] if number else []
    for name in ("plain", "staged"):
        assert len(platform.table(f"bench/{name}")) == first
    _report(seconds)


def _report(seconds: dict[int, dict[str, list[float]]]) -> None:
    shown = Table("records of a batch", "not staged, seconds", "staged, seconds", "ratio", title="staging")
    found = {}
    for size, each in seconds.items():
        plain, staged = (measure.median(each[name]) for name in ("plain", "staged"))
        shown.add_row(f"{size:,}", f"{plain:.3f}", f"{staged:.3f}", f"{staged / plain:.2f}")
        found[str(size)] = {
            "plain": round(plain, 4), "staged": round(staged, 4), "ratio": round(staged / plain, 3), "all": each,
        }  # fmt: skip
    Console(width=110).print(shown)
    measure.keep("staging", batches=found, **measure.circumstances())
