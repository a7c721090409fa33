"""What a batch of 500,000 costs beside a catalog of 1, 10 and 100 million ids, and what it would beside a billion.

No JVM: two workers, as Spark has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.benchmarks import billion, growth, measure
from tests.contract.conftest import Log, ask

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

ROUNDS = 5
SPREAD_ROUNDS = 3
"""The same with re-deliveries of all of the day, not of its last hour."""


@pytest.mark.skipif(not growth.sizes(), reason="ONLYONCE_BENCH_IDS names no sizes; make bench-all does")
def test_growth(new_log: Callable[[], Log]) -> None:
    """Each size alone on a fresh platform; the first batch loads the filters, the others are those of a running
    worker."""
    found = {ids: _measured(new_log(), ids) for ids in growth.sizes()}
    _show(found)
    computed = billion.computed(found[max(found)], max(found))
    Console(width=150).print(billion.table(computed))
    measure.keep(
        "receive",
        growth_seconds={str(ids): row["seconds"] for ids, row in found.items()},
        growth={str(ids): row for ids, row in found.items()},
        growth_to_a_billion=computed,
        growth_circumstances=measure.circumstances(),
    )


def test_collect(new_log: Callable[[], Log]) -> None:
    """A bucket of a million ids whose time is over: one drop."""
    seconds = growth.collected(new_log().url)
    Console().print(f"a bucket of a million ids is collected in {seconds:.3f} s")
    measure.keep("receive", collect_seconds={"1000000": round(seconds, 4)})


def _measured(log: Log, ids: int) -> dict[str, Any]:
    filled = growth.Catalog(log.url, ids)
    driver = filled.start()
    with Progress(console=Console(stderr=True)) as bar:
        for batch in bar.track(range(filled.batches), description=f"{ids:,} ids"):
            filled.fill(driver, batch, filled.bucket(batch))
    filled.collect()
    recent = next(
        batch
        for batch in range(filled.batches)
        if filled.bucket(batch) >= growth.FIRST + growth.BUCKETS - growth.RECENT
    )
    workers = growth.Workers(filled, driver)
    try:
        cold = workers.judge(recent)
        warm = [workers.judge(recent) for _ in range(ROUNDS)]
        spread = [workers.judge(0) for _ in range(SPREAD_ROUNDS)]
    finally:
        workers.end()
    asked = growth.looked_up(filled, driver, recent)
    stored = ask(
        log.url,
        "SELECT sum(pg_total_relation_size(c.oid))::bigint, sum(pg_table_size(c.oid))::bigint FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE nspname = 'onlyonce_private' AND (relname LIKE 'catalog_%%' OR relname = 'range_filters') AND "
        "relkind = 'r'",
    )[0][0]
    held, filters, ranges = ask(
        log.url,
        "SELECT sum(id_count)::bigint, sum(octet_length(filter))::bigint, "
        "(SELECT coalesce(sum(octet_length(filter)), 0)::bigint FROM onlyonce_private.range_filters) FROM "
        "onlyonce_private.catalog_chunks",
    )[0]
    return {
        "seconds": _middle(warm, "seconds"), "cpu_seconds": _middle(warm, "cpu_seconds"),
        "cold_seconds": round(cold.seconds, 3), "worker_megabytes": round(warm[-1].megabytes),
        "worker_private_megabytes": round(warm[-1].private_megabytes),
        "spread_seconds": _middle(spread, "seconds"), "spread_cpu_seconds": _middle(spread, "cpu_seconds"),
        "spread_worker_megabytes": round(spread[-1].megabytes),
        "spread_worker_private_megabytes": round(spread[-1].private_megabytes), "bytes_an_id": round(stored / held, 2),
        "filter_bytes_an_id": round(filters / held, 2), "range_filter_bytes_an_id": round(ranges / held, 2),
        "filters_asked": asked.filters, "worker_filter_bytes_an_id": round(asked.bytes_an_id, 2), "new_ids_seconds": round(asked.new_seconds * growth.PARTITIONS, 3),
        "look_ups_spared": asked.took.spared, "look_ups": asked.took.made,
        "false_positive_rate": round(asked.took.false_positives / (asked.took.spared + asked.took.false_positives), 7),
    }  # fmt: skip


def _middle(judged: list[growth.Judged], figure: str) -> float:
    return round(measure.median([getattr(one, figure) for one in judged]), 3)


def _show(found: dict[int, dict[str, Any]]) -> None:
    shown = Table(
        "ids", *next(iter(found.values())), title=f"a batch of {growth.BATCH:,} judged, 5 % of the last hour again"
    )
    for ids, row in found.items():
        shown.add_row(f"{ids:,}", *[str(value) for value in row.values()])
    Console(width=150).print(shown)
