"""What a batch costs after how many: 100, 1,000, 10,000 and 100,000.

No JVM; `age.py` says what is real and what is made in bulk.

Each age is a process and a database of its own, and their batches are taken in by turns, so that what else the machine
does meets all of them alike. A year's log is asked what people ask every day, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from onlyonce.commitlog.health import Views
from onlyonce.database.connect import ask, run
from onlyonce.operate import audit, doctor, gc
from tests.benchmarks import age, measure, plot
from tests.contract.conftest import Log
from tests.support import long_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

AGES = [int(part) for part in os.environ.get("ONLYONCE_BENCH_BATCHES", "100,1000,10000,100000").split(",")]
YEAR = int(os.environ.get("ONLYONCE_BENCH_YEAR", "1000000"))
"""Batches of receive in a log, and as many of an output: two years at one a minute."""
WARM = 5
DOCS = Path(__file__).parents[2] / "docs" / "explanation"


def test_age(new_log: Callable[[], Log], tmp_path: Path) -> None:
    """The median of an hour's batches at each age of a driver that has just started, hourly collection and compaction
    just done."""
    pools = {ages: ProcessPoolExecutor(1, mp_context=get_context("spawn")) for ages in AGES}
    try:
        for batches, pool in pools.items():
            url, home = new_log().url, tmp_path / str(batches)
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as before:
                known = before.submit(age.prepare, url, home, batches).result()
            pool.submit(age.begin, url, home, batches, known).result()
        took: dict[int, list[tuple[float, float]]] = {batches: [] for batches in AGES}
        for _ in range(age.MEASURED):
            for batches, pool in pools.items():
                took[batches].append(pool.submit(age.step).result())
        there = {batches: pool.submit(age.found).result() for batches, pool in pools.items()}
    finally:
        for pool in pools.values():
            pool.shutdown()
    found: dict[str, dict[str, float]] = {}
    for batches in AGES:
        seconds, cpu = (measure.median([one[which] for one in took[batches][WARM:]]) for which in (0, 1))
        for name, value in (there[batches] | {"batch_seconds": seconds, "batch_cpu_seconds": cpu}).items():
            found.setdefault(name, {})[str(batches)] = round(value, 4)
    found["of_youngest"] = {str(batches): _of_youngest(took, batches) for batches in AGES}
    print(found)
    measure.keep("age", **found, circumstances=measure.circumstances())
    plot.by_age(found, DOCS / "age.svg")
    oldest, youngest = str(max(AGES)), str(min(AGES))
    # What grows is what is kept for good: a row of the log for each batch. Files and the log of `events` do not.
    assert found["files"][oldest] <= found["files"][youngest] + 8
    assert found["filters"][oldest] <= 144 + 1 + 7 * 2


def _of_youngest(took: dict[int, list[tuple[float, float]]], batches: int) -> float:
    """How many times what a batch takes at the least age: the median over the turns, since in each both met the same
    machine."""
    turns = zip(took[batches][WARM:], took[min(AGES)][WARM:], strict=True)
    return round(measure.median([ours[0] / youngest[0] for ours, youngest in turns]), 3)


PAGE: dict[str, dict[str, Any]] = {
    "pipelines": {"instance": None}, "recent": {"instance": None, "n": 30}, "broken": {"instance": None, "n": 30},
    "lag": {"instance": None}, "catalog": {"instance": None}, "findings": {},
}  # fmt: skip
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "status": lambda conn: Views(conn).rows("status"),
    "audit": lambda conn: (audit.gather(conn), Views(conn).rows("fates")),
    "page": lambda conn: [ask(conn, "page", name, **values) for name, values in PAGE.items()],
    "trace": lambda conn: (
        ask(conn, "trace", "read_by", instance="shop", query="per_minute", version=YEAR // 2),
        ask(conn, "trace", "windows_at", instance="shop", output="per_minute", time="2025-06-01T00:00:30Z"),
    ),
    "conservation of the last day": lambda conn: conn.execute(text(
        "SELECT count(*) FROM onlyonce.conservation WHERE incarnation = 'shop/receive/2' AND batch > 10 AND batch < " "1450 AND conserved")).all(),
}  # fmt: skip


@pytest.mark.skipif(not YEAR, reason="ONLYONCE_BENCH_YEAR is 0")
def test_what_a_log_of_years_is_asked(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each question takes less than a few seconds on any machine; how long is in the results."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/shop.py")
    long_log.fill(log.url, YEAR)
    gc.fold_sums(log.database)
    answers = answered(log)
    print(answers)
    measure.keep("age", answer_seconds=answers, answer_batches=2 * YEAR)


def answered(log: Log) -> dict[str, float]:
    """How long each question takes, the better of two times."""
    found = {}
    for name, question in QUESTIONS.items():
        found[name] = min(_timed(lambda q=question: run(log.database, q)) for _ in range(2))  # type: ignore[misc]
    platform = doctor.Platform(log.database, {}, 0.0)
    found["doctor"] = _timed(lambda: doctor.examine(platform))
    return {name: round(seconds, 3) for name, seconds in found.items()}


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
