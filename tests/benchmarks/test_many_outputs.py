"""How long a drain of five records takes with twenty outputs, by how many of them work at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from tests.benchmarks import many, measure, page
from tests.support.platform import Platform, Server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

AT_ONCE = [int(part) for part in os.environ.get("ONLYONCE_BENCH_AT_ONCE", "1,4,8").split(",")]
ROUNDS = int(os.environ.get("ONLYONCE_BENCH_ROUNDS", "4"))
"""The last three are measured: the JVM is warm then."""
RECORDS = 5
TARGET_SECONDS = 8.0


def test_many_outputs(
    new_platform: Callable[..., Platform],
    monkeypatch: pytest.MonkeyPatch,
    server: Server,
    spark: SparkSession,
    clock: measure.Clock,
) -> None:
    """By turns, each drain one file of five records.

    At the end each output has each record, and each closed window, once.
    """
    platform = new_platform("tests/benchmarks/many.py")
    took: dict[int, list[float]] = {at_once: [] for at_once in AT_ONCE}
    used: dict[int, list[float]] = {at_once: [] for at_once in AT_ONCE}
    drains = 0
    for _ in range(ROUNDS):
        for at_once in AT_ONCE:
            platform.give(monkeypatch, ONLYONCE_OUTPUTS_AT_ONCE=str(at_once))
            _put(platform, drains)
            drains += 1
            began, cpu = time.monotonic(), measure.cpu_seconds(server)
            platform.run("many")
            took[at_once].append(time.monotonic() - began)
            used[at_once].append(measure.cpu_seconds(server) - cpu)
    clock.settle()
    platform.run("many", "--close")
    _check(platform, drains)
    _report(took, used, _by_kind(clock))


def _put(platform: Platform, number: int) -> None:
    """Ten minutes on with each file, so that an hour closes now and then."""
    hour, minute = divmod(number * 10, 60)
    platform.put(
        "many",
        f"{number:04d}.jsonl",
        [
            {"id": f"{number}-{n}", "key": n % 3, "at": f"2026-01-01T{hour:02d}:{minute:02d}:{n:02d}Z", "amount": n}
            for n in range(RECORDS)
        ],
    )


def _check(platform: Platform, drains: int) -> None:
    expected = drains * RECORDS
    for number in range(many.EACH):
        assert sorted(platform.table(f"many/rows_delta_{number}")["id"]) == sorted(
            platform.sql(f"SELECT id FROM many.rows_{number}")["id"]
        )
        assert platform.table(f"many/rows_delta_{number}")["id"].nunique() == expected
        assert platform.table(f"many/windows_delta_{number}")["rows"].sum() == expected
        assert platform.sql(f'SELECT sum("rows") AS n FROM many.windows_{number}')["n"][0] == expected


def _by_kind(clock: measure.Clock) -> dict[str, dict[str, float]]:
    """The parts of a batch as Spark counts them, by kind of output: the median of all batches with rows, in
    milliseconds."""
    parts: dict[str, list[dict[str, int]]] = {}
    for name, each in clock.parts.items():
        if name and "receive" not in name:
            parts.setdefault(name.split("/")[1].rsplit("_", 1)[0], []).extend(each)
    return {
        kind: {part: measure.median([float(one.get(part, 0)) for one in each]) for part in each[0]}
        for kind, each in parts.items()
    }


def _report(took: dict[int, list[float]], used: dict[int, list[float]], parts: dict[str, dict[str, float]]) -> None:
    outputs = 4 * many.EACH
    seconds = {str(n): round(measure.median(each[1:] or each), 2) for n, each in took.items()}
    processor = {str(n): round(measure.median(each[1:] or each), 2) for n, each in used.items()}
    head = ["at once", "a drain, seconds", "its processor, seconds", "an output, seconds"]
    rows = [[n, f"{each:.1f}", f"{processor[n]:.1f}", f"{each / outputs:.2f}"] for n, each in seconds.items()]
    shown = Table(
        *head, title=f"{RECORDS} records, {outputs} outputs; at most {TARGET_SECONDS:.0f} s with four at once"
    )
    for row in rows:
        shown.add_row(*row)
    Console(width=110).print(shown, parts)
    page.table("many_outputs", head, rows)
    measure.keep(
        "many_outputs", outputs=outputs, records=RECORDS, drain_seconds=seconds, drain_cpu_seconds=processor,
        an_output_seconds={n: round(each / outputs, 3) for n, each in seconds.items()}, batch_parts_ms=parts,
        target_seconds=TARGET_SECONDS, all_seconds={str(n): [round(s, 2) for s in each] for n, each in took.items()}, **measure.circumstances(),
    )  # fmt: skip
