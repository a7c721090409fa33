"""Holds a platform's tables and log against the oracle: multisets of ids and full results, never counts alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from tests.support import shop_oracle
from tests.support.platform import Platform, multiset


def check(platform: Platform, files: list[list[dict[str, Any]]], *, suffix: str = "", late: bool = True) -> None:
    """All of it: each record one fate, each output the batch computation, the log conserved."""
    records = shop_oracle.distinct(files)
    in_time = records[~records["late"]] if late else records
    check_events(platform, files, records, "shop" + suffix)
    check_outputs(platform, in_time, suffix)
    check_log(platform, files, records if late else None, "shop" + suffix)


def pairs(platform: Platform, files: list[list[dict[str, Any]]]) -> list[tuple[Counter[Any], Counter[Any]]]:
    """(wanted, found) of the records that are kept and of each output's rows, for the ledger of faults."""
    records = shop_oracle.distinct(files)
    in_time = records[~records["late"]]
    events, per_shop = platform.events(), platform.table("shop/per_shop")
    keys, sums = ["window_start", "shop"], ["sales", "cents"]
    found: list[tuple[Counter[Any], Counter[Any]]] = [
        (Counter(records["id"]), Counter(events[events["oo_kind"] == "kept"]["id"])),
        (multiset(shop_oracle.per_shop(in_time), *keys, *sums), multiset(per_shop, *keys, *sums)),
    ]
    for name, key, wanted in (
        ("total", "window_start", shop_oracle.total(in_time)), ("balance", "shop", shop_oracle.balance(in_time)),
    ):  # fmt: skip
        rows = platform.sql(f"SELECT {key}, sales, cents FROM results.{name}")
        found.append((_numbers(wanted, key), _numbers(rows, key)))
    return found


def check_events(platform: Platform, files: list[list[dict[str, Any]]], records: pd.DataFrame, instance: str) -> None:
    """Each distinct record is kept once."""
    events = platform.events(instance)
    kept = events[events["oo_kind"] == "kept"]

    assert Counter(records["id"]) == Counter(kept["id"])
    assert multiset(records, "id", "shop", "cents") == multiset(kept, "id", "shop", "cents")


def check_outputs(platform: Platform, records: pd.DataFrame, suffix: str = "") -> None:
    """Each output is the batch computation over `records`."""
    per_shop = platform.table(f"shop/per_shop{suffix}")
    wanted = shop_oracle.per_shop(records)
    keys = ["window_start", "shop"]

    assert multiset(wanted, *keys, "sales", "cents") == multiset(per_shop, *keys, "sales", "cents")
    both = wanted.set_index(keys)["weight"].sort_index(), per_shop.set_index(keys)["weight"].sort_index()
    pd.testing.assert_series_equal(*both, check_index_type=False, rtol=1e-9)
    total = platform.sql(f'SELECT window_start, sales, cents FROM results."total{suffix}"')
    assert _numbers(shop_oracle.total(records), "window_start") == _numbers(total, "window_start")
    balance = platform.sql(f'SELECT shop, sales, cents FROM results."balance{suffix}"')
    assert _numbers(shop_oracle.balance(records), "shop") == _numbers(balance, "shop")


def check_log(
    platform: Platform, files: list[list[dict[str, Any]]], records: pd.DataFrame | None, instance: str
) -> None:
    """The log says the same: conserved, no batch left open, late as many as the oracle has."""
    conservation = platform.sql(f"SELECT * FROM onlyonce.conservation WHERE instance = '{instance}'")
    received = conservation[conservation["query"] == "receive"]

    assert conservation["conserved"].all(), conservation[~conservation["conserved"].astype(bool)]
    assert received["records_in"].sum() == sum(map(len, files))
    if records is not None:
        late = platform.sql(
            f"SELECT output, window_start, sum(late) AS late FROM onlyonce.late WHERE instance = '{instance}' "
            "GROUP BY 1, 2"
        )
        wanted = records[records["late"]].groupby("window_start").size().reset_index(name="late")
        for output in ("per_shop", "balance"):
            assert _numbers(wanted, "window_start") == _numbers(
                late[late["output"] == output].drop(columns="output"), "window_start"
            )


def _numbers(frame: pd.DataFrame, key: str) -> Counter[Any]:
    numbers = [c for c in ("sales", "cents", "late") if c in frame.columns]
    rows = [
        [pd.Timestamp(k) if key == "window_start" else k, *map(int, v)]
        for k, *v in frame[[key, *numbers]].itertuples(index=False)
    ]
    return Counter(map(tuple, rows))
