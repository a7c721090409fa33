"""What Spark tells of the state of an output: the last batch counts, and of a join the rows are added up as long as no
batch is missing."""

from __future__ import annotations

from typing import Any

import pytest

from onlyonce.commitlog.batches import State, States
from tests.contract.conftest import Log

SEEN = (
    "SELECT kind, batch, rows, rows_in, rows_out, timers_set, timers_ended, disk_bytes, memory_bytes FROM "
    "onlyonce.state ORDER BY kind"
)


def told(
    log: Log, batch: int, rows_in: int, rows_out: int, kind: str = "symmetricHashJoin", timers: int | None = None
) -> list[tuple[Any, ...]]:
    """What the view has after a batch has told so."""
    state = State(0, kind, rows_in, rows_out, timers, timers, 2048, 4096)
    States(log.database).note("shop/both/1", batch, [state])
    return log.rows(SEEN)


@pytest.fixture
def shop(log: Log) -> Log:
    """With an output."""
    log.start("shop", "both")
    return log


def test_rows_of_a_join_are_those_that_came_less_those_that_went(shop: Log) -> None:
    """A batch that is told again, or after a later one, changes nothing."""
    told(shop, 0, 7, 0)
    told(shop, 1, 3, 2)
    assert told(shop, 2, 1, 4) == [("join", 2, 5, 1, 4, None, None, 2048, 4096)]
    assert told(shop, 2, 1, 4) == told(shop, 1, 9, 0) == [("join", 2, 5, 1, 4, None, None, 2048, 4096)]


def test_rows_are_not_known_where_a_batch_is_missing_and_never_of_what_spark_does_not_count(shop: Log) -> None:
    """Better no number than a wrong one; of an incarnation that was not seen from its first batch too."""
    told(shop, 0, 7, 0)
    assert told(shop, 2, 1, 0) == [("join", 2, None, 1, 0, None, None, 2048, 4096)]
    assert told(shop, 3, 1, 0) == [("join", 3, None, 1, 0, None, None, 2048, 4096)]
    shop.rows("DELETE FROM onlyonce_private.states")
    assert told(shop, 5, 1, 0) == [("join", 5, None, 1, 0, None, None, 2048, 4096)]
    shop.rows("DELETE FROM onlyonce_private.states")
    assert told(shop, 0, 3, 1, "transformWithStateInPandasExec", 8) == [("processor", 0, None, 3, 1, 8, 8, 2048, 4096)]
