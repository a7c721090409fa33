"""Rows that come with their records, and rows of whole windows: what a change from one to the other does to a table."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from onlyonce.core.changes import NeedsName
from onlyonce.core.errors import Refused
from onlyonce.operate import plan
from onlyonce.outputs import backfill
from onlyonce.run import reset
from tests.support.changes import declare, output, sale
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

FIRST, SECOND = [sale(n) for n in range(24)], [sale(n) for n in range(24, 30)]
WINDOW = "window=Fixed(MINUTE), watermark_delay=MINUTE"
AS_RECORDS_COME, AT_CLOSE = f"{WINDOW}, sink=Delta()", f"{WINDOW}, panes='at_close', sink=Delta()"


def started(platform: Platform, monkeypatch: pytest.MonkeyPatch, declared: str) -> None:
    """The pipeline has run once; two windows are closed and two are open."""
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(declare(platform.home, declared)))
    platform.put("shop", "a.jsonl", FIRST)
    platform.run("shop")


def ids(platform: Platform) -> Counter[Any]:
    """What a reader of the output sees."""
    return Counter(platform.table("shop/sums")["id"])


def test_windows_that_waited_for_their_close_have_each_row_once_when_rows_come_with_their_records(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the open windows were not written yet; those of the closed ones were."""
    started(platform, monkeypatch, output("in_windows", AT_CLOSE))
    before = ids(platform)
    declare(platform.home, output("in_windows", AS_RECORDS_COME))
    platform.put("shop", "b.jsonl", SECOND)

    with pytest.raises(Refused, match="panes of output sums") as by_hand:
        reset.new("shop/sums", yes=True)
    plan.main(["shop", "--yes", "--master", "local[2]"])

    assert "onlyonce plan shop" in by_hand.value.hint
    assert 0 < sum(before.values()) < len(FIRST)
    assert ids(platform) == Counter(one["id"] for one in FIRST + SECOND)
    assert plan.main(["shop"]).tables["steps"] == []


def test_a_function_that_collects_records_does_not_follow_one_whose_rows_came_with_them(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would call the checkpoint damaged, and after a reset the open windows would have the rows of both."""
    started(platform, monkeypatch, output("in_windows", AS_RECORDS_COME))
    platform.put("shop", "b.jsonl", SECOND)
    declare(platform.home, output("sums", AS_RECORDS_COME))

    with pytest.raises(NeedsName, match="its function collects records now"):
        platform.run("shop")
    with pytest.raises(NeedsName, match="its function collects records now"):
        backfill.main(
            [
                "shop",
                "--output",
                "sums",
                "--from",
                "2026-01-01T00:00:00Z",
                "--to",
                "2026-01-01T00:02:00Z",
                "--master",
                "local[2]",
            ]
        )
    reset.new("shop/sums", yes=True)
    with pytest.raises(NeedsName, match="its function collects records now"):
        platform.run("shop")

    assert ids(platform) == Counter(one["id"] for one in FIRST)
    declare(platform.home, output("in_windows", AS_RECORDS_COME))
    platform.run("shop")
    assert ids(platform) == Counter(one["id"] for one in FIRST + SECOND)


def test_a_late_record_of_a_window_that_has_grown_replaces_all_windows_that_it_had(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan's own backfill of it waits until the window is closed."""
    late = "watermark_delay=MINUTE, late='backfill', sink=Delta()"
    started(platform, monkeypatch, output("in_windows", f"window=Fixed(MINUTE), panes='at_close', {late}"))
    declare(platform.home, output("in_windows", f"window=Fixed(10 * MINUTE), panes='at_close', {late}"))
    plan.main(["shop", "--yes", "--master", "local[2]"])
    platform.put("shop", "b.jsonl", SECOND[:1])

    platform.run("shop", "--close")

    assert ids(platform) == Counter(one["id"] for one in FIRST + SECOND[:1])
