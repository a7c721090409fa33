"""Hold what a test of a pipeline gives (rows, backfills, the end of the input) and what it looks at (rows, late and
rejected records, panes). Plain data, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from onlyonce.api.declaration import unknown
from onlyonce.core.errors import Refused

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
    """The result for the rows that the test gave. Times are aware, in UTC. A name that is not an output raises Refused.

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
        """Return the rows in an output's table; for windows, window_start and window_end come first."""
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


Given = Row | str


@dataclass(frozen=True)
class Batch:
    """Rows that receive reads in one batch. `at` is what its clock shows then; None: the time at which the test
    runs."""

    rows: tuple[Given, ...]
    at: datetime | None = None


@dataclass(frozen=True)
class Backfill:
    """A backfill of all windows that are closed by then.

    It covers one output and the outputs made from it; None: all outputs.
    """

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
    """Return a batch that is received at a time of the clock ('2026-03-01 10:00', in UTC unless it has a zone).

    It is the ingestion time of the batch's records, and decides which of them are too far ahead.
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
    """Return what a step means: a list is a batch. Raise Refused for anything that is not a step."""
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
