"""Joins of two streams: equal to the batch join over the same rows at any cut, wherever a run ends, each row once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onlyonce.core.errors import Refused
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit
from onlyonce.outputs import query
from onlyonce.run import reset
from tests.support.cut_records import START, Record, cut, in_time
from tests.support.joined_oracle import COLUMNS, joined
from tests.support.joined_shop import WATERMARK_DELAY
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

POINTS = ("output-before-begin", "output-after-begin", "output-consumed", "output-before-end", "output-after-end")


def records(chance: random.Random, count: int) -> list[Record]:
    """Orders and payments of a few shops, most of them in order of time; some have no shop."""
    times = sorted(chance.randrange(600_000) for _ in range(count))
    return [
        {
            "id": f"{n}",
            "kind": chance.choice(("order", "payment")),
            "shop": chance.choice(("a", "b", "c", None)),
            "at": (START + timedelta(milliseconds=max(0, at - chance.choice((0, 0, 5_000, 60_000))))).isoformat(),
            "cents": n,
        }
        for n, at in enumerate(times)
    ]


def in_delta(platform: Platform, name: str) -> Counter[Any]:
    """What a reader of the table sees."""
    return plain(platform.table(f"shop/{name}")[list(COLUMNS)])


def in_postgres(platform: Platform, name: str) -> Counter[Any]:
    """The same of a table in PostgreSQL."""
    return plain(platform.sql(f"SELECT {', '.join(COLUMNS)} FROM results.{name}"))


def plain(rows: Any) -> Counter[Any]:
    """Rows as they are counted, with None for what is missing."""
    return multiset(rows.astype(object).where(rows.notna(), None))


@pytest.mark.parametrize("seed", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_a_join_is_that_of_a_batch_however_the_input_is_cut_and_where_runs_end(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Inner over the rows in time, and after a backfill over all; full over all, since late records are included by
    themselves."""
    platform = new_platform("tests/support/joined_shop.py")
    chance = random.Random(seed)
    them = records(chance, 60)
    files = cut(chance, them, 5)
    for number, file in enumerate(files):
        platform.put("shop", f"{number}.jsonl", file)
        if number in (1, 3):
            ends_at, passed = chance.randrange(1, 11), Counter[str]()

            def ended(name: str, ends_at: int = ends_at, passed: Counter[str] = passed) -> None:
                passed["all"] += name in POINTS
                if passed["all"] == ends_at:
                    raise FailPoint(name)

            with monkeypatch.context() as armed:
                armed.setattr(query, "passing", ended)
                armed.setattr(query, "passing", ended)
                with pytest.raises(FailPoint):
                    platform.run("shop")
    platform.run("shop", "--close")
    timely = in_time(files, WATERMARK_DELAY)
    assert 0 < len(timely) < len(them)

    assert in_delta(platform, "paid") == joined(timely, "inner")
    assert in_postgres(platform, "all_of_both") == joined(them, "full")

    platform.backfill("shop", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:11:00Z", "--output", "paid")

    assert in_delta(platform, "paid") == joined(them, "inner")
    assert audit.main(["--data"]).warnings == []
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert platform.sql("SELECT * FROM onlyonce.windows WHERE late_not_included > 0").empty
    with pytest.raises(Refused, match="is a join: which of its rows are written is in the state of its stream"):
        reset.new("shop/paid", yes=True)
