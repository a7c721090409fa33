"""`events` compacted under real streams: whoever reads on, begins again or computes again has each row once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable

from onlyonce import settings
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit, compact
from onlyonce.outputs import query
from onlyonce.tables import attempt_files, rewrite
from tests.spark.run.test_long_run import check, quick, sales, windows
from tests.support import shop_oracle
from tests.support.long_run import meanwhile, until
from tests.support.platform import ROOT, Platform, multiset

pytestmark = pytest.mark.spark

ROW = ["oo_kind", "oo_high", "oo_low", "oo_incarnation", "oo_batch", "oo_event_time", "id", "at", "cents", "weight"]
SHOPS = ["window_start", "shop", "sales", "cents"]


def records_of(events: pd.DataFrame) -> Counter[Any]:
    """All but the control rows, which are folded."""
    return multiset(events[events["oo_kind"] != "control"], *ROW)


def compact_and_forget(data: Path, *names: str) -> dict[str, Any]:
    """Compact these tables, and take away at once all that a version before has and the last one not.

    Gives what was done to the first.
    """
    done = {row["table"]: row for row in compact.main(["shop"]).tables["own tables"]}
    warnings: list[str] = []
    assert attempt_files.sweep_attempts("shop", 0, warnings)
    assert not warnings
    for name in names:
        upto = done[name]["up to version"]
        assert done[name]["new files"]
        DeltaTable(str(data / name), version=upto).create_checkpoint()
        assert rewrite.shorten_log(data / name, upto, 0)
        assert not (data / name / "_delta_log" / f"{0:020}.json").exists()
    return dict(done[names[0]])


def test_an_output_that_goes_on_and_one_that_begins_after_a_compaction_have_each_row_once(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """With the old files gone, and the old entries of the table's log: also a backfill of late rows, and an audit of
    the data."""
    platform = new_platform("tests/support/before_compaction.py")
    files = shop_oracle.sales(240, 8)
    for number, records in enumerate(files[:6]):
        platform.put("shop", f"{number:02}.jsonl", records)
    platform.run("shop")
    data = settings.data_dir("shop")
    before = platform.events()

    done = compact_and_forget(data, "events")

    after = platform.events()
    assert records_of(before) == records_of(after)
    assert (after["oo_kind"] == "control").sum() < (before["oo_kind"] == "control").sum()
    assert done["files after"] < done["files before"] / 2
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(ROOT / "tests/support/after_compaction.py"))
    for number, records in enumerate(files[6:], 6):
        platform.put("shop", f"{number:02}.jsonl", records)
    platform.run("shop", "--close")
    records = shop_oracle.distinct(files)
    in_time = shop_oracle.per_shop(records[~records["late"]])
    each = platform.sql("SELECT id FROM results.each")
    for name in ("per_shop", "per_shop_later"):
        assert multiset(in_time, *SHOPS) == multiset(platform.table(f"shop/{name}"), *SHOPS)
    assert multiset(records, "id") == multiset(each) == multiset(platform.sql("SELECT id FROM results.each_later"))
    compact_and_forget(data, "events", "files")
    platform.put("shop", "again.jsonl", [*files[0], *files[7]])
    platform.run("shop")
    assert multiset(records, "id") == multiset(platform.sql("SELECT id FROM results.each_later"))
    first, last = records["window_start"].min(), records["window_start"].max()
    platform.backfill("shop", "--from", first.isoformat(), "--to", last.isoformat())
    inner = shop_oracle.per_shop(records[records["window_start"] < last])
    there = platform.table("shop/per_shop")
    assert multiset(inner, *SHOPS) == multiset(there[there["window_start"] < last], *SHOPS)
    assert audit.main(["--data"]).warnings == []
    assert DeltaTable(str(data / "events")).transaction_version("shop/receive/1/events") is not None


@pytest.mark.whole
def test_a_first_batch_that_was_planned_before_a_compaction_is_read_again_as_it_was(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Spark has noted where it ends, by old versions; the outputs begin it again over the table as it was then."""
    platform = new_platform("tests/support/before_compaction.py")
    files = shop_oracle.sales(60, 5)
    for number, records in enumerate(files[:3]):
        platform.put("shop", f"{number:02}.jsonl", records)

    def killed(name: str) -> None:
        if name == "output-after-begin":
            raise FailPoint(name)

    with monkeypatch.context() as armed:
        armed.setattr(query, "passing", killed)
        with pytest.raises(FailPoint):
            platform.run("shop")
    [done, _] = compact.main(["shop"]).tables["own tables"]
    assert done["new files"]
    for number, records in enumerate(files[3:], 3):
        platform.put("shop", f"{number:02}.jsonl", records)
    platform.run("shop", "--close")

    records = shop_oracle.distinct(files)
    assert multiset(shop_oracle.per_shop(records[~records["late"]]), *SHOPS) == multiset(
        platform.table("shop/per_shop"), *SHOPS
    )
    assert multiset(records, "id") == multiset(platform.sql("SELECT id FROM results.each"))


@pytest.mark.whole
def test_a_compaction_beside_a_long_run_is_no_news_to_it(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Its queries are up, and read on: what was compacted is not read again, what comes after is."""
    platform = quick(new_platform("tests/support/quiet.py"), monkeypatch)
    made: list[int] = []

    def feed() -> None:
        for block in range(4):
            if block == 3:
                made.extend(row["new files"] for row in compact.main(["shop"]).tables["own tables"])
            platform.put("shop", f"sales-{block}.jsonl", sales(block))
            until(lambda n=3 * (block + 1): windows(platform) == n, "the windows of what came")  # type: ignore[misc]

    with meanwhile(platform, feed):
        platform.run("shop", "--continuous", "--every", "0.2")

    assert made[0]
    check(platform, 4)
