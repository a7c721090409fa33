"""Records are forgotten under real streams: the results are those of the input without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit
from onlyonce.operate.erase import forget
from tests.support import shop_oracle
from tests.support.platform import Platform, multiset

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


def _forget() -> Any:
    return forget.main(["shop", "--where", f"shop = '{WHO}'", "--yes", "--master", "local[2]"])


def _killed(point: str) -> Callable[[str], None]:
    def passing(name: str) -> None:
        if name == point:
            raise FailPoint(name)

    return passing
