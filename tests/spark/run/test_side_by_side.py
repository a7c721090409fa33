"""The outputs of a run have their turns side by side, and what each writes is what it would write alone."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.support import shop_oracle
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark
COLUMNS = ("window_start", "shop", "sales", "cents")


@pytest.fixture
def shop(new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object) -> Platform:
    """A platform whose first two outputs end only if both have begun."""
    made = new_platform("tests/support/side_by_side.py")
    made.give(monkeypatch, ONLYONCE_OUTPUTS_AT_ONCE="2")
    return made


def test_outputs_that_are_drained_side_by_side_give_the_batch_whatever_was_killed(shop: Platform) -> None:
    """A driver is killed while two outputs write by MERGE; a run, and a bounded one where both have one session, end as
    if nothing had been."""
    files = shop_oracle.sales(210, 3)
    for number, records in enumerate(files):
        shop.put("shop", f"{number}.jsonl", records)

    assert shop.run_killed("delta-after-write", "shop", "--close")[0] == -signal.SIGKILL
    shop.run("shop", "--close")
    shop.run("shop", "--bounded")

    records = shop_oracle.distinct(files)
    in_time = multiset(shop_oracle.per_shop(records[~records["late"]]), *COLUMNS)
    of_all = multiset(shop_oracle.per_shop(records), *COLUMNS)
    for name in ("one", "other"):
        assert multiset(shop.table(f"shop/{name}"), *COLUMNS) == in_time
        assert multiset(shop.table(f"shop/{name}@1"), *COLUMNS) == of_all
    assert multiset(shop.sql("SELECT * FROM results.third"), *COLUMNS) == in_time
    assert shop.sql("SELECT conserved FROM onlyonce.conservation")["conserved"].all()
