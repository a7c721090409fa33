"""Every sink over the same cases.

Values are read back by readers that share no code with the platform, and compared exactly.

Which sink has which case is in TABLE, and `test_each_sink_has_each_case_or_a_reason` compares it with what runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.core.errors import Refused
from onlyonce.failpoints import FailPoint
from tests.contract.conftest import Log, shared  # noqa: F401 - a fixture
from tests.spark.sinks.conformance import values
from tests.spark.sinks.conformance.delta import DeltaAppend, DeltaHistory, DeltaUpsert
from tests.spark.sinks.conformance.files import Avro, Csv, JsonLines, Parquet
from tests.spark.sinks.conformance.iceberg import IcebergAppend
from tests.spark.sinks.conformance.mysql import MySQLAppend, MySQLHistory, MySQLUpsert
from tests.spark.sinks.conformance.outbox import Outbox
from tests.spark.sinks.conformance.postgres import PostgresAppend, PostgresHistory, PostgresIncrement, PostgresUpsert
from tests.spark.sinks.conformance.stage import ROWS, Kept, Stage

pytestmark = pytest.mark.spark

SINKS = [
    DeltaAppend, DeltaUpsert, DeltaHistory, PostgresAppend, PostgresUpsert, PostgresIncrement, PostgresHistory,
    MySQLAppend, MySQLUpsert, MySQLHistory, IcebergAppend, JsonLines, Csv, Parquet, Avro, Outbox,
]  # fmt: skip
TABLE = """
case                DeltaAppend DeltaUpsert DeltaHistory PostgresAppend PostgresUpsert PostgresIncrement PostgresHistory MySQLAppend MySQLUpsert MySQLHistory IcebergAppend JsonLines Csv Parquet Avro Outbox
types               +           +           +            +-             +-             +-                +-              +-          +-          +-           +-            +         +   +       +-   +
empty_batch         +           +           +            +              +              +                 +               +           +           +            +             +         +   +       +    +
another_writer      +           +           +            +              +              +                 +               +           +           +            +             +         +   +       +    o
driver_ends         +           +           +            +              +              +                 +               +           +           +            +             +         +   +       +    +
task_killed         +           +           +            +              +              +                 +               +           +           +            +             +         +   +       +    +
default             -           -           -            +              +              +                 +               +           +           +            i             f         f   f       f    +
identity            -           -           -            +              +              +                 +               +           +           +            i             f         f   f       f    +
generated           +           +           +            +              +              +                 +               +           +           +            i             f         f   f       f    +
NOT_NULL            +-          +-          +-           +-             +-             +-                +-              +-          +-          +-           +-            f         f   f       f    +-
CHECK               +-          +-          +-           +-             +-             +-                +-              +-          +-          +-           i             f         f   f       f    +-
trigger             d           d           d            -              -              -                 -               -           -           -            i             f         f   f       f    -
foreign_key         d           d           d            -              -              -                 -               -           -           -            i             f         f   f       f    -
deferred_constraint d           d           d            -              -              -                 -               m           m           m            i             f         f   f       f    -
partition           +           +           +            +-             +-             +-                +-              +-          +-          +-           +-            f         f   f       f    +-
narrower_type       -           -           -            -              -              -                 -               -           -           -            -             f         f   f       f    r
encoding            d           d           d            +-             +-             +-                +-              -           -           -            i             f         f   f       f    e
"""
"""The cases of each sink. + : the rows are there, as they were given. - : what the sink or its table can't hold is
refused by name. A letter: see REASONS."""
REASONS = {
    "o": "rows of the outbox are sent by the platform alone; what a receiver does twice or loses is in "
    "tests/contract/sinks/test_deliver.py",
    "i": "no table that pyiceberg writes has it: format 2 has no defaults, and no constraint but required columns",
    "f": "files have no table: a team's own files in the folder stay as they are (another_writer); a final name "
    "that is taken is an error (test_files.py)",
    "d": "Delta has none",
    "m": "MySQL and MariaDB check each constraint at once",
    "r": "a request has no types: what a receiver's table refuses is a dead letter with its answer, as for CHECK",
    "e": "a request is JSON in UTF-8, whatever the receiver's table has",
}
"""Why a sink has no such case."""
QUICK = {"its own values", "partition", "narrower type"}
"""The tables of teams that each `make test` has, where a refusal is slow."""
FIRST = (DeltaAppend, PostgresAppend, MySQLAppend, IcebergAppend, JsonLines, Outbox)
"""The sinks whose task each `make test` kills: the others have the same task."""


@pytest.fixture(params=SINKS, ids=lambda sink: sink.__name__)
def kept(request: pytest.FixtureRequest, shared: Log, spark: Any, tmp_path: Path) -> Iterator[Kept]:  # noqa: F811
    """Each sink with an output of this test's own."""
    if issubclass(request.param, MySQLAppend):
        request.param.server = request.getfixturevalue("mariadb")
    made = request.param(Stage(shared, spark, tmp_path))
    yield made
    made.close()


def of(sink: type[Kept], slow: bool, *more: str) -> Any:
    """Return a case of a sink; a slow one is left to `make test-all`."""
    return pytest.param(sink, *more, id="-".join([sink.__name__, *more]), marks=[pytest.mark.whole] if slow else [])


def cases_of(sink: type[Kept]) -> dict[str, str]:
    """Return what runs of each case over a sink, as TABLE has it."""
    found = dict.fromkeys(("empty_batch", "driver_ends"), "+")  # by the sink's `point`, which each has
    found["types"] = "+-" if sink.no_columns or sink.cannot else "+"
    found |= {"another_writer": "+"} if sink.other_writer is not Kept.other_writer else {}
    found |= {"task_killed": "+"} if sink.kills else {}
    for name, team in sink.teams.items():
        for case in team.has or (name,):
            key = case.replace(" ", "_")
            found[key] = "".join(sorted({*found.get(key, ""), "-" if team.refused else "+"}))
    return found


def test_each_sink_has_each_case_or_a_reason() -> None:
    """A sink or a case that is missing in TABLE, a cell that says more or less than what runs, and a reason that no
    cell has."""
    names, *lines = [line.split() for line in TABLE.strip().splitlines()]
    assert names[1:] == [sink.__name__ for sink in SINKS]
    found = {sink.__name__: cases_of(sink) for sink in SINKS}
    said = {name: {line[0]: line[at] for line in lines} for at, name in enumerate(names) if at}
    assert {
        name: {case: cell for case, cell in cells.items() if cell not in REASONS} for name, cells in said.items()
    } == found
    assert {cell for cells in said.values() for cell in cells.values() if cell in REASONS} == REASONS.keys()


def held(kept: Kept) -> dict[str, list[Any]]:
    """Return the values that a sink can hold."""
    refused = {name: [values.exact(value) for value in some] for name, some in kept.cannot.items()}
    return {
        name: [value for value in some if values.exact(value) not in refused.get(name, [])]
        for name, (_, some) in values.KINDS.items()
        if name not in kept.no_columns
    }


def test_values_are_read_back_after_a_kill_and_another_writer(kept: Kept) -> None:
    """The first attempt fails with its rows written, another writer commits, and the next driver replays the other way;
    then comes an empty batch."""
    rows = values.table(held(kept))
    with pytest.raises(FailPoint, match=kept.point):
        kept.write(0, rows, kept.ways[0], kept.point)
    if theirs := kept.other_writer():
        theirs()
    kept.stage.restart()
    kept.write(0, rows, kept.ways[-1])
    kept.write(1, rows.slice(0, 0))

    there = kept.read()
    found = {row["id"]: row for row in there}
    assert len(there) == len(found) == rows.num_rows + (kept.theirs if theirs else 0)
    wrong = different(kept, rows, found)
    assert wrong == [], "\n".join(map(repr, wrong))


@pytest.mark.parametrize("kept", [of(sink, sink not in FIRST) for sink in SINKS], indirect=True)
def test_rows_are_there_once_whatever_task_is_killed(kept: Kept) -> None:
    """A task ends before and after it has written, and after its commit; Spark tries it again."""
    kept.write(0, ROWS, "tasks", kills=kept.kills)
    assert sorted((row["id"], int(row["n"])) for row in kept.read()) == [("a", 1), ("𠮷", 2)]


def different(kept: Kept, rows: pa.Table, found: dict[str, dict[str, Any]]) -> list[Any]:
    """Return (column, id, read, wanted) of each value that is not read back as it was."""
    pairs = [
        (
            field.name,
            one["id"],
            *(
                values.of_kind(field.type, value)
                for value in (found[one["id"]][field.name], kept.wanted(field.type, one[field.name]))
            ),
        )
        for one in rows.to_pylist()
        for field in rows.schema
    ]
    return [pair for pair in pairs if not values.same(pair[2], pair[3])]


@pytest.mark.parametrize(
    "kept", [of(sink, sink.slow_refusals) for sink in SINKS if not getattr(sink, "keys", None)], indirect=True
)
def test_a_value_that_the_sink_cannot_hold_is_refused_by_name(kept: Kept) -> None:
    """With the column, the value and the record. No sink holds a year that only a function can compute, inside a column
    too, whether the driver or Spark's tasks write it."""
    beyond: dict[str, list[Any]] = {
        "timestamp": [values.YEAR_10000],
        "struct": [{"at": values.YEAR_10000, "gone": "", "x": 0.0}],
    }
    for number, (name, some) in enumerate((kept.cannot | beyond).items()):
        if name in kept.no_columns:
            continue
        for way in kept.ways if name in beyond else [kept.ways[number % len(kept.ways)]]:
            with pytest.raises(Refused, match=f"column {name} is .*its sink can't hold .*id=r0"):
                kept.write(0, values.table({name: some[:1]}), way)


@pytest.mark.parametrize(
    ("kept", "has"),
    [of(sink, sink.slow_refusals and has not in QUICK, has) for sink in SINKS for has in sink.teams],
    indirect=["kept"],
)
def test_rows_are_in_a_teams_table_with_its_own_values_or_are_refused(kept: Kept, has: str) -> None:
    """What the table computes it computes; what it does not take is refused with its reason, and nothing is written."""
    team = kept.teams[has]
    kept.make(team.made)
    if team.refused:
        with pytest.raises(Refused, match=team.refused):
            kept.write(0, team.rows)
        assert kept.read() == []
        return
    kept.write(0, team.rows)
    found = {row["id"]: row for row in kept.read()}
    assert sorted(found) == sorted(team.rows.column("id").to_pylist())
    for row in team.rows.to_pylist():
        for name, wanted in (row | (team.row or {})).items():
            there = found[row["id"]][name]
            assert (
                isinstance(there, wanted)
                if isinstance(wanted, type)
                else there == (wanted(row) if callable(wanted) else wanted)
            )


@pytest.mark.parametrize(
    "kept", [sink for sink in SINKS if sink.no_columns], indirect=True, ids=lambda sink: sink.__name__
)
def test_a_type_that_the_sink_has_none_for_is_refused_before_any_row(kept: Kept) -> None:
    """By its column."""
    for name in kept.no_columns:
        with pytest.raises(Refused, match=f"column {name} "):
            kept.write(0, values.table({name: []}))
