"""What a batch costs after how many: receive's own steps on a real PostgreSQL, without a JVM, collected each hour.

A batch a minute of a few records, of which one was sent before. Measured are begin, look-up, unit, end, and the merge between two
batches; not measured is what Spark and Delta add, so neither `files` nor `log_bytes` is here. `filters` is how many a look-up
asks for each partition. The machine may be shared, so besides the clock the processor's time is measured: that of this process.
"""

from __future__ import annotations

import os
import time
from itertools import count
from typing import Any

import psutil
import pytest

from onlyonce.catalog import catalog_lookup
from onlyonce.operate import collect
from tests.benchmarks import measure
from tests.contract.conftest import Log
from tests.contract.receive import Receive
from tests.contract.receiver import Record, uniform
from tests.support.shop import SHOP

BATCHES = int(os.environ.get("ONLYONCE_BENCH_BATCHES", "100000"))
SECONDS = float(os.environ.get("ONLYONCE_BENCH_SECONDS", "36000"))
"""Where it takes longer it ends, with what was measured until then."""
EACH, A_BUCKET, AN_HOUR = 20, 10, 60
LAST = 100
"""So many batches are measured up to each number."""


def marks(batches: int) -> list[int]:
    """100, 1000, … up to a number."""
    return [10**power for power in range(2, 9) if 10**power <= batches]


@pytest.mark.slow
@pytest.mark.timeout(36_000)
def test_a_batch_costs_after_many_what_it_cost_at_first(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written to results/age.json; of the filters the most that may be is asserted, and of time nothing."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/shop.py")
    catalog_lookup.forget()
    stream, known = Receive(log), [uniform(1, 1)[0]]
    found: dict[str, dict[str, Any]] = {"batch_seconds": {}, "batch_cpu_seconds": {}, "filters": {}}
    found |= {"database_bytes": {}, "driver_mb": {}}
    clock: list[float] = []
    cpu: list[float] = []
    began = time.monotonic()
    for number in count(1):
        at, used = time.perf_counter(), time.process_time()
        one_batch(stream, number, known)
        clock.append(time.perf_counter() - at)
        cpu.append(time.process_time() - used)
        if number % AN_HOUR == 0:
            collect.collect_instance(log.database, stream.instance, SHOP, [])
        if number in marks(BATCHES):
            note(found, number, log, clock[-LAST:], cpu[-LAST:])
            print(number, {name: values[str(number)] for name, values in found.items()})
        if number == BATCHES or time.monotonic() - began > SECONDS:
            break
    measure.keep("age", batches=number, **found)
    # A day of closed buckets, one filter each; in the one that grows fewer than eight of each level.
    assert max(found["filters"].values()) <= 24 * 6 + 1 + 7 * 2


def one_batch(stream: Receive, number: int, known: list[Record]) -> None:
    """A batch with one record of the batch before, and what the driver does after it."""
    records = uniform(EACH, number)
    stream.merge(stream.batch(3_000_000 + number // A_BUCKET, [known[0], *records]))
    stream.events.clear()
    known[0] = records[0]


def note(found: dict[str, dict[str, Any]], number: int, log: Log, clock: list[float], cpu: list[float]) -> None:
    """What it takes after so many batches."""
    [(size,)] = log.rows("SELECT pg_database_size(current_database())")
    [(filters,)] = log.rows(
        "SELECT count(*) FROM onlyonce_private.catalog_chunks c JOIN onlyonce_private.pipelines p USING (instance) "
        "WHERE c.partition = 0 AND c.bucket >= p.gc_floor"
    )
    now = {
        "batch_seconds": sorted(clock)[len(clock) // 2], "batch_cpu_seconds": sorted(cpu)[len(cpu) // 2],
        "filters": filters, "database_bytes": size, "driver_mb": psutil.Process().memory_info().rss / 2**20,
    }  # fmt: skip
    for name, value in now.items():
        found[name][str(number)] = round(value, 4)
