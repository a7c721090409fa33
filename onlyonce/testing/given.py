"""What a test gives to a pipeline and what it gets back. Plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from onlyonce.api import functions, load
from onlyonce.api.declaration import unknown
from onlyonce.api.pipeline import Pipeline
from onlyonce.core.errors import Refused
from onlyonce.lookups import tables
from onlyonce.lookups.seen import Seen

Row = dict[str, Any]


@dataclass(frozen=True)
class Pane:
    """A window as it was written by one batch.

    batch        the number of the step that wrote it, from 0; a close counts as a step
    generation   0 of the stream; 1, 2, … of backfills, which replace the generation before
    rows         how many rows it has; an early pane: the changed rows; a pane by a trigger: all rows
    final        whether the window was closed by then
    """

    window_start: datetime | None
    window_end: datetime | None
    batch: int
    generation: int
    rows: int
    final: bool


@dataclass(frozen=True)
class Result:
    """What has become of the rows. Times are aware, in UTC. A name that is no output raises Refused.

    invalid      reason, place (batch and row, both from 0) and raw line of each record that is invalid
    duplicates   how many records were re-deliveries of others
    kept         how many are neither
    """

    invalid: list[Row]
    duplicates: int
    kept: int
    _tables: Mapping[str, list[Row]] = field(repr=False)
    _late: Mapping[str, list[Row]] = field(repr=False)
    _panes: Mapping[str, list[Pane]] = field(repr=False)
    _rejected: Mapping[str, list[Row]] = field(default_factory=dict, repr=False)

    def output(self, name: str) -> list[Row]:
        """Return the rows of an output as its table has them: of windows, window_start and window_end first."""
        return self._of(self._tables, name)

    def late(self, name: str) -> list[Row]:
        """Return the records that came to an output after their window had closed, once for each such window.

        The columns are the declared ones, window_start and window_end (None of a session, which has no end yet).
        """
        return self._of(self._late, name)

    def rejected(self, name: str) -> list[Row]:
        """Return the records that the function of an output has rejected (`reject`), once for each window.

        The columns are the declared ones, window_start and window_end (None of a session, and without windows), and the
        reason.
        """
        return self._of(self._rejected, name)

    def panes(self, name: str) -> list[Pane]:
        """Return every pane of an output, in the order in which they were written; none if the output has no window."""
        return self._of(self._panes, name)

    @staticmethod
    def _of(known: Mapping[str, list[Any]], name: str) -> list[Any]:
        if name not in known:
            raise unknown("output", name, list(known))
        return known[name]


# What a test gives a pipeline: rows, batch by batch, and backfills between them. Imports no Spark.


Given = Row | str


@dataclass(frozen=True)
class Batch:
    """Rows that receive takes in at once. `at` is what its clock shows then; None: the time at which the test runs."""

    rows: tuple[Given, ...]
    at: datetime | None = None


@dataclass(frozen=True)
class Backfill:
    """A backfill of all windows that are closed by then, of one output and those made from it; None: of all outputs."""

    output: str | None = None


@dataclass(frozen=True)
class Close:
    """The input has ended, or is silent at this time of the clock."""

    silent_at: datetime | None = None


Step = Batch | Backfill | Close | Sequence[Given]


def then(rows: Sequence[Given], at: datetime | str | None = None) -> Batch:
    """Return the next batch. A row is a dict of declared columns, or a str: a line as it comes, which may be wrong."""
    return Batch(tuple(rows), _time(at) if isinstance(at, str) else at)


def rows_at(at: datetime | str, rows: Sequence[Given]) -> Batch:
    """Return a batch that is taken in at a time of the clock ('2026-03-01 10:00', in UTC unless it has a zone).

    It is the system time of the batch's records, and decides which of them are too far ahead.
    """
    return then(rows, at)


def backfill(output: str | None = None) -> Backfill:
    """Compute all closed windows again at this point, with their late rows, as `onlyonce backfill` does."""
    return Backfill(output)


def ended() -> Close:
    """Declare the input ended here, so that every window with rows closes; more rows may follow.

    `close=True` does this at the end.
    """
    return Close()


def silent(at: datetime | str) -> Close:
    """Declare the input silent at this time of the clock since the last batch.

    Windows close if that is as long as `idle_after`.
    """
    return Close(_time(at) if isinstance(at, str) else at)


def step_of(given: Step) -> Batch | Backfill | Close:
    """Return what a step means: a list is a batch. Raise Refused for anything that is no step."""
    if isinstance(given, Batch | Backfill | Close):
        return given
    if isinstance(given, str | dict) or not isinstance(given, Sequence):
        raise Refused(
            f"{type(given).__name__} is not a step of a test: {str(given)[:80]}",
            hint="give lists of rows: run(PIPELINE, [row, …], then([row, …]), close=True)",
        )
    return then(given)


def line_of(row: Given) -> str:
    """Return a row as a line of JSON; a str is a line already."""
    return row if isinstance(row, str) else json.dumps(row, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise Refused(
        f"{value!r} ({type(value).__name__}) has no JSON", hint="give it as text, a number, a list, a dict or a time"
    )


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


# The tables of a pipeline's lookups, as a test gives them.


Table: TypeAlias = Sequence[Mapping[str, Any]] | DataFrame
"""Rows as dicts, or a DataFrame if the types must be given."""


def given_tables(spark: SparkSession, pipeline: Pipeline, of_test: Mapping[str, Table]) -> dict[str, DataFrame]:
    """Return the tables by name, for the functions of all outputs.

    Raise Refused for a table that is missing or that no output looks up, and for a key that is no column or not unique.
    """
    lookups = {lookup.name: lookup for output in pipeline.outputs for lookup in output.lookups}
    for output in load.with_function(pipeline.outputs):
        for function in load.functions(output):
            functions.check_parameters(output, function)
    for name in of_test:
        if name not in lookups:
            raise unknown("lookup", name, sorted(lookups))
    for name in lookups:
        if name not in of_test:
            raise Refused(
                f"pipeline {pipeline.name} looks up {name}, and the test gives no such table",
                data="only this test has read the rows",
                hint=f"run(PIPELINE, rows, lookups={{{name!r}: [{{…}}, …]}})",
            )
    frames = {
        name: table if isinstance(table, DataFrame) else spark.createDataFrame([dict(row) for row in table])
        for name, table in of_test.items()
    }
    for name, lookup in lookups.items():
        tables.check_columns(lookup, frames[name])
    tables.check_keys(lookups, Seen({name: {"version": "of the test"} for name in frames}, frames))
    return frames
