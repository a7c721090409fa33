"""Deletes of a Delta upsert: a row goes, and no older change brings it back, whatever comes first, again, or is cut off
between the two commits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce.api.pipeline import Delta
from onlyonce.core.errors import Refused
from onlyonce.sinks.delta import delta_upsert, sink_delta
from onlyonce.tables.table_files import beside
from tests.contract.conftest import Log, shared  # noqa: F401 - a fixture
from tests.spark.sinks.test_newest_rows import SCHEMA, row
from tests.spark.sinks.test_sink_schema import Table
from tests.support import changes_of_a_table as source

pytestmark = pytest.mark.spark

NUMBERS = count()
POINTS = {
    "delta-before-deletes": delta_upsert,
    "delta-after-deletes": delta_upsert,
    "delta-before-write": sink_delta,
    "delta-after-write": sink_delta,
}


class Killed(Exception):
    """The driver is gone."""


def opened(log: Log, spark: Any) -> Table:
    return Table(
        log,
        spark,
        f"deletes_{next(NUMBERS)}",
        lambda _: Delta(write="upsert", keys="id", sequence_by="position", delete_when="gone"),
    )


def remembered(table: Table) -> dict[str, str]:
    """What the table next to it has, by key."""
    rows = DeltaTable(str(beside(table.path()))).to_pyarrow_table().to_pylist()
    found = {one["id"]: one["position"] for one in rows}
    assert len(found) == len(rows), "one row a key"
    return found


def test_an_older_change_does_not_bring_a_deleted_row_back_and_a_newer_one_does(shared: Log, spark: Any) -> None:  # noqa: F811
    """Also where a batch changes nothing: an older row, an older delete. Positions of deletes never go back."""
    table = opened(shared, spark)
    steps: list[tuple[tuple[Any, ...], list[int], dict[str, str]]] = [
        (("a", "1", 1, False), [1], {}), (("a", "5", None, True), [], {"a": "5"}), (("a", "3", 3, False), [], {"a": "5"}),
        (("a", "4", None, True), [], {"a": "5"}), (("a", "6", 6, False), [6], {"a": "5"}), (("a", "2", None, True), [6], {"a": "5"}),
    ]  # fmt: skip
    for change, values, deleted in steps:
        table.write(SCHEMA, change)
        assert [one["value"] for one in table.rows()] == values
        assert remembered(table) == deleted
    assert {*table.rows()[0]} == {"id", "position", "value"}


@contextmanager
def killed(point: str) -> Iterator[None]:
    """The driver ends at a point."""

    def passing(name: str) -> None:
        if name == point:
            raise Killed(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(POINTS[point], "passing", passing)
        yield


def test_a_delete_is_remembered_before_its_row_goes(shared: Log, spark: Any) -> None:  # noqa: F811
    """So a batch whose rows are there needs nothing more, whoever withdraws it."""
    table = opened(shared, spark)
    table.write(SCHEMA, ("a", "1", 1, False))
    for point, kept in (("delta-before-deletes", {}), ("delta-after-deletes", {"a": "5"})):
        with killed(point), pytest.raises(Killed):
            table.write(SCHEMA, ("a", "5", None, True))
        assert ([one["value"] for one in table.rows()], remembered(table)) == ([1], kept)
    table.write(SCHEMA, ("a", "5", None, True))
    assert (table.rows(), remembered(table)) == ([], {"a": "5"})


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_the_rows_are_those_that_the_source_has_whatever_is_killed(shared: Log, spark: Any, seed: int) -> None:  # noqa: F811
    """Delivered again, out of order, cut in batches, each killed at one of the points around its two commits and
    replayed."""
    chance = random.Random(seed)
    table = opened(shared, spark)
    changes = source.delivered(chance, source.made(chance, keys=5, changes=24), again=0.0, apart=20)
    size = 10
    for number, first in enumerate(range(0, len(changes), size)):
        part = [row(change) for change in changes[first : first + size]]
        point = (*POINTS, None)[(number + seed) % (len(POINTS) + 1)]
        if point is not None:
            with killed(point), pytest.raises(Killed):
                table.write(SCHEMA, *part)
        table.write(SCHEMA, *part)
        seen = changes[: first + size]
        assert {(one["id"], int(one["position"]), one["value"]) for one in table.rows()} == source.table(seen)
        gone = {one.key: f"{one.position:06}" for one in source.newest(seen).values() if one.deleted}
        assert gone.items() <= remembered(table).items()


def test_a_table_of_somebody_else_is_not_written_to_and_ours_is_nobodys_target(shared: Log, spark: Any) -> None:  # noqa: F811
    """Neither beside a new table, nor as the table of another output."""
    table, other = opened(shared, spark), opened(shared, spark)
    write_deltalake(str(beside(table.path())), pa.table({"id": ["x"]}))
    with pytest.raises(Refused, match="which is not the platform's"):
        table.write(SCHEMA, ("a", "1", 1, False))
    other.write(SCHEMA, ("a", "1", 1, False))
    taken = Table(shared, spark, beside(other.path()).name, lambda _: Delta())
    with pytest.raises(Refused, match="keeps the keys that another output has deleted"):
        taken.write("id string", ("a",))


def test_a_row_that_does_not_say_whether_it_is_deleted_is_refused(shared: Log, spark: Any) -> None:  # noqa: F811
    """Before anything is written."""
    table = opened(shared, spark)
    with pytest.raises(Refused, match="'gone', which says whether a row is deleted, is null"):
        table.write(SCHEMA, ("a", "1", 1, None))
    assert table.rows() == []
