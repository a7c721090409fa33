"""Guesses which columns identify a record, which one says when it happened, and which window is good to begin with.

Pure.

A guess has its reason beside it, which becomes a comment of the declaration: a person decides. Who calls it: `project`.
Not promised: that what is unique in a sample is unique in all of the input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

from onlyonce.model.errors import Refused
from onlyonce.scaffold import time_forms
from onlyonce.scaffold.sample import NOT_READ, Sample
from onlyonce.scaffold.time_forms import HANDLED, HAPPENED

KEYS = ("string", "tinyint", "smallint", "int", "long")
"""The types of columns that identify things."""
MOST_COLUMNS = 12
"""Of so many columns pairs are tried."""
DATE = re.compile(r"[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}(?:[ T].*)?")
"""A date that people write, in any order of its parts, and a time behind it."""
WINDOWS = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1))


@dataclass(frozen=True)
class Guess:
    """A column, or some, and why."""

    columns: tuple[str, ...]
    reason: str


def event_time(sample: Sample) -> Guess:
    """The column that says when a record happened. Raises Refused where no column has times in every record."""
    times = [name for name, kind in sample.columns.items() if kind == "timestamp" and None not in sample.values(name)]
    if not times:
        raise Refused(
            f"{sample.name} has no column that holds a time in every record; its columns are "
            + ", ".join(f"{name} {kind}" for name, kind in sample.columns.items()),
            data=NOT_READ,
            hint=_hint(sample),
        )
    if len(times) == 1:
        return Guess((times[0],), "the only column with a time in every record")
    best = min(times, key=lambda name: (_rank(name), times.index(name)))
    others = ", ".join(name for name in times if name != best)
    if _rank(best) < len(HAPPENED):
        return Guess((best,), f"its name says when it happened; {others}: times too")
    return Guess((best,), f"the first column of times, and no name says more; or is it {others}?")


def _hint(sample: Sample) -> str:
    """Return what to do about a file without a time; a date such as 3/1/2026 is named, since nothing says which of its
    numbers is the month."""
    found = next(
        (
            (name, str(value))
            for name, kind in sample.columns.items()
            if kind == "string"
            for value in sample.values(name)
            if DATE.fullmatch(str(value))
        ),
        None,
    )
    needed = "a record needs the time at which it happened, as 2026-03-01T12:00:00Z; of columns, a timestamp"
    if found and found[0] in sample.unsure:
        forms = " or ".join(sample.unsure[found[0]])
        return (
            f"{needed}; column {found[0]} has {found[1][:40]!r}, which is {forms}: name a sample that has a day "
            "beyond 12, or have it exported as 2026-03-01"
        )
    return (
        f"{needed}; column {found[0]} has {found[1][:40]!r}, which no rule reads: have it exported as 2026-03-01"
        if found
        else needed
    )


def record_id(sample: Sample) -> Guess:
    """The columns that identify a record; none if its place in the file does."""
    rows = _distinct(sample)
    keys = [
        name for name, kind in sample.columns.items() if kind in KEYS and all(row.get(name) is not None for row in rows)
    ]
    told = f"unique in the {len(rows)} records of the sample"
    single = [name for name in keys if _unique(rows, (name,))]
    if named := [name for name in single if _says_id(name)]:
        best = next((name for name in named if name.lower() == "id"), named[0])
        return Guess((best,), f"{told}, and its name says so")
    # A number may be unique in a sample by chance; a text hardly is.
    if texts := [name for name in single if sample.columns[name] == "string"]:
        return Guess((texts[0],), f"{told}; its name does not say so, so look whether it is by chance")
    timed = [name for name, kind in sample.columns.items() if kind == "timestamp" and name not in keys]
    pairs = combinations([*keys, *timed][:MOST_COLUMNS], 2)
    if pair := next((pair for pair in pairs if _unique(rows, pair) and not set(pair) <= set(timed)), None):
        return Guess(pair, f"together {told}; no column is alone")
    return Guess(
        (),
        "no column or pair is unique in the sample: a record is its place in its file, and what is delivered "
        "again counts again",
    )


def window(times: Sequence[Any]) -> timedelta:
    """A window so short that the sample holds several, so that a first run shows closed ones."""
    found = [time for value in times if (time := _moment(value)) is not None]
    span = max(found) - min(found) if found else timedelta(0)
    return next((size for size in WINDOWS if span >= 3 * size), WINDOWS[-1])


def _moment(value: Any) -> datetime | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _rank(name: str) -> int:
    words = time_forms.words(name)
    if any(word in HANDLED for word in words):
        return len(HAPPENED) + 1
    return next((at for at, word in enumerate(HAPPENED) if word == name.lower() or word in words), len(HAPPENED))


def _says_id(name: str) -> bool:
    return bool(re.search(r"(^|_)(id|uuid|guid|key)$|[a-z]I[dD]$", name))


def _distinct(sample: Sample) -> list[dict[str, Any]]:
    # A record that is there twice, as it is, was delivered twice.
    return list({repr(sorted(row.items())): row for row in sample.rows}.values())


def _unique(rows: Sequence[dict[str, Any]], names: tuple[str, ...]) -> bool:
    of: Callable[[dict[str, Any]], str] = lambda row: repr([row.get(name) for name in names])  # noqa: E731
    return len({of(row) for row in rows}) == len(rows)
