"""The table of `onlyonce.testing` for an upsert that keeps the newest rows: what the sinks' tables have."""

from __future__ import annotations

import random
from typing import Any

import pytest

from onlyonce import Output, Postgres, Refused
from onlyonce.testing.playing import Target
from tests.support import changes_of_a_table as source
from tests.support.changes_of_a_table import Change

SINK = Postgres(table="results.customers", write="upsert", keys="key", sequence_by="position", delete_when="gone")
OUTPUT = Output(name="customers", transform="a:b", sink=SINK)


def row(change: Change) -> dict[str, Any]:
    return {"key": change.key, "position": change.position, "value": change.value, "gone": change.deleted}


@pytest.mark.parametrize("seed", range(5))
def test_it_has_what_the_source_has_whatever_comes_first(seed: int) -> None:
    """Several changes of a key in one batch, again, out of order, older ones behind a delete."""
    chance = random.Random(seed)
    target, seen = Target(OUTPUT), set[Change]()
    for batch in source.cut(chance, source.delivered(chance, source.made(chance, keys=6, changes=80))):
        target.write([row(change) for change in {*batch} - seen])
        seen |= {*batch}
        assert {(one["key"], one["position"], one["value"]) for one in target.rows()} == source.table(seen)


def test_two_rows_of_a_key_at_one_position_are_refused_and_so_is_a_row_without_one() -> None:
    """As in the sinks."""
    target = Target(OUTPUT)
    first = {"key": "a", "position": 1, "value": 1, "gone": False}
    with pytest.raises(Refused, match="have the same keys"):
        target.write([first, first | {"gone": True}])
    with pytest.raises(Refused, match="a row has no position"):
        target.write([first | {"position": None}])
