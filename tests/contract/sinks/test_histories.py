"""A history (SCD type 2): each change is a version of its row, in its place, whatever comes first, comes again or is
killed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, TimestampType

from onlyonce.api.pipeline import Output, Postgres
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.testing.playing import Target
from tests.contract.conftest import Log
from tests.contract.sinks import test_newest_rows as newest_rows
from tests.contract.sinks.test_newest_rows import KINDS, POINTS, Table
from tests.support import changes_of_a_table as source
from tests.support.changes_of_a_table import Change

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = newest_rows.SCHEMA.append(pa.field("valid_from", pa.timestamp("us", "UTC")))
SINK = Postgres(table="results.customers", write="history", keys="key", sequence_by="position", delete_when="gone")
Version = tuple[str, int, int, int, int | None, bool]


def at(position: int) -> datetime:
    return START + timedelta(seconds=position)


def seconds(time: datetime | None) -> int | None:
    return None if time is None else int((time - START).total_seconds())


def rows_of(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """All changes of a batch, each once, as receive has kept them."""
    return [
        {
            "key": one.key,
            "position": one.position,
            "value": one.value,
            "gone": one.deleted,
            "valid_from": at(one.position),
        }
        for one in sorted({*changes})
    ]


def made(log: Log, sink: Postgres = SINK) -> Table:
    return Table(log, sink, KINDS | {"valid_from": TimestampType()})


def versions(log: Log) -> set[Version]:
    """What is in the table, times as seconds."""
    found = log.rows("SELECT key, position, value, valid_from, valid_to, is_current FROM results.customers")
    assert len({row[:2] for row in found}) == len(found)
    return {
        (key, position, value, seconds(since), seconds(until), current)  # type: ignore[misc]
        for key, position, value, since, until, current in found
    }


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10))])
def test_each_version_holds_until_the_next_change_of_its_key(log: Log, seed: int) -> None:
    """Changes out of order, several of a key in one batch, kills at each point and batches written again;
    `onlyonce.testing` has the same."""
    chance = random.Random(seed)
    table, target = made(log), Target(Output(name="customers", transform="a:b", sink=SINK))
    seen: list[Change] = []
    for number, batch in enumerate(
        source.cut(chance, source.delivered(chance, source.made(chance, keys=5, changes=90)))
    ):
        rows = rows_of({*batch} - {*seen})
        if chance.random() < 0.5:
            table.killed(number, rows, chance.choice(POINTS), SCHEMA)
        for _ in range(chance.choice([1, 1, 2])):
            table.write(number, rows, SCHEMA)
        target.write(rows)
        seen += batch
        assert versions(log) == source.history(seen)
    assert {
        (
            row["key"],
            row["position"],
            row["value"],
            seconds(row["valid_from"]),
            seconds(row["valid_to"]),
            row["is_current"],
        )
        for row in target.rows()
    } == source.history(seen)


def test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete(log: Log) -> None:
    """The one before it ends at the late one, and the current one stays current."""
    table = made(log)
    first, third = Change(1, "a", "c", 10), Change(9, "a", "u", 30)
    table.write(0, rows_of([first, third]), SCHEMA)
    table.write(1, rows_of([Change(4, "a", "u", 20)]), SCHEMA)
    table.write(2, rows_of([Change(6, "a", "d", 20)]), SCHEMA)
    assert versions(log) == {("a", 1, 10, 1, 4, False), ("a", 4, 20, 4, 6, False), ("a", 9, 30, 9, None, True)}


@pytest.mark.parametrize("first", source.TIED, ids=lambda change: change.op)
def test_delete_at_a_version_s_position_comes_after_it(log: Log, first: Change) -> None:
    """Whichever of the two comes first; `onlyonce.testing` has the same."""
    table, target = made(log), Target(Output(name="customers", transform="a:b", sink=SINK))
    for number, batch in enumerate(source.tied(first)):
        table.write(number, rows_of(batch), SCHEMA)
        target.write(rows_of(batch))
    assert versions(log) == source.TIED_HISTORY
    assert {(row["position"], seconds(row["valid_to"]), row["is_current"]) for row in target.rows()} == {
        (1, 3, False),
        (3, 3, False),
    }


def test_a_history_without_deletes_has_all_rows_as_versions(log: Log) -> None:
    """A row that the source has deleted may be a version with a mark."""
    table = made(log, Postgres(table="results.customers", write="history", keys="key", sequence_by="position"))
    table.write(0, rows_of([Change(2, "a", "d", 7), Change(1, "a", "c", 7)]), SCHEMA)
    assert versions(log) == {("a", 1, 7, 1, 2, False), ("a", 2, 7, 2, None, True)}


def test_what_has_no_place_in_a_history_is_refused_and_changes_nothing(log: Log) -> None:
    """Two changes of a key at one position, a version without a beginning, a null key; and rows that don't say when
    they begin."""
    table = made(log)
    [row] = rows_of([Change(1, "a", "c", 1)])
    with pytest.raises(InvariantBroken, match=r"two rows have the same keys \(key, position\)"):
        table.write(0, [row, row | {"value": 2}], SCHEMA)
    for missing in ("valid_from", "key", "position"):
        with pytest.raises(Refused, match=f'null value in column "{missing}"'):
            table.write(0, [row | {missing: None}], SCHEMA)
    assert versions(log) == set()
    with pytest.raises(Refused, match="'valid_from' is not a column of type timestamp"):
        Table(log, SINK)
    with pytest.raises(Refused, match="'valid_to' is found by the platform"):
        Table(log, SINK, KINDS | {"valid_from": TimestampType(), "valid_to": TimestampType()})


def test_history_of_keys_and_positions_alone_is_written_again_over_itself(log: Log) -> None:
    """`sequence_by` names valid_from, and no other column is left to replace."""
    sink = Postgres(table="results.customers", write="history", keys="key", sequence_by="valid_from")
    table = Table(log, sink, {"key": StringType(), "valid_from": TimestampType()})
    schema = pa.schema([("key", pa.string()), ("valid_from", pa.timestamp("us", "UTC"))])
    first, second = ({"key": "a", "valid_from": at(position)} for position in (1, 2))
    table.write(0, [first], schema)
    table.write(1, [first, second], schema)
    found = log.rows("SELECT key, valid_from, valid_to, is_current FROM results.customers ORDER BY valid_from")
    assert found == [("a", at(1), at(2), False), ("a", at(2), None, True)]
