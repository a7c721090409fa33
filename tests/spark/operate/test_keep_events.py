"""Old days of `events` go under real streams: results stay, what goes on has each row once, and what needs them is
refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pandas as pd
import pytest

from onlyonce.core.errors import Refused
from onlyonce.operate import audit, compact
from onlyonce.run import reset
from onlyonce.tables import attempt_files
from tests.support import shop_oracle
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

SHOPS = ["window_start", "shop", "sales", "cents"]


def day(number: int) -> list[dict[str, Any]]:
    """The records of a day, some minutes apart; one is late by three hours."""
    made = []
    for n in range(12):
        at = shop_oracle.START + timedelta(days=number, minutes=7 * n) - timedelta(hours=3 if n == 11 else 0)
        made.append({
            "id": f"d{number}-{n}", "shop": f"shop-{n % 3}", "at": at.isoformat().replace("+00:00", "Z"), "cents": 100 * number + n,
            "weight": 1.0,
        })  # fmt: skip
    return made


def in_time(records: pd.DataFrame) -> pd.DataFrame:
    """What the stream must have written of the sales by shop."""
    return shop_oracle.per_shop(records[~records["late"]])


def test_results_stay_when_old_days_go_and_what_needs_them_is_refused_or_begins_with_what_is_kept(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """A re-delivery of a day that is gone is a duplicate still; a new output is refused, and has the kept days once a
    person says so."""
    platform = new_platform("tests/support/keeps_two_days.py")
    files = [day(number) for number in range(7)]
    for number in range(5):
        platform.put("shop", f"{number}.jsonl", files[number])
    platform.run("shop")
    platform.put("shop", "5.jsonl", files[5])
    platform.run("shop")
    # As if the ids of these batches were collected, some days later.
    platform.sql("UPDATE onlyonce_private.batches SET bucket = bucket - 500 WHERE incarnation LIKE '%/receive/%'")
    platform.sql(
        "UPDATE onlyonce_private.pipelines SET gc_floor = (SELECT max(bucket) + 1 FROM onlyonce_private.batches)"
    )

    [done] = compact.main(["shop"]).tables["old records"]

    # The window that is open began in the last commit, and a new incarnation would begin before that one: nothing later was
    # asked.
    first = shop_oracle.START + timedelta(days=1)
    records = shop_oracle.distinct(files[:6])
    at = pd.to_datetime(records["at"])
    assert (done["records from"], done["kept"]) == (first, (at < first).sum())
    assert attempt_files.sweep_attempts("shop", 0, []) > 0
    assert multiset(records[at >= first], "id") == multiset(platform.events().dropna(subset=["id"]), "id")
    closed = records[records["id"] != "d5-10"]
    assert multiset(in_time(closed), *SHOPS) == multiset(platform.table("shop/per_shop"), *SHOPS)
    assert audit.main(["--data"]).warnings == []
    until = ["--to", (first + timedelta(days=1)).isoformat(), "--output", "per_shop"]
    with pytest.raises(Refused, match="2026-01-02T00:00:00Z"):
        platform.backfill("shop", "--from", shop_oracle.START.isoformat(), *until)
    platform.backfill("shop", "--from", first.isoformat(), *until)

    monkeypatch.setenv("SHOP_LATER", "yes")
    platform.put("shop", "6.jsonl", [*files[0], *files[6]])
    with pytest.raises(Refused, match="shop/per_shop_later would read") as refused:
        platform.run("shop")
    assert "--from-kept" in str(refused.value)
    for name in ("per_shop_later", "each_later"):
        reset.new(f"shop/{name}", yes=True, from_kept=True)
    platform.run("shop", "--close")

    records = shop_oracle.distinct([*files[:6], [*files[0], *files[6]]])
    kept = records[pd.to_datetime(records["at"]) >= first]
    folded = shop_oracle.per_shop(
        records[(records["window_start"] >= first) & (records["window_start"] < first + timedelta(days=1))]
    )
    there = platform.table("shop/per_shop")
    again = there["window_start"].between(first, first + timedelta(days=1), inclusive="left")
    assert multiset(folded, *SHOPS) == multiset(there[again], *SHOPS)
    assert multiset(records, "id") == multiset(platform.sql("SELECT id FROM results.each"))
    assert multiset(kept, "id") == multiset(platform.sql("SELECT id FROM results.each_later"))
    assert multiset(in_time(kept), *SHOPS) == multiset(platform.table("shop/per_shop_later"), *SHOPS)
    assert audit.main(["--data"]).warnings == []
