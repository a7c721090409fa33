"""Early panes into sinks that add: each row has the number of its pane, and each pane all rows of its window so far."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from onlyonce.operate import audit
from tests.spark.sinks.test_file_panes import EARLY, LATE, PARTS, WANTED
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

Panes = dict[tuple[str, int], Counter[Any]]
TRIGGERED: dict[str, Panes] = {
    "early": EARLY, "after_records": WANTED["after_records"], "after_time": WANTED["after_time"], "sent": EARLY,
}  # fmt: skip
ENDS = {1: ("output-before-end", 2), 2: ("output-consumed", 3)}
"""Where the driver is lost while it takes a file, and with which pass."""


def rows(platform: Platform, output: str) -> pd.DataFrame:
    """Return all rows of an output."""
    if output == "early":
        return platform.table("shop/early")
    if output == "sent":
        return pd.DataFrame(
            json.loads(payload) for payload in platform.sql("SELECT payload FROM onlyonce.outbox")["payload"]
        )
    return platform.sql(f"SELECT * FROM results.{output}")


def panes(platform: Platform, output: str) -> Panes:
    """Return the rows of each pane by (window, pane)."""
    found: Panes = {}
    for row in rows(platform, output).itertuples():
        window = f"{pd.Timestamp(row.window_start):%H:%M}"
        found.setdefault((window, row.pane), Counter())[row.shop, row.sales] += 1
    return found


def test_each_pane_is_appended_with_its_number(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over lost drivers: early panes, the pane at the close, and a backfill, which leaves one pane of its windows."""
    platform = new_platform("tests/support/appended_panes.py")
    for number, part in enumerate(PARTS):
        platform.put("shop", f"{number}.jsonl", part)
        assert number not in ENDS or ended_at(platform, monkeypatch, *ENDS[number])
        platform.run("shop")
    assert {output: panes(platform, output) for output in TRIGGERED} == TRIGGERED
    assert audit.main(["--data"]).warnings == []

    platform.backfill("shop", "--from", "2026-01-05T00:00Z", "--to", "2026-01-05T00:05Z")
    for output, written in TRIGGERED.items():
        last = max(pane for window, pane in written if window == "00:00")
        kept = {key: pane for key, pane in written.items() if output == "sent" or key[0] != "00:00"}
        assert panes(platform, output) == {**kept, ("00:00", last + 1): LATE}, output
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert audit.main(["--data"]).warnings == []
