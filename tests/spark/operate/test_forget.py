"""Records are forgotten under real streams: the results are those of the input without them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit
from onlyonce.operate.erase import forget
from tests.support import shop_oracle
from tests.support.platform import Platform, multiset
from tests.support.two_sources import Model, Sale

pytestmark = pytest.mark.spark

SHOPS = ["window_start", "shop", "sales", "cents"]
WHO = "shop-3"


def test_results_are_those_of_the_input_without_the_records_that_were_forgotten(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Of the windows that they were in, and all others as they were; killed before the windows are computed, and once more after it."""
    platform = new_platform("tests/support/before_compaction.py")
    files = shop_oracle.sales(120, 6)
    last: dict[str, Any] = {"id": "last", "shop": "shop-1", "at": "2026-01-02T00:00:00Z", "cents": 1, "weight": 1.0}
    for number, records in enumerate(files):
        platform.put("shop", f"{number}.jsonl", records)
    platform.run("shop", "--close")
    platform.put("shop", "last.jsonl", [last])
    platform.run("shop", "--close")
    platform.end_sessions()

    with monkeypatch.context() as armed:
        armed.setattr(forget, "passing", _killed("forget-after-beside"))
        with pytest.raises(FailPoint):
            _forget()
    report = _forget()

    every = shop_oracle.distinct([*files, [last]])
    touched = every["window_start"].isin(every[(every["shop"] == WHO)]["window_start"])
    left = every[(every["shop"] != WHO) & (touched | ~every["late"])]
    assert multiset(shop_oracle.per_shop(left), *SHOPS) == multiset(platform.table("shop/per_shop"), *SHOPS)
    assert report.facts["kept"] == (every["shop"] == WHO).sum() > 5
    assert multiset(every[every["shop"] != WHO], "id") == multiset(platform.events().dropna(subset=["id"]), "id")
    assert any("results.each" in row["what"] for row in report.tables["stays, and is not in our reach"])
    assert all(WHO not in file.read_text() for file in settings.inbox("shop").iterdir())
    assert audit.main(["--data"]).warnings == []
    again = [record for records in files for record in records]
    platform.put("shop", "again.jsonl", again)
    platform.run("shop", "--close")
    assert multiset(shop_oracle.per_shop(left), *SHOPS) == multiset(platform.table("shop/per_shop"), *SHOPS)


def _forget(who: str = WHO) -> Any:
    return forget.main(["shop", "--where", f"shop = '{who}'", "--yes", "--master", "local[2]"])


def _shops(platform: Platform) -> list[str]:
    return sorted(platform.sql("SELECT shop FROM results.broken")["shop"])


def _rows_in_files(platform: Platform) -> list[int]:
    """The rows of the newest pane of each window of the FileSink."""
    newest = "SELECT DISTINCT ON (window_start) rows FROM onlyonce_private.panes WHERE output = 'filed' ORDER BY window_start, generation DESC"
    return list(platform.sql(newest)["rows"])


def _killed(point: str) -> Callable[[str], None]:
    def passing(name: str) -> None:
        if name == point:
            raise FailPoint(name)

    return passing


def test_an_output_that_fails_holds_up_no_other_and_is_named(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: object
) -> None:
    """A window of a FileSink that loses its last record is emptied. The receipt has the command that computes the other output again, and after
    the next run another person can be forgotten."""
    fails = tmp_path / "fails"
    monkeypatch.setenv("ERASED_FAILS", str(fails))
    platform = new_platform("tests/support/erased_outputs.py")
    for number, who in enumerate(("one", "two", "last")):
        platform.put("shop", f"{number}.jsonl", [{"id": who, "shop": who, "at": f"2026-01-0{number + 1}T00:00:00Z", "cents": 1, "weight": 1.0}])
    platform.run("shop", "--close")
    platform.end_sessions()

    fails.touch()
    report = _forget("one")
    fails.unlink()
    platform.end_sessions()
    platform.run("shop", "--close")  # the state had the value, so the outputs have a new incarnation, which has closed no window before its first run
    platform.end_sessions()
    other = _forget("two")

    left = [row["what"] for row in report.tables["stays, and is not in our reach"] if row["what"].startswith("output broken")]
    assert (report.facts[forget.FAILED], other.facts[forget.FAILED]) == (1, 0)
    assert left == [one for one in platform.sql("SELECT unnest(left_alone) AS one FROM onlyonce_private.erasures WHERE removal_no = 1")["one"] if one.startswith("output broken")]
    assert _shops(platform) == ["last", "one"]
    assert _rows_in_files(platform) == [0, 0, 1]

    platform.backfill(*left[0].partition("onlyonce backfill ")[2].split())

    assert _shops(platform) == ["last"]
    assert audit.main(["--data"]).warnings == []


def test_a_record_of_one_of_several_sources_goes(new_platform: Callable[..., Platform], spark: object) -> None:
    """By a renamed column and a constant of its source. A record of the same id from the other source stays."""
    platform = new_platform("tests/support/two_sources.py")
    sales = {"web": [Sale("web", "one", 0, 1), Sale("web", "two", 5, 2)], "till": [Sale("till", "one", 7, 4), Sale("till", "two", 8, 8)]}
    for source, some in sales.items():
        platform.put(f"shop/{source}", "0.txt", [sale.line for sale in some])
    platform.run("shop", "--close")
    for source in sales:
        platform.put(f"shop/{source}", "1.txt", [Sale(source, "last", 7200, 1).line])
    platform.run("shop", "--close")
    platform.end_sessions()

    report = forget.main(["shop", "--where", "id = 'one' AND place = 'till'", "--yes", "--master", "local[2]"])

    left = [sale for some in sales.values() for sale in some if (sale.source, sale.id) != ("till", "one")]
    last = [Sale(source, "last", 7200, 1) for source in sales]
    assert (report.facts["kept"], report.facts["lines"], report.facts[forget.WITHOUT]) == (1, 1, 0)
    lines = (platform.home / "inbox" / "shop" / "till" / "0.txt").read_text().splitlines()
    assert [bool(line.strip()) for line in lines] == [False, True]
    assert multiset(platform.table("shop/per_minute"), "window_start", "place", "cents", "sales") == Model([*sales]).windows([*left, *last])
