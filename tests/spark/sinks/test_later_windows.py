"""An upsert whose keys don't say the window, and rows that a table does not take: decided before a unit says that they
are there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from onlyonce.core.errors import InvariantBroken, Refused
from tests.contract.conftest import Log, shared  # noqa: F401 - a fixture
from tests.spark.sinks.test_sink_schema import SINKS, Table

pytestmark = pytest.mark.spark

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "window_start timestamp, window_end timestamp, id string, cents long"
NUMBERS = count()


def row(day: int, key: str, cents: int | None) -> tuple[Any, ...]:
    """A row of the window of a day."""
    return (START + day * DAY, START + (day + 1) * DAY, key, cents)


def opened(log: Log, spark: Any, sink: str) -> Table:
    """A table of this test's own."""
    return Table(log, spark, f"later_{next(NUMBERS)}", SINKS[sink])


def found(table: Table) -> list[tuple[str, int]]:
    """(id, cents) of each row."""
    return [(one["id"], one["cents"]) for one in table.rows()]


def units(log: Log) -> int:
    """How many units are in the log."""
    [(number,)] = log.rows("SELECT count(*) FROM onlyonce_private.units")
    return int(number)


@pytest.mark.parametrize("sink", ["delta upsert", "postgres upsert"])
def test_the_row_of_the_later_window_stays(shared: Log, spark: Any, sink: str) -> None:  # noqa: F811
    """In one batch, over batches, and when an earlier window comes after it; the same window replaces itself."""
    table = opened(shared, spark, sink)

    table.write(SCHEMA, row(1, "a", 1), row(3, "a", 3), row(2, "a", 2), row(1, "b", 1))
    assert found(table) == [("a", 3), ("b", 1)]
    table.write(SCHEMA, row(2, "a", 20), row(2, "b", 20))
    assert found(table) == [("a", 3), ("b", 20)]
    table.write(SCHEMA, row(3, "a", 30), row(4, "c", 4))
    assert found(table) == [("a", 30), ("b", 20), ("c", 4)]


def test_rows_that_delta_refuses_leave_no_unit(shared: Log, spark: Any) -> None:  # noqa: F811
    """Two of one window and the same keys, a constraint of the table's owner, null among them: as often as it is
    tried."""
    table = opened(shared, spark, "delta upsert")
    table.write(SCHEMA, row(1, "a", 1))
    spark.sql(f"ALTER TABLE delta.`{table.path()}` ADD CONSTRAINT positive CHECK (cents > 0)")
    before = units(shared)

    for _ in range(2):
        with pytest.raises(InvariantBroken, match="two rows of one batch have the keys"):
            table.write(SCHEMA, row(2, "b", 1), row(2, "b", 2))
    assert units(shared) == before
    for cents in (-1, None):
        with pytest.raises(Refused, match=r"constraint positive \(cents > 0\)"):
            table.write(SCHEMA, row(2, "b", cents))
    assert units(shared) == before
    assert found(table) == [("a", 1)]
