"""SIGKILL in at-least-once mode on Spark, with its own oracle: nothing lost, and twice only what the log says is.

One run after the other is killed in one platform, each at the next step; the last goes to its end.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.fault import ledger
from tests.fault.test_kills import put_all
from tests.support import shop_oracle
from tests.support.check_loose_shop import check, pairs, written_again
from tests.support.platform import Platform

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow]

CHAIN = [
    "receive-after-begin", "receive-after-delta", "receive-after-control", "delta-after-write", "output-before-end",
    "postgres-plain-before-commit", "postgres-after-units", "output-after-end",
]  # fmt: skip
"""The kills after the units of `total` and before the end of its batch leave its rows written, for the replay to write
again."""


def test_kills_lose_nothing_and_what_is_there_twice_is_counted(
    new_platform: Callable[..., Platform], spark: object
) -> None:
    """A kill at each step, then the same command again: each delivery once in `events` and in Delta tables; in an
    append to PostgreSQL at least once, and as often as the log says."""
    platform = new_platform("tests/support/loose_shop.py")
    files = shop_oracle.sales(240, 2)
    put_all(platform, files)

    for point in CHAIN:
        code, output = platform.run_killed(point, "shop", "--close")
        assert platform.struck(point) >= 1, f"{point} was never passed:\n{output[-3000:]}"
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
    platform.run("shop", "--close")

    records = shop_oracle.every(files)
    ledger.compared("spark: at least once", "chain", len(CHAIN), pairs(platform, records).values())
    check(platform, records)
    assert written_again(platform) > 0
