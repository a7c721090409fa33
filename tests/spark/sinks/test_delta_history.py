"""A history (SCD type 2) in Delta: each change is a version of its row, in its place, whatever comes first, comes again
or is killed."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from onlyonce.api.pipeline import Delta
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.sinks.delta.delta_upsert import History
from tests.contract.conftest import Log, shared  # noqa: F401 - a fixture
from tests.spark.sinks.test_delta_deletes import POINTS, Killed, killed
from tests.spark.sinks.test_sink_schema import Table
from tests.support import changes_of_a_table as source
from tests.support.changes_of_a_table import Change

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "id string, position string, value long, gone boolean, valid_from timestamp"
NUMBERS = count()


def opened(log: Log, spark: Any, delete_when: str | None = "gone") -> Table:
    return Table(
        log,
        spark,
        f"history_{next(NUMBERS)}",
        lambda _: Delta(write="history", keys="id", sequence_by="position", delete_when=delete_when),
    )


def row(change: Change) -> tuple[Any, ...]:
    return (
        change.key,
        f"{change.position:06}",
        change.value,
        change.deleted,
        START + timedelta(seconds=change.position),
    )


def versions(table: Table) -> set[Any]:
    """What is in the table, times as seconds since `START`."""
    found = table.rows()
    assert len({(one["id"], one["position"]) for one in found}) == len(found)
    return {
        (
            one["id"],
            int(one["position"]),
            one["value"],
            *(one[end] and int((one[end] - START).total_seconds()) for end in ("valid_from", "valid_to")),
            one["is_current"],
        )
        for one in found
    }


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_each_version_holds_until_the_next_change_of_its_key(shared: Log, spark: Any, seed: int) -> None:  # noqa: F811
    """Out of order, several changes of a key in one batch, each batch killed at one of the points around its two
    commits and replayed."""
    chance = random.Random(seed)
    table = opened(shared, spark)
    changes = source.delivered(chance, source.made(chance, keys=4, changes=24), again=0.0, apart=20)
    size = 9
    for number, first in enumerate(range(0, len(changes), size)):
        part = [row(change) for change in changes[first : first + size]]
        point = (*POINTS, None)[(number + seed) % (len(POINTS) + 1)]
        if point is not None and (
            any(one.deleted for one in changes[first : first + size]) or "delete_when" not in point
        ):
            with killed(point), pytest.raises(Killed):
                table.write(SCHEMA, *part)
        table.write(SCHEMA, *part)
        assert versions(table) == source.history(changes[: first + size])


def test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete(shared: Log, spark: Any) -> None:  # noqa: F811
    """The one before it ends at the late one, and the current one stays current.

    One that comes again is written over itself.
    """
    table = opened(shared, spark)
    table.write(SCHEMA, row(Change(1, "a", "c", 10)), row(Change(9, "a", "u", 30)), row(Change(2, "b", "c", 5)))
    table.write(SCHEMA, row(Change(4, "a", "u", 20)), row(Change(9, "a", "u", 30)))
    table.write(SCHEMA, row(Change(6, "a", "d", 20)))
    assert versions(table) == {
        ("a", 1, 10, 1, 4, False),
        ("a", 4, 20, 4, 6, False),
        ("a", 9, 30, 9, None, True),
        ("b", 2, 5, 2, None, True),
    }


def test_version_that_comes_again_keeps_columns_that_the_batch_lacks(shared: Log, spark: Any) -> None:  # noqa: F811
    """As in an upsert. A new version has nulls there."""
    table = opened(shared, spark)
    first, second = Change(1, "a", "c", 10), Change(2, "a", "u", 20)
    table.write(f"{SCHEMA}, note string", (*row(first), "first"), (*row(Change(1, "b", "c", 5)), "other"))
    table.write(SCHEMA, row(replace(first, value=11)), row(second))
    assert versions(table) == {("a", 1, 11, 1, 2, False), ("a", 2, 20, 2, None, True), ("b", 1, 5, 1, None, True)}
    notes = {(one["id"], int(one["position"])): one["note"] for one in table.rows()}
    assert notes == {("a", 1): "first", ("a", 2): None, ("b", 1): "other"}


@pytest.mark.parametrize("first", source.TIED, ids=lambda change: change.op)
def test_delete_at_a_version_s_position_comes_after_it(shared: Log, spark: Any, first: Change) -> None:  # noqa: F811
    """Whichever of the two comes first."""
    table = opened(shared, spark)
    for batch in source.tied(first):
        table.write(SCHEMA, *map(row, batch))
    assert versions(table) == source.TIED_HISTORY


def test_delete_comes_after_its_version_in_whatever_order_tasks_bring_them(spark: Any) -> None:
    """Spark's sort keeps no order of equal positions."""
    sink = Delta(write="history", keys="id", sequence_by="position", delete_when="gone")
    changes = spark.createDataFrame(
        [("a", "3", START, gone, not gone, None, None) for gone in (True, False)],
        "id string, position string, valid_from timestamp, oo_gone boolean, oo_new boolean, valid_to timestamp, is_current boolean",
    )
    [version] = History(changes, Path("lake"), sink)._moved(changes.coalesce(1)).collect()
    assert (version.valid_to.replace(tzinfo=UTC), version.is_current) == (START, False)


def test_what_has_no_place_in_a_history_is_refused_and_changes_nothing(shared: Log, spark: Any) -> None:  # noqa: F811
    """Two changes of a key at one position, a version without a beginning, rows that don't say when they begin."""
    table = opened(shared, spark, delete_when=None)
    with pytest.raises(InvariantBroken, match="two rows of one batch have the keys"):
        table.write(SCHEMA, row(Change(1, "a", "c", 1)), row(Change(1, "a", "d", 2)))
    with pytest.raises(Refused, match="'valid_from', by which rows are put in order, is null"):
        table.write(SCHEMA, (*row(Change(1, "a", "c", 1))[:4], None))
    with pytest.raises(Refused, match="'valid_from' is not a column of type timestamp"):
        opened(shared, spark).write("id string, position string, gone boolean", ("a", "1", False))
    assert versions(table) == set()
