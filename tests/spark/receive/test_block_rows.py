"""Blocks come to their task by files or by Spark's exchange: nobody can tell which from what is committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onlyonce.context import RunContext
from tests.spark.receive.test_in_driver import FATES, LOOSE, NEVER, OF_A_RUN, OF_ITS_PLACE, ONE_OUTPUT, UNITS, rows
from tests.spark.receive.test_plans import EXCHANGE, PYTHON, Plans
from tests.support import shop_oracle
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

PARTITIONS = 4
ODD = [
    '{"id":"e1","shop":"a","at":"2026-01-05T12:00:30Z","cents":"1"}', "no record",
    '{"id":"e2","shop":"\\u0062","at":"2026-01-05T12:00:31Z","cents":2}', "",
]  # fmt: skip
"""Lines that are left for Spark's parser: some are valid, some are not."""


def taken_in(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with re-deliveries, odd lines among them, in two runs."""
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES=NEVER)
    files = shop_oracle.sales(300, 3)
    for number, records in enumerate([*files, files[0]]):
        platform.put("shop", f"sales-{number:04}.jsonl", [*ODD, *records])
        if number % 2:
            platform.run("shop")


@pytest.mark.parametrize("declared", [ONE_OUTPUT, pytest.param(LOOSE, marks=pytest.mark.whole)])
def test_events_and_units_are_the_same_whichever_way_blocks_have_come(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: Any, declared: str
) -> None:
    """Each row with its ids, partition and batch; each unit with its hash; the fates.

    By the exchange the lines are read and judged in one job, and no file waits for a task."""
    monkeypatch.setattr(RunContext, "partitions_of", lambda *_: PARTITIONS)
    found, but = [], OF_A_RUN if declared == ONE_OUTPUT else OF_A_RUN + OF_ITS_PLACE
    for by_exchange in (False, True):
        platform, plans = new_platform(declared), Plans(spark)
        if by_exchange:
            monkeypatch.setattr(RunContext, "blocks", None)
        taken_in(platform, monkeypatch)
        log = [multiset(platform.sql(query)) for query in (UNITS, FATES)]
        found.append([rows(platform, but), *log])

    assert [*platform.home.rglob("blocks")] == []
    judged = plans.of("shop/receive/1", "MapInArrow")
    assert {len(plan.has(*EXCHANGE)) for plan in judged} == {1 if declared == ONE_OUTPUT else 0}
    # It reads and judges, and in between reads by the conversion table what the fast path left.
    assert max(len(plan.has(*PYTHON)) for plan in judged) == 3
    assert found[0] == found[1]
    assert found[0][0].total() > 300
