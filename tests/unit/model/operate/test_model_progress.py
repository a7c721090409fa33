"""A batch whose driver is at work stands still by what its incarnation's batches usually take."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from onlyonce.core.diagnosis import HOUR, QUARTER, without_progress
from onlyonce.core.stuck import BegunBatch, LiveQuery


def found(quiet: float, usual: float | None, *, at_work: bool = True, of: str = "shop/receive/1") -> bool:
    """Return whether the one begun batch is found."""
    query = LiveQuery("shop", "shop", "receive", of, 1, "running", UUID(int=0), 1, 3, 2, at_work)
    batch = BegunBatch("shop/receive/1", 3, "r", datetime(2026, 3, 1, tzinfo=UTC), "d", 0, 0, None, quiet, usual)
    return [*without_progress([query], [batch])] == [batch]


@pytest.mark.parametrize(
    "usual, bound", [(None, HOUR), (1.0, QUARTER), (QUARTER / 10, QUARTER), (HOUR, 10 * HOUR)], ids=str
)
def test_the_bound_follows_the_last_batches(usual: float | None, bound: float) -> None:
    assert not found(bound - 1, usual)
    assert found(bound, usual)


def test_a_driver_of_this_incarnation_must_be_at_work() -> None:
    assert not found(HOUR, 1.0, at_work=False)
    assert not found(HOUR, 1.0, of="shop/per_shop/1")
