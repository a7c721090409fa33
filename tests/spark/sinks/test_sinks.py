"""Every kind of window, pane and sink gives the batch computation, and nothing twice on a replay."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from tests.fault import ledger
from tests.fault.test_replay import forget_last_commit
from tests.support import shop_oracle
from tests.support.platform import Platform, Server, multiset

pytestmark = pytest.mark.spark

GAP, WATERMARK_DELAY = timedelta(seconds=20), timedelta(minutes=1)


def sliding(records: pd.DataFrame, *, in_time: bool = False) -> Counter[Any]:
    """Sales by two-minute window that starts every minute, and shop; of all records, or of the pairs in time."""
    first = records["window_start"]
    both = pd.concat([records.assign(start=first), records.assign(start=first - timedelta(minutes=1))])
    if in_time:
        both = both[~(both["start"] + timedelta(minutes=2) <= _closed(both))]
    return _counted(both.groupby(["start", "shop"])["cents"].agg(["sum", "count"]).reset_index())


def sessions(records: pd.DataFrame, *, in_time: bool = False) -> Counter[Any]:
    """Sales by burst of a shop; of all records, or of those in time."""
    timed = records.assign(at=pd.to_datetime(records["at"], utc=True))
    timed = timed[~(timed["at"] <= _closed(timed))] if in_time else timed
    rows = []
    for shop, of_shop in timed.groupby("shop"):
        ordered = of_shop.sort_values("at")
        number = (ordered["at"].diff() > GAP).cumsum()
        for _, burst in ordered.groupby(number):
            rows.append((burst["at"].min(), shop, burst["cents"].sum(), len(burst)))
    return _counted(pd.DataFrame(rows, columns=["start", "shop", "sum", "count"]))


def _closed(records: pd.DataFrame) -> pd.Series:
    return pd.to_datetime(records["max_event_time"], utc=True) - WATERMARK_DELAY


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
    check_units_elsewhere(platform, other)


def check_units_elsewhere(platform: Platform, other: str) -> None:
    """The log names the database in which a unit committed, and has the same units as that database."""
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


@pytest.fixture
def late_kinds(
    new_platform: Callable[..., Platform], server: Server, spark: object, monkeypatch: pytest.MonkeyPatch
) -> Platform:
    """A platform with every kind of window, and a sink in another database."""
    monkeypatch.setenv("TEST_OTHER_DATABASE", server.url("writer", server.new_database()))
    return new_platform("tests/support/late_kinds.py")


@pytest.mark.whole
def test_every_kind_of_window_is_the_batch_over_all_rows_once_backfilled(late_kinds: Platform) -> None:
    """Late rows split sessions, miss windows, arrive in several batches; a backfill folds all of them in. Where the
    declaration says so each run does by itself; a sink that says 'skip' stays as the stream left it."""
    files = shop_oracle.sales(240, 3)
    for number, rows in enumerate(files):
        late_kinds.put("shop", f"{number}.jsonl", rows)

    late_kinds.run("shop", "--close")
    check_stream(late_kinds, shop_oracle.distinct(files))
    before = multiset(late_kinds.sql("SELECT * FROM results.last"))
    late_kinds.backfill("shop", *EVER)

    check_backfilled(late_kinds, shop_oracle.distinct(files))
    assert multiset(late_kinds.sql("SELECT * FROM results.last")) == before


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("case", range(int(os.environ.get("ONLYONCE_CASES", "5"))))
def test_stream_and_backfill_are_the_batch_whatever_comes_and_is_killed(late_kinds: Platform, case: int) -> None:
    """Random disorder, watermark delay, batch boundaries, re-deliveries, and a kill in the stream and in the backfill."""
    chance = random.Random(ledger.chosen_seed() + case)
    print(f"seed {ledger.chosen_seed()}, case {case}")
    files = shop_oracle.sales(
        chance.randrange(60, 400), chance.randrange(1, 6), seed=chance.randrange(10**6), duplicates=chance.random() / 2
    )
    for number, rows in enumerate(files):
        late_kinds.put("shop", f"{number}.jsonl", rows)
    stream, backfill = chance.choice(STREAM_POINTS), chance.choice(BACKFILL_POINTS)

    late_kinds.run_killed(stream, "shop", "--close", nth=chance.randrange(1, 4))
    late_kinds.run("shop", "--close")
    check_stream(late_kinds, shop_oracle.distinct(files))
    late_kinds.run_killed(backfill, "shop", *EVER, job="backfill", nth=chance.randrange(1, 3))
    late_kinds.backfill("shop", *EVER)

    harm = ledger.compared(
        "stream and backfill", f"{stream}, {backfill}", case, backfilled(late_kinds, shop_oracle.distinct(files))
    )
    assert harm == (0, 0)


EVER = ("--from", "2025-12-31", "--to", "2026-01-02")
STREAM_POINTS = [
    "receive-after-delta",
    "output-consumed",
    "delta-after-write",
    "postgres-unit-after-commit",
    "output-after-end",
]
BACKFILL_POINTS = ["backfill-after-begin", "delta-after-replace", "postgres-unit-after-delete", "backfill-before-end"]


def check_stream(platform: Platform, records: pd.DataFrame) -> None:
    """Before any backfill: the batch over the rows in time; over all rows where late ones are recomputed."""
    in_time = records[~records["late"]]
    assert by_minute(in_time) == found(platform.table("shop/early"))
    assert by_minute(records) == found(elsewhere(platform))
    assert sliding(records, in_time=True) == found(platform.table("shop/sliding"))
    assert sessions(records, in_time=True) == found(platform.table("shop/session"))
    assert multiset(records, "id", "shop", "cents") == multiset(platform.sql("SELECT id, shop, cents FROM results.raw"))
    assert by_shop(in_time) == corrected(platform)


def check_backfilled(platform: Platform, records: pd.DataFrame) -> None:
    """After it: the batch over all rows, and no late row that waits."""
    for wanted, there in backfilled(platform, records):
        assert wanted == there
    assert platform.sql("SELECT bool_and(included) IS NOT FALSE AS ok FROM onlyonce.late WHERE output <> 'last'")["ok"][
        0
    ]


def backfilled(platform: Platform, records: pd.DataFrame) -> list[tuple[Counter[Any], Counter[Any]]]:
    """(wanted, found) of each output that a backfill replaces."""
    return [
        (by_minute(records), found(platform.table("shop/early"))),
        (by_minute(records), found(elsewhere(platform))),
        (sliding(records), found(platform.table("shop/sliding"))),
        (sessions(records), found(platform.table("shop/session"))),
        (multiset(records, "id", "shop", "cents"), multiset(platform.sql("SELECT id, shop, cents FROM results.raw"))),
        (by_shop(records), corrected(platform)),
    ]


def by_shop(records: pd.DataFrame) -> Counter[Any]:
    """Sales and cents of each shop over all windows."""
    return multiset(records.groupby("shop")["cents"].agg(["sum", "count"]).reset_index())


def corrected(platform: Platform) -> Counter[Any]:
    """The increments that a backfill corrects."""
    return multiset(platform.sql("SELECT shop, cents, sales FROM results.corrected"))


def elsewhere(platform: Platform) -> pd.DataFrame:
    """The table in the other database."""
    return platform.sql("SELECT * FROM results.elsewhere", url=os.environ["TEST_OTHER_DATABASE"])


def by_minute(records: pd.DataFrame) -> Counter[Any]:
    """Sales by minute and shop."""
    return _counted(records.groupby(["window_start", "shop"])["cents"].agg(["sum", "count"]).reset_index())
