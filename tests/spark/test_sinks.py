"""Every kind of window, pane and sink gives the batch computation, and nothing twice on a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from tests.fault.test_replay import forget_last_commit
from tests.support import shop_oracle
from tests.support.platform import Platform, Server, multiset

pytestmark = pytest.mark.spark

GAP = timedelta(seconds=20)


def sliding(records: pd.DataFrame) -> Counter[Any]:
    """Sales by two-minute window that starts every minute, and shop."""
    first = records["window_start"]
    both = pd.concat([records.assign(start=first), records.assign(start=first - timedelta(minutes=1))])
    return _counted(both.groupby(["start", "shop"])["cents"].agg(["sum", "count"]).reset_index())


def sessions(records: pd.DataFrame) -> Counter[Any]:
    """Sales by burst of a shop."""
    rows = []
    for shop, of_shop in records.assign(at=pd.to_datetime(records["at"], utc=True)).groupby("shop"):
        ordered = of_shop.sort_values("at")
        number = (ordered["at"].diff() > GAP).cumsum()
        for _, burst in ordered.groupby(number):
            rows.append((burst["at"].min(), shop, burst["cents"].sum(), len(burst)))
    return _counted(pd.DataFrame(rows, columns=["start", "shop", "sum", "count"]))


def _counted(frame: pd.DataFrame) -> Counter[Any]:
    return Counter(
        (pd.Timestamp(s).to_pydatetime(), shop, int(c), int(n)) for s, shop, c, n in frame.itertuples(index=False)
    )


def found(frame: pd.DataFrame) -> Counter[Any]:
    """The rows of a result in the same form."""
    return _counted(frame[["window_start", "shop", "cents", "sales"]])


def test_every_kind_equals_the_batch_and_a_replay_adds_nothing(
    new_platform: Callable[..., Platform], server: Server, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, totals, early panes, sliding windows, sessions, and a sink in another database with its own authority."""
    other = server.url("writer", server.new_database())
    monkeypatch.setenv("TEST_OTHER_DATABASE", other)
    platform = new_platform("tests/support/kinds.py")
    # In time as a whole: what is late for which kind of window is the model's own test.
    files = [[r for r in records if _near(r)] for records in shop_oracle.sales(200, 2)]
    platform.put("shop", "a.jsonl", files[0] + files[1][:40])
    platform.put("shop", "b.jsonl", files[1][40:])

    platform.run("shop")
    for query in ("plain", "totals", "early", "elsewhere", "sliding", "session"):
        forget_last_commit(query)
    platform.run("shop", "--close")

    records = shop_oracle.distinct([files[0] + files[1]])
    by_window = _counted(records.groupby(["window_start", "shop"])["cents"].agg(["sum", "count"]).reset_index())
    assert multiset(records, "id", "shop", "cents") == multiset(
        platform.sql("SELECT id, shop, cents FROM results.plain")
    )
    totals = platform.table("shop/totals")
    assert multiset(shop_oracle.balance(records), "shop", "cents", "sales") == multiset(
        totals, "shop", "cents", "sales"
    )
    assert by_window == found(platform.table("shop/early"))
    assert by_window == found(platform.sql("SELECT * FROM results.elsewhere", url=other))
    assert sliding(records) == found(platform.table("shop/sliding"))
    assert sessions(records) == found(platform.table("shop/session"))
    assert platform.sql("SELECT * FROM onlyonce.late").empty
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]


def test_units_of_another_authority_are_in_the_log(
    new_platform: Callable[..., Platform], server: Server, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log names the database in which a unit committed, and has the same units as that database."""
    other = server.url("writer", server.new_database())
    monkeypatch.setenv("TEST_OTHER_DATABASE", other)
    platform = new_platform("tests/support/kinds.py")
    platform.put("shop", "a.jsonl", shop_oracle.sales(60, 1)[0])

    platform.run("shop", "--close")

    there = platform.sql("SELECT unique_id, rows, content_hash FROM onlyonce_private.units", url=other)
    logged = platform.sql(
        "SELECT unique_id, rows, content_hash, authority FROM onlyonce.commits WHERE sink = 'elsewhere'"
    )
    assert set(logged["authority"]) == {"TEST_OTHER_DATABASE"}
    assert multiset(there) == multiset(logged.drop(columns="authority"))


def _near(record: dict[str, Any]) -> bool:
    number = int(record["id"][1:])
    behind = shop_oracle.START + timedelta(seconds=number * 2) - datetime.fromisoformat(record["at"])
    return behind < timedelta(seconds=60)


def test_every_kind_of_window_is_the_batch_over_all_rows_once_backfilled(
    new_platform: Callable[..., Platform], server: Server, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late rows split sessions, miss windows, arrive in several batches; a backfill folds all of them in. Where the
    declaration says so each run does by itself; a sink that says 'skip' stays as the stream left it."""
    other = server.url("writer", server.new_database())
    monkeypatch.setenv("TEST_OTHER_DATABASE", other)
    platform = new_platform("tests/support/late_kinds.py")
    files = shop_oracle.sales(240, 3)
    for number, rows in enumerate(files):
        platform.put("shop", f"{number}.jsonl", rows)

    platform.run("shop", "--close")

    records = shop_oracle.distinct(files)
    in_time = records[~records["late"]]
    assert records["late"].any()
    assert by_minute(in_time) == found(platform.table("shop/early"))
    assert by_minute(records) == found(platform.sql("SELECT * FROM results.elsewhere", url=other))
    assert sessions(records) != found(platform.table("shop/session"))
    raw = platform.sql("SELECT id, shop, cents FROM results.raw")
    assert multiset(records, "id", "shop", "cents") == multiset(raw)
    before = multiset(platform.sql("SELECT * FROM results.last"))

    platform.backfill("shop", "--from", "2025-12-31", "--to", "2026-01-02")

    assert by_minute(records) == found(platform.table("shop/early"))
    assert by_minute(records) == found(platform.sql("SELECT * FROM results.elsewhere", url=other))
    assert sliding(records) == found(platform.table("shop/sliding"))
    assert sessions(records) == found(platform.table("shop/session"))
    assert multiset(records, "id", "shop", "cents") == multiset(platform.sql("SELECT id, shop, cents FROM results.raw"))
    assert multiset(platform.sql("SELECT * FROM results.last")) == before
    assert platform.sql("SELECT bool_and(folded) AS all FROM onlyonce.late WHERE output <> 'last'")["all"][0]


def by_minute(records: pd.DataFrame) -> Counter[Any]:
    """Sales by minute and shop."""
    return _counted(records.groupby(["window_start", "shop"])["cents"].agg(["sum", "count"]).reset_index())
