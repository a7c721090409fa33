"""The input of the test pipeline, and what must come of it: a plain batch computation, no product code."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def sales(
    count: int, files: int, *, duplicates: float = 0.1, seed: int = 1, first: int = 0
) -> list[list[dict[str, Any]]]:
    """`files` files of records: disorder of up to 90 s, some far behind (late), re-deliveries mixed in."""
    chance = random.Random(seed)
    made: list[list[dict[str, Any]]] = [[] for _ in range(files)]
    for n in range(first, first + count):
        at = START + timedelta(seconds=n * 2) - timedelta(seconds=chance.randrange(90))
        if chance.random() < 0.03:
            at -= timedelta(minutes=chance.randrange(3, 15))
        record = {
            "id": f"s{n}", "shop": f"shop-{int(chance.paretovariate(1)) % 7}", "at": at.isoformat().replace("+00:00", "Z"),
            "cents": chance.randrange(1, 10_000), "weight": round(chance.random() * 10, 3),
        }  # fmt: skip
        place = (n - first) * files // count
        made[place].append(record)
        if chance.random() < duplicates:
            made[chance.randrange(place, files)].append(dict(record))
    return made


def distinct(files: list[list[dict[str, Any]]]) -> pd.DataFrame:
    """The distinct records, with window, whether late for it, the batch that kept them and the max event time before it.

    One file is one batch.
    """
    return every(files).drop_duplicates("id").reset_index(drop=True)


def every(files: list[list[dict[str, Any]]]) -> pd.DataFrame:
    """The same of each delivery: what at-least-once mode keeps."""
    found: list[dict[str, Any]] = []
    max_event_time: datetime | None = None
    for batch, records in enumerate(files):
        frontier = max_event_time
        for record in records:
            at = datetime.fromisoformat(record["at"])
            start = START + (at - START) // MINUTE * MINUTE
            late = frontier is not None and start + MINUTE <= frontier - MINUTE
            found.append(record | {"window_start": start, "late": late, "batch": batch, "max_event_time": frontier})
            max_event_time = at if max_event_time is None else max(max_event_time, at)
    return pd.DataFrame(found)


def per_shop(records: pd.DataFrame) -> pd.DataFrame:
    """Sales, cents and weight of each shop in each window."""
    grouped = records.groupby(["window_start", "shop"])
    return grouped.agg(sales=("id", "count"), cents=("cents", "sum"), weight=("weight", "sum")).reset_index()


def total(records: pd.DataFrame) -> pd.DataFrame:
    """Sales and cents of each window."""
    return records.groupby("window_start").agg(sales=("id", "count"), cents=("cents", "sum")).reset_index()


def balance(records: pd.DataFrame) -> pd.DataFrame:
    """The sums of each shop."""
    return records.groupby("shop").agg(cents=("cents", "sum"), sales=("id", "count")).reset_index()


def newest(records: pd.DataFrame) -> pd.DataFrame:
    """The newest sale of each shop, where it does not delete it."""
    last = records.sort_values(["at", "id"]).groupby("shop").tail(1)
    return last[last.cents % 2 == 1]
