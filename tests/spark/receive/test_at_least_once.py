"""At-least-once mode on Spark: what it keeps, what a bounded run of it is, and the switch there and back."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.fault.test_kills import put_all
from tests.support import shop_oracle
from tests.support.check_loose_shop import check, written_again
from tests.support.platform import ROOT, Platform

pytestmark = pytest.mark.spark

LOOSE = "tests/support/loose_shop.py"
STRICT = str(ROOT / "tests/support/strict_shop.py")


@pytest.fixture
def loose(new_platform: Any) -> Platform:
    """A platform whose pipeline is at least once."""
    made: Platform = new_platform(LOOSE)
    return made


def modes(platform: Platform) -> list[tuple[str, int, str]]:
    """(query, batch, mode) of the batches of receive, by instance."""
    rows = platform.sql("SELECT instance, batch, mode FROM onlyonce.batches WHERE query = 'receive' ORDER BY 1, 2")
    return [tuple(row) for row in rows.itertuples(index=False)]


def test_each_delivery_is_kept_and_a_bounded_run_is_exactly_once(loose: Platform, spark: object) -> None:
    """Re-deliveries are kept again and late rows counted; without a fault no row is written twice. Over the same input
    a bounded run keeps each record once."""
    files = shop_oracle.sales(240, 2)
    files[0].insert(5, "no record")  # type: ignore[arg-type]
    put_all(loose, files)
    files[0].remove("no record")  # type: ignore[arg-type]
    records = shop_oracle.every(files)
    assert records["late"].any()
    assert records["id"].duplicated().any()

    loose.run("shop", "--close")

    check(loose, records)
    assert written_again(loose) == 0
    assert loose.sql("SELECT 1 FROM onlyonce_private.catalog_chunks").empty
    fates = loose.sql(
        "SELECT sum(invalid) AS invalid, sum(late) FILTER (WHERE query = 'per_shop') AS late FROM onlyonce.batches"
    )
    assert (int(fates["invalid"][0]), int(fates["late"][0])) == (1, int(records["late"].sum()))
    progress = loose.sql(
        "SELECT max_event_time_after AS latest FROM onlyonce.batches WHERE query = 'receive' ORDER BY batch"
    )["latest"]
    assert [pd.Timestamp(t) for t in progress] == [
        pd.to_datetime(records[records["batch"] <= n]["at"]).max() for n in range(2)
    ]

    loose.run("shop", "--bounded")

    check(loose, shop_oracle.distinct(files), suffix="@1")
    assert modes(loose) == [
        ("shop", 0, "at_least_once"), ("shop", 1, "at_least_once"), ("shop@1", 0, "exactly_once"), ("shop@1", 1, "exactly_once"),
    ]  # fmt: skip


@pytest.mark.whole
def test_a_pipeline_may_switch_to_exactly_once_and_back(loose: Platform, spark: object) -> None:
    """What was kept at least once is a duplicate afterwards, by the ids that are made from `events`; then back, where
    re-deliveries are kept again. Open windows go on over both switches."""
    files = shop_oracle.sales(360, 3, duplicates=0.3)
    for number, (records, arguments) in enumerate(zip(files, ([], ["--pipelines", STRICT], ["--close"]), strict=True)):
        loose.put("shop", f"sales-{number:04}.jsonl", records)
        loose.run("shop", *arguments)

    every = shop_oracle.every(files)
    before, strict, after = (every[every["batch"] == number] for number in range(3))
    again = strict[strict["id"].isin(before["id"])]
    assert len(again) > 5
    once = strict[~strict["id"].isin(before["id"])].drop_duplicates("id")
    check(loose, pd.concat([before, once, after], ignore_index=True))
    assert modes(loose) == [
        ("shop", 0, "at_least_once"), ("shop", 1, "exactly_once"), ("shop", 2, "at_least_once"),
    ]  # fmt: skip
    duplicate = loose.sql("SELECT duplicate FROM onlyonce.batches WHERE query = 'receive' ORDER BY batch")["duplicate"]
    assert list(duplicate) == [0, len(strict) - len(once), 0]
