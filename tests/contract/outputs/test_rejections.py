"""The log's side of rejected records: each once, by the batch or backfill that said so last, and gone with its
record."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.commitlog import removals
from onlyonce.commitlog.removals import Rejections
from tests.contract.conftest import Log

DAY = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def row(number: int, hour: int, reason: str = "bad") -> dict[str, Any]:
    """A record that is rejected in the window of an hour."""
    start = DAY + hour * HOUR
    return {
        "window_start": start, "window_end": start + HOUR, "event_time": start, "oo_high": number, "oo_low": -number,
        "received_as": "shop/receive/1", "received_in": 0, "reason": reason, "rows": 1,
    }  # fmt: skip


def told(log: Log) -> Counter[Any]:
    """(hour, half of the id, reason, batch) of each, by the view."""
    return log.multiset(
        "SELECT extract(hour FROM window_start)::int, right(record_id, 1), reason, incarnation || '/' || batch FROM "
        "onlyonce.rejected WHERE instance = 'shop'"
    )


@pytest.fixture
def noted(log: Log) -> Log:
    """Three records of two hours, two of them rejected in both."""
    whose = {"incarnation": log.start("shop", "per_shop").incarnation, "batch_id": 0}
    rows = pa.Table.from_pylist([row(1, 0), row(2, 0), row(2, 1), row(3, 1)], removals.REJECTED)
    for _ in range(2):  # the answer to the first COMMIT was lost
        Rejections(log.database).note("shop", "per_shop", whose, rows)
    return log


def test_a_batch_that_is_ended_again_notes_its_rejections_once(noted: Log) -> None:
    """The second attempt puts its rows in the place of the first one's."""
    by = "shop/per_shop/1/0"
    assert told(noted) == Counter([(0, "f", "bad", by), (0, "e", "bad", by), (1, "e", "bad", by), (1, "d", "bad", by)])


def test_a_backfill_puts_its_rejections_in_the_place_of_those_of_its_windows(noted: Log) -> None:
    """Those of other windows stay."""
    driver = noted.start("shop", "per_shop@0")
    whose = {"incarnation": driver.incarnation, "batch_id": 4}
    rows = pa.Table.from_pylist([row(1, 0, "worse")], removals.REJECTED)
    Rejections(noted.database).replace("shop", "per_shop", (DAY, DAY + HOUR), whose, rows)
    by = "shop/per_shop/1/0"
    assert told(noted) == Counter(
        [(0, "f", "worse", f"{driver.incarnation}/4"), (1, "e", "bad", by), (1, "d", "bad", by)]
    )


def test_what_is_rejected_goes_with_its_record(noted: Log) -> None:
    """An erasure names ids, a removal of old records (keep_events) a time."""
    Rejections(noted.database).forget_ids("shop", [(2, -2), (9, -9)])
    assert {(hour, low) for hour, low, *_ in told(noted)} == {(0, "f"), (1, "d")}

    noted.rows(
        "INSERT INTO onlyonce_private.removals (instance, removal_no, keep_events, before, upto) VALUES ('shop', "
        "1, '1 day', '2026-01-01 01:00Z', 0)"
    )
    Rejections(noted.database).forget_before("shop", 1)
    assert {(hour, low) for hour, low, *_ in told(noted)} == {(1, "d")}
