"""A backfill: late rows included, in exactly the windows that were asked for; stream + backfill = batch over all
rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from onlyonce.core.errors import Refused, Retryable
from tests.spark.sinks.test_file_panes import PARTS
from tests.support import shop_oracle
from tests.support.changes import declare, output, sale
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

FIRST, LAST = "2025-12-31T00:00Z", "2026-01-02T00:00Z"
FILES = shop_oracle.sales(240, 3)


def per_shop(platform: Platform) -> Counter[Any]:
    """What a reader of the Delta table sees."""
    return multiset(platform.table("shop/per_shop"), "window_start", "shop", "sales", "cents")


def total(platform: Platform) -> Counter[Any]:
    """What a reader of the Postgres table sees."""
    rows = platform.sql("SELECT window_start, sales::bigint AS sales, cents::bigint AS cents FROM results.total")
    return Counter((pd.Timestamp(at), int(n), int(c)) for at, n, c in rows.itertuples(index=False))


def wanted(records: pd.DataFrame) -> tuple[Counter[Any], Counter[Any]]:
    """The batch computation over some records, for both tables."""
    of_shops = multiset(shop_oracle.per_shop(records), "window_start", "shop", "sales", "cents")
    sums = shop_oracle.total(records).itertuples(index=False)
    return of_shops, Counter((pd.Timestamp(at), int(n), int(c)) for at, n, c in sums)


def seen(platform: Platform) -> tuple[Counter[Any], Counter[Any]]:
    """Both tables."""
    return per_shop(platform), total(platform)


@pytest.fixture
def ended(platform: Platform, spark: object) -> Platform:
    """A platform whose stream has read all and closed all; late rows wait."""
    for number, records in enumerate(FILES):
        platform.put("shop", f"sales-{number:04}.jsonl", records)
        platform.run("shop", *(["--close"] if records is FILES[-1] else []))
    return platform


def test_a_backfill_makes_stream_and_batch_equal_and_only_in_its_windows(
    ended: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an interval: those windows become the batch over all rows, the others stay; then the windows with late records
    alone; then all; then again, unseen."""
    records = shop_oracle.distinct(FILES)
    in_time = records[~records["late"]]
    assert records["late"].any()
    assert seen(ended) == wanted(in_time)

    start, stop = pd.Timestamp("2026-01-01T00:01Z"), pd.Timestamp("2026-01-01T00:03Z")
    inside = records["window_start"].between(start, stop, inclusive="left")
    ended.backfill("shop", "--from", start.isoformat(), "--to", stop.isoformat(), "--output", "per_shop")
    assert seen(ended) == wanted(records[inside | ~records["late"]])

    ended.backfill("shop", "--late-only", "--output", "per_shop")
    assert seen(ended) == wanted(records)
    again = ended.sql("SELECT DISTINCT window_start FROM onlyonce.windows WHERE output = 'per_shop' AND generation > 0")
    assert set(again["window_start"]) == set(records[inside | records["late"]]["window_start"])
    assert len(set(again["window_start"])) < records["window_start"].nunique(), "some have no late record"
    with monkeypatch.context() as patch:
        patch.setattr("onlyonce.engine.session.start", None)  # there is nothing to do, so Spark is not started
        ended.backfill("shop", "--late-only", "--output", "per_shop")

    report = ended.backfill("shop", "--from", FIRST, "--to", LAST, "--output", "total")
    assert seen(ended) == wanted(records)
    assert report.tables["backfills"][0]["late"] == records["late"].sum()
    assert report.tables["backfills"][0]["in_time"] == (~records["late"]).sum()
    late = ended.sql("SELECT * FROM onlyonce.late WHERE output = 'per_shop'")
    assert late["included"].all()
    ended.backfill("shop", "--from", FIRST, "--to", LAST, "--output", "per_shop")
    assert seen(ended) == wanted(records)
    generations = ended.sql(
        "SELECT generation, state FROM onlyonce.windows WHERE output = 'per_shop' AND window_start = '2026-01-01 "
        "00:01Z'"
    )
    assert multiset(generations) == Counter(
        {(0, "replaced"): 1, (1, "replaced"): 1, (2, "replaced"): 1, (3, "closed"): 1}
    )


def test_what_cannot_be_taken_back_is_refused_before_anything_is_written(platform: Platform) -> None:
    """An increment does not say its window: the whole backfill is refused, with the option that decides."""
    with pytest.raises(Refused, match="can't be withdrawn") as refused:
        platform.backfill("shop", "--from", FIRST, "--to", LAST)

    assert "on_backfill='skip'" in refused.value.hint
    assert platform.sql("SELECT * FROM onlyonce.backfills").empty


def test_windows_of_a_skipped_output_stay_as_they_are(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sink keeps their rows, so the log has no newer generation without rows."""
    skipped = "window=Fixed(MINUTE), on_backfill='skip', sink=Delta(write='upsert', keys=('shop',))"
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(declare(platform.home, output("sums", skipped))))
    platform.put("shop", "a.jsonl", [sale(number) for number in range(12)])
    platform.run("shop", "--close")
    windows = "SELECT window_start, generation, state, rows FROM onlyonce.windows"
    before = multiset(platform.sql(windows))

    platform.backfill("shop", "--from", FIRST, "--to", LAST)

    assert multiset(platform.sql(windows)) == before
    assert {(generation, state) for _, generation, state, _ in before} == {(0, "closed")}


@pytest.mark.whole
def test_open_windows_belong_to_the_stream(platform: Platform, spark: object) -> None:
    """A window that the stream may still change is refused, as a matter of time, and nothing is written."""
    platform.put("shop", "sales-0000.jsonl", FILES[0])
    platform.run("shop")
    before = per_shop(platform)

    with pytest.raises(Retryable, match="are still open"):
        platform.backfill("shop", "--from", FIRST, "--to", LAST, "--output", "per_shop")

    assert per_shop(platform) == before
    for number, records in enumerate(FILES[1:], start=1):
        platform.put("shop", f"sales-{number:04}.jsonl", records)
    platform.run("shop", "--close")
    platform.backfill("shop", "--from", FIRST, "--to", LAST, "--output", "per_shop")
    assert per_shop(platform) == wanted(shop_oracle.distinct(FILES))[0]


def test_retry_sends_nothing_again_and_a_cleared_run_does(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver was lost after the backfill of the output whose rows are sent had ended. The first driver of the
    cleared run was lost before it had sent anything."""
    platform = new_platform("tests/support/appended_panes.py")
    platform.put("shop", "0.jsonl", [sale for part in PARTS for sale in part])
    platform.run("shop", "--close")
    span = ("--from", "2026-01-05T00:00Z", "--to", "2026-01-05T00:05Z")
    task = (*span, "--dag-id", "shop_backfill", "--run-id", "manual__1")

    def sent() -> int:
        return len(platform.sql("SELECT unit FROM onlyonce.outbox WHERE unit LIKE 'shop/sent@%' AND state = 'waiting'"))

    assert ended_at(platform, monkeypatch, "backfill-after-end", 4, *task, command="backfill")
    once = sent()
    platform.backfill("shop", *task)
    assert (sent(), once > 0) == (once, True)
    assert ended_at(platform, monkeypatch, "driver-after-begin", 1, *task, command="backfill")
    platform.backfill("shop", *task)
    assert sent() == 2 * once
