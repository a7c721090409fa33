"""What a batch of 500,000 costs beside a catalog of 1, 10 and 100 million ids. No JVM: two workers, as Spark has them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.benchmarks import growth, measure
from tests.contract.conftest import Log, ask

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

ROUNDS = 5


@pytest.mark.skipif(not growth.sizes(), reason="ONLYONCE_BENCH_IDS names no sizes; make bench-all does")
def test_growth(new_log: Callable[[], Log]) -> None:
    """Each size alone on a fresh platform; the first batch loads the filters, the others are those of a running worker."""
    found = {ids: _measured(new_log(), ids) for ids in growth.sizes()}
    _show(found)
    measure.keep(
        "receive",
        growth_seconds={str(ids): row["seconds"] for ids, row in found.items()},
        growth={str(ids): row for ids, row in found.items()},
        growth_circumstances=measure.circumstances(),
    )


def _measured(log: Log, ids: int) -> dict[str, Any]:
    filled = growth.Catalog(log.url, ids)
    driver = filled.start()
    began = time.monotonic()
    with Progress(console=Console(stderr=True)) as bar:
        for batch in bar.track(range(filled.batches), description=f"{ids:,} ids"):
            filled.fill(driver, batch)
    filling = time.monotonic() - began
    recent = next(
        batch
        for batch in range(filled.batches)
        if filled.bucket(batch) >= growth.FIRST + growth.BUCKETS - growth.RECENT
    )
    workers = growth.Workers(filled, driver)
    try:
        cold, _ = workers.judge(recent)
        warm = [workers.judge(recent)[0] for _ in range(ROUNDS)]
        _, megabytes = workers.judge(recent)
        spread = [workers.judge(0)[0] for _ in range(2)]
        _, megabytes_spread = workers.judge(0)
    finally:
        workers.end()
    stored = ask(
        log.url,
        "SELECT sum(pg_total_relation_size(c.oid))::bigint, sum(pg_table_size(c.oid))::bigint FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE nspname = 'onlyonce_private' AND relname LIKE 'catalog_%%' AND relkind = 'r'",
    )[0][0]
    held = ask(log.url, "SELECT sum(id_count)::bigint FROM onlyonce_private.catalog_chunks")[0][0]
    return {
        "seconds": round(measure.median(warm), 3), "cold_seconds": round(cold, 3), "all_warm_seconds": [round(s, 3) for s in warm],
        "spread_seconds": round(measure.median(spread), 3), "worker_megabytes": round(megabytes),
        "worker_megabytes_spread": round(megabytes_spread), "bytes_an_id": round(stored / held, 2),
        "fill_seconds": round(filling, 1),
    }  # fmt: skip


def _show(found: dict[int, dict[str, Any]]) -> None:
    shown = Table(
        "ids", *next(iter(found.values())), title=f"a batch of {growth.BATCH:,} judged, 5 % of the last hour again"
    )
    for ids, row in found.items():
        shown.add_row(f"{ids:,}", *[str(value) for value in row.values()])
    Console(width=150).print(shown)
