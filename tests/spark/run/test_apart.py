"""An output that can't go on stops no other, in a drain and in a long run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable

from onlyonce import settings
from onlyonce.core.errors import Refused
from tests.spark.run.test_long_run import quick, sales
from tests.support import shop_oracle
from tests.support.long_run import committed, meanwhile, rounds, until
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark
COLUMNS = ("window_start", "shop", "sales", "cents")


@pytest.fixture
def shop(new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object) -> Platform:
    """A platform with three outputs, whose windows close by silence."""
    return quick(new_platform("tests/support/apart.py"), monkeypatch)


def whole(platform: Platform, output: str, records: Any) -> bool:
    """Whether an output's table is what a batch computation makes of the records."""
    if not DeltaTable.is_deltatable(str(settings.tables_dir() / "shop" / output)):
        return False
    return multiset(platform.table(f"shop/{output}"), *COLUMNS) == multiset(shop_oracle.per_shop(records), *COLUMNS)


def test_a_drain_goes_on_with_the_other_outputs_and_ends_with_the_first_ones_error(
    shop: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first and the last fail: what lies between is drained, its late rows are included, and the error names both.

    Mended, the same command brings them all to the same results."""
    early, late = sales(0)[::2], sales(0)[1::2]
    monkeypatch.setenv("TEST_FIRST", "Refused")
    monkeypatch.setenv("TEST_LAST", "Retryable")
    shop.put("shop", "early.jsonl", early)
    with pytest.raises(Refused, match="TEST_FIRST fails"):
        shop.run("shop")
    shop.put("shop", "late.jsonl", late)
    with pytest.raises(Refused, match="TEST_FIRST fails") as failed:
        shop.run("shop")

    assert failed.value.data == "output first stands still; so does last: TEST_LAST fails"
    assert whole(shop, "per_shop", shop_oracle.every([sales(0)]))
    assert (committed(shop, "first"), committed(shop, "last")) == (0, 0)
    monkeypatch.delenv("TEST_FIRST")
    monkeypatch.delenv("TEST_LAST")
    shop.run("shop")
    assert all(multiset(shop.table(f"shop/{name}"), *COLUMNS) for name in ("first", "last"))
    assert shop.sql("SELECT conserved FROM onlyonce.conservation")["conserved"].all()


def test_a_long_run_keeps_the_others_up_and_its_row_names_what_stands_still(
    shop: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One output fails until it is fixed: rounds go by, the others write what comes, the row has its error; then it is
    up again by itself under its first epoch.

    One that is refused stays down, and is what the run ends with."""
    records = shop_oracle.every([sales(0)])
    monkeypatch.setenv("TEST_FIRST", "Retryable")
    monkeypatch.setenv("TEST_LAST", "Refused")

    def down() -> Any:
        return shop.sql("SELECT failed_outputs FROM onlyonce.long_runs")["failed_outputs"].tolist()

    def feed() -> None:
        shop.put("shop", "sales-0.jsonl", sales(0))
        until(lambda: whole(shop, "per_shop", records), "the output that is well")
        until(lambda: down() == [{"first": "TEST_FIRST fails", "last": "TEST_LAST fails"}], "the row")
        then = rounds(shop)
        until(lambda: rounds(shop) > then + 2, "rounds")
        monkeypatch.delenv("TEST_FIRST")
        until(lambda: whole(shop, "first", records), "the output that was mended")
        until(lambda: down() == [{"last": "TEST_LAST fails"}], "the row")

    ended: list[BaseException] = []
    with meanwhile(shop, feed):
        try:
            shop.run("shop", "--continuous", "--every", "0.2")
        except Refused as error:
            ended.append(error)
    assert [str(error).splitlines()[0] for error in ended] == ["TEST_LAST fails"]

    assert shop.sql("SELECT DISTINCT epoch FROM onlyonce.batches")["epoch"].tolist() == [1]
    assert shop.sql("SELECT exit_code, error FROM onlyonce.long_runs").values.tolist() == [[64, "TEST_LAST fails"]]
