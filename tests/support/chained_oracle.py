"""The windows of minutes, and those that are made of them, by a batch over a batch over the same records; and what a
reader of the tables sees."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from tests.support.cut_records import MINUTE, Record, floor
from tests.support.platform import Platform, multiset

Sums = dict[tuple[datetime, str], tuple[int, ...]]
BEST = ("window_start", "shop", "windows", "best", "sales", "cents")


def per_shop(pairs: Iterable[tuple[Record, datetime]]) -> Sums:
    """(sales, cents) by window and shop, of records with the start of a window that each is in."""
    found: dict[tuple[datetime, str], list[int]] = defaultdict(lambda: [0, 0])
    for one, start in pairs:
        sums = found[start, one["shop"]]
        sums[0], sums[1] = sums[0] + 1, sums[1] + one["cents"]
    return {window: tuple(sums) for window, sums in found.items()}


def best(windows: Sums, size: int, minutes: int) -> Sums:
    """(windows, best, sales, cents) of the windows of a size whose last moments are in each window of so many
    minutes."""
    found: dict[tuple[datetime, str], list[tuple[int, ...]]] = defaultdict(list)
    for (start, shop), sums in windows.items():
        last = start + size * MINUTE - timedelta(microseconds=1)
        found[floor(last, minutes * MINUTE), shop].append(sums[-2:])
    return {
        window: (len(them), max(c for _, c in them), sum(s for s, _ in them), sum(c for _, c in them))
        for window, them in found.items()
    }


def rows(sums: Sums) -> Counter[Any]:
    """As a table has them."""
    return Counter((*window, *values) for window, values in sums.items())


def in_delta(platform: Platform, name: str) -> Counter[Any]:
    """What a reader of the table sees."""
    table = platform.table(name)
    return multiset(table[[column for column in BEST if column in table]])


def in_postgres(platform: Platform, name: str) -> Counter[Any]:
    """The same of a table in PostgreSQL."""
    return multiset(platform.sql(f"SELECT {', '.join(BEST)} FROM results.{name}"))
