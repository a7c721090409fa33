"""What a billion ids cost, computed from what was measured beside fewer; each figure with its formula.

A worker never sees a billion: it sees its partition. A billion ids in twenty partitions are 50 million for each, over
the same 144 buckets of a day. So is the catalog of 100 million in two, which is measured: its worker is the sample of a
billion's, and of a smaller catalog the figures only tell the trend.
"""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from onlyonce.catalog import worker_cache
from onlyonce.core import gc
from tests.benchmarks import growth

IDS = 10**9


def filters_asked(ids: int) -> int:
    """How many filters a partition's look-up asks of so many ids, spread over the buckets of a day, one chunk for each
    million of a bucket."""
    each = math.ceil(ids / growth.BUCKETS)
    pieces = max(1, math.ceil(each / 1_000_000))
    chunks = {
        growth.FIRST + bucket: {bucket * pieces + piece: each // pieces for piece in range(pieces)}
        for bucket in range(growth.BUCKETS)
    }
    made = gc.wanted_ranges(chunks, {}, 0, growth.FIRST + growth.BUCKETS - 1)
    alone = [bucket for bucket in chunks if not any(first <= bucket <= last for first, last in made)]
    return len(made) + sum(len(chunks[bucket]) for bucket in alone)


def computed(row: dict[str, Any], sampled: int) -> dict[str, dict[str, Any]]:
    """The figures by name; `row` is what was measured beside `sampled` ids."""
    kept = row["worker_filter_bytes_an_id"]
    partitions = math.ceil(IDS * kept / worker_cache.CACHE_BYTES)
    filters = filters_asked(IDS // partitions)
    one = row["new_ids_seconds"] / (growth.BATCH * row["filters_asked"])
    figures: dict[str, tuple[float, str]] = {
        "sampled_ids": (sampled, "the largest catalog that was filled"),
        "database_bytes": (
            IDS * row["bytes_an_id"],
            f"1e9 ids x {row['bytes_an_id']} bytes an id (measured: chunks, their filters, range filters, indexes)",
        ),
        "partitions": (
            partitions,
            f"ceil(1e9 ids x {kept} bytes (measured: the filters that new ids ask, by id of the partition) / "
            f"{worker_cache.CACHE_BYTES} of a worker's cache)",
        ),
        "worker_filter_bytes": (IDS * kept / partitions, f"1e9 ids x {kept} bytes / {partitions} partitions"),
        "filters_asked": (
            filters,
            f"of 1e9 / {partitions} ids in {growth.BUCKETS} buckets, by the product's own choice of ranges",
        ),
        "look_up_milliseconds_of_500000": (
            1000 * growth.BATCH * filters * one,
            f"500,000 ids x {filters} filters x {one * 1e9:.1f} ns (measured: {row['new_ids_seconds']} s / 500,000 "
            f"/ {row['filters_asked']} filters, new ids, one core)",
        ),
        "cold_worker_bytes_fetched": (
            IDS * kept / partitions,
            "the filters of its partition, once when it starts; later those that a collection has made again",
        ),
    }
    return {name: {"value": round(value), "formula": formula} for name, (value, formula) in figures.items()}


def table(figures: dict[str, dict[str, Any]]) -> Table:
    """To be shown."""
    shown = Table("a billion ids", "", "by", title="computed")
    for name, figure in figures.items():
        shown.add_row(name.replace("_", " "), f"{figure['value']:,}", figure["formula"])
    return shown
