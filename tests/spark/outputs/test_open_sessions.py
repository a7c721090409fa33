"""Early panes of sessions: each pane replaces the rows of all open sessions, so a table is always a batch's result."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onlyonce.operate import audit
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GAP, DELAY = 5 * MINUTE, MINUTE
COLUMNS = ("window_start", "window_end", "shop", "sales", "cents")
Record = dict[str, Any]


def sales(chance: random.Random, count: int) -> list[Record]:
    """Records of two shops in bursts, out of order by up to ten minutes: some are late, some join two sessions."""
    minute, found = 0.0, []
    for number in range(count):
        minute += chance.choice([0.2, 0.5, 1, 3, 4, 7])
        at = START + timedelta(seconds=int(60 * (minute - chance.choice([0, 0, 0, 0.5, 4, 10]))))
        found.append({"id": f"s{number}", "shop": chance.choice("ab"), "at": at.isoformat(), "cents": chance.randrange(100), "weight": 1.0})
    return found


class Oracle:
    """The sessions of all records in time, by a plain computation over the batches so far."""

    def __init__(self) -> None:
        self.kept: list[Record] = []
        self.late = 0
        self.newest: datetime | None = None

    def batch(self, records: Iterable[Record]) -> None:
        """Take a batch: a record is late by what the batches before have."""
        closed = None if self.newest is None else self.newest - DELAY
        new = list(records)
        self.kept += [one for one in new if closed is None or _at(one) > closed]
        self.late += sum(closed is not None and _at(one) <= closed for one in new)
        self.newest = max([_at(one) for one in new] + ([self.newest] if self.newest else []))

    def sessions(self) -> Counter[Any]:
        """Return (start, end, shop, records, cents) of each session."""
        by_shop = defaultdict(list)
        for one in sorted(self.kept, key=_at):
            bursts = by_shop[one["shop"]]
            if bursts and _at(one) - _at(bursts[-1][-1]) <= GAP:
                bursts[-1].append(one)
            else:
                bursts.append([one])
        return Counter(
            (_at(burst[0]), _at(burst[-1]) + GAP, shop, len(burst), sum(one["cents"] for one in burst))
            for shop, bursts in by_shop.items()
            for burst in bursts
        )


def _at(one: Record) -> datetime:
    return datetime.fromisoformat(one["at"])


def in_sinks(platform: Platform) -> dict[str, Counter[Any]]:
    """Return the rows of each table."""
    tables = {name: platform.sql(f"SELECT * FROM results.{name}") for name in ("in_postgres", "counted")}
    tables |= {name: platform.table(f"shop/{name}") for name in ("in_delta", "timed")}
    return {name: multiset(frame, *COLUMNS) for name, frame in tables.items()}


def test_try(new_platform: Callable[..., Platform], spark: object) -> None:
    platform, chance, oracle = new_platform("tests/support/open_sessions.py"), random.Random(1), Oracle()
    records = sales(chance, 60)
    for number in range(6):
        part = records[10 * number : 10 * number + 10]
        platform.put("shop", f"{number}.jsonl", part)
        oracle.batch(part)
        platform.run("shop")
        there = in_sinks(platform)
        for name in ("in_postgres", "in_delta"):
            assert there[name] == oracle.sessions(), (name, number)
    print(oracle.late)
    platform.run("shop", "--close")
    there = in_sinks(platform)
    for name in there:
        assert there[name] == oracle.sessions(), name
    print(platform.sql("SELECT * FROM onlyonce.panes").to_string())
    assert audit.main(["--data"]).warnings == []
