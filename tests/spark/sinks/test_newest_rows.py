"""An upsert that keeps the newest row of each key, by Spark: several changes of a key in one batch, out of order, in
Delta, PostgreSQL and MySQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from onlyonce.api.pipeline import Delta, MySQL, Postgres, Sink
from onlyonce.core.errors import InvariantBroken, Refused
from tests.contract.conformance_mysql import VARIABLE
from tests.contract.conftest import Log, shared  # noqa: F401 - a fixture
from tests.spark.sinks.test_sink_schema import Table
from tests.support import changes_of_a_table as source
from tests.support.changes_of_a_table import Change
from tests.support.mariadb import MariaDB

pytestmark = pytest.mark.spark

SCHEMA = "id string, position string, value long, gone boolean"
SINKS: dict[str, Callable[[str], Sink]] = {
    "delta": lambda table: Delta(write="upsert", keys="id", sequence_by="position"),
    "postgres": lambda table: Postgres(
        table=table, write="upsert", keys="id", sequence_by="position", delete_when="gone"
    ),
    "mysql": lambda table: MySQL(
        table=table.replace(".", "_"),
        connection=VARIABLE,
        write="upsert",
        keys="id",
        sequence_by="position",
        delete_when="gone",
    ),
}
NUMBERS = count()


def opened(log: Log, spark: Any, sink: str) -> Table:
    return Table(log, spark, f"newest_{next(NUMBERS)}", SINKS[sink])


def row(change: Change) -> tuple[Any, ...]:
    return (change.key, f"{change.position:06}", change.value, change.deleted)


@pytest.mark.parametrize("sink", SINKS)
def test_the_rows_are_those_that_the_source_has(
    shared: Log,  # noqa: F811
    spark: Any,
    sink: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without `delete_when` a deleted row stays, with the mark that the function gave it; else it goes (of Delta:
    test_delta_deletes)."""
    chance = random.Random(1)  # in two of three batches the newest is not what comes last
    if sink == "mysql":
        server: MariaDB = request.getfixturevalue("mariadb")
        monkeypatch.setenv(VARIABLE, server.url(server.new_database()))
    table = opened(shared, spark, sink)
    changes = source.delivered(chance, source.made(chance, keys=5, changes=30), again=0.0, apart=20)
    for first in range(0, len(changes), 12):
        table.write(SCHEMA, *map(row, changes[first : first + 12]))
        seen = changes[: first + 12]
        there = {(one["id"], int(one["position"]), one["value"]) for one in table.rows() if not one.get("gone")}
        assert there == source.table(seen)
        assert len(table.rows()) == (len(source.newest(seen)) if sink == "delta" else len(there))


def test_rows_of_which_none_is_the_newest_are_refused_by_delta(shared: Log, spark: Any) -> None:  # noqa: F811
    """Before a unit says that they are there: two of a key at one place, and one without a place, beside another
    too."""
    table = opened(shared, spark, "delta")
    table.write(SCHEMA, ("a", "1", 1, False))
    with pytest.raises(InvariantBroken, match="two rows of one batch have the keys"):
        table.write(SCHEMA, ("a", "2", 2, False), ("a", "2", 3, True))
    with pytest.raises(Refused, match="'position', by which rows are put in order, is null"):
        table.write(SCHEMA, ("a", None, 2, False), ("a", "3", 3, False))
    assert [one["value"] for one in table.rows()] == [1]
