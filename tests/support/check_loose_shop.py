"""Holds the pipeline of `loose_shop` against its oracle: nothing lost, and twice only what the log says was written
again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from tests.support import shop_oracle
from tests.support.platform import Platform, multiset

Pairs = dict[str, tuple[Counter[Any], Counter[Any]]]


def pairs(platform: Platform, records: pd.DataFrame, suffix: str = "") -> Pairs:
    """(wanted, found) of all that must come of these records, each of them as often as it is kept."""
    in_time = records if suffix else records[~records["late"]]
    events = platform.events("shop" + suffix)
    shops = shop_oracle.per_shop(in_time)
    keys = ["window_start", "shop", "sales", "cents"]
    found: Pairs = {
        "kept": (multiset(records, "id", "cents"), multiset(events[events["oo_kind"] == "kept"], "id", "cents")),
        "per_shop": (multiset(shops, *keys), multiset(platform.table(f"shop/per_shop{suffix}"), *keys)),
        "now": (_rows(shops, *keys), _rows(platform.sql(f'SELECT * FROM results."now{suffix}"'), *keys)),
    }
    for name, wanted, columns in (
        ("each", records, ("id", "shop", "cents")),
        ("total", shop_oracle.total(in_time), ("window_start", "sales", "cents")),
    ):
        table = platform.sql(f'SELECT * FROM results."{name}{suffix}"')
        found |= _appended(name, _rows(wanted, *columns), _rows(table, *columns))
    doubled = sum((there - once).total() for once, there in (found.pop("each, all"), found.pop("total, all")))
    return found | {"written again": (Counter({"rows": doubled}), Counter({"rows": written_again(platform)}))}


def check(platform: Platform, records: pd.DataFrame, suffix: str = "") -> None:
    """All of it, and the log: every batch committed and conserved."""
    for name, (wanted, there) in pairs(platform, records, suffix).items():
        assert wanted == there, f"{name}: lost {wanted - there}, more {there - wanted}"
    log = platform.sql("SELECT * FROM onlyonce.conservation")
    assert log["conserved"].all(), log[~log["conserved"].astype(bool)]


def written_again(platform: Platform) -> int:
    """How many rows the log says are there once more."""
    again = platform.sql("SELECT coalesce(sum(written_again), 0) AS n FROM onlyonce.batches WHERE query <> 'now'")
    return int(again["n"][0])


def _appended(name: str, wanted: Counter[Any], there: Counter[Any]) -> Pairs:
    return {
        name: (wanted, wanted & there),
        f"{name}, which": (Counter(set(wanted)), Counter(set(there))),
        f"{name}, all": (wanted, there),
    }


def _rows(frame: pd.DataFrame, *columns: str) -> Counter[Any]:
    # PostgreSQL gives times and numbers of other classes than Delta does.
    rows = frame[list(columns)].itertuples(index=False)
    return Counter(
        tuple(
            pd.Timestamp(v) if n == "window_start" else v if isinstance(v, str) else int(v)
            for n, v in zip(columns, row, strict=True)
        )
        for row in rows
    )
