"""Draws numbers as bars, and writes numbers, times and ages as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

HEIGHT = 36
_STEP, _GAP = 10, 2
# In units of the drawing, which the page stretches to its width.
_LEAST = 60
# A few bars alone would be as wide as a hand.


@dataclass(frozen=True)
class Bar:
    """One bar, from the bottom up, with the text that shows when it is pointed at."""

    x: int
    y: float
    height: float
    title: str


@dataclass(frozen=True)
class Chart:
    """One row of bars with its own scale, so that few duplicates beside many kept records can be seen."""

    name: str
    kind: str
    bars: tuple[Bar, ...]
    largest: str
    width: int
    bar_width: int = _STEP - _GAP
    height: int = HEIGHT


def chart(name: str, kind: str, points: Iterable[tuple[str, float | None]], shown: Any = None) -> Chart:
    """The bars of some (title, value), oldest first; a value that is missing has no bar.

    `kind` is the colour's name.
    """
    shown = shown or number
    values = [(title, max(value or 0, 0)) for title, value in points]
    top = max((value for _, value in values), default=0)
    empty = max(_LEAST - len(values), 0)
    bars = tuple(
        Bar((empty + at) * _STEP, round(HEIGHT - tall, 2), round(tall, 2), f"{title}: {shown(value)}")
        for at, (title, value) in enumerate(values)
        if (tall := _tall(value, top))
    )
    return Chart(name, kind, bars, shown(top), (empty + len(values)) * _STEP - _GAP)


def by_batch(name: str, column: str, rows: Iterable[Mapping[str, Any]], kind: str = "", shown: Any = None) -> Chart:
    """A column of the rows of the query `recent`, one bar for each batch."""
    points = [(f"batch {row['batch']}, {time(row['committed_at'])}", row[column]) for row in rows]
    return chart(name, kind or column, points, shown)


def number(value: float | None) -> str:
    """A count with its thousands apart; a dash for what is not known."""
    return "–" if value is None else f"{value:,.0f}"


def size(value: float | None) -> str:
    """Bytes, for people."""
    if value is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def time(value: datetime | None) -> str:
    """An instant, in UTC, to the second."""
    return "–" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def span(start: datetime | None, end: datetime | None) -> str:
    """A window: its start, and of its end what differs."""
    if start is None or end is None:
        return time(start)
    first, last = time(start), time(end)
    return f"{first} – {last[11:]}" if first[:10] == last[:10] else f"{first} – {last}"


def age(seconds: float | None) -> str:
    """A duration in its two largest units."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds * 1000:.0f} ms" if 0 < seconds < 1 else f"{seconds:.0f} s"
    whole = round(seconds)
    for large, small, a, b in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large} {a}" + (f" {rest} {b}" if rest else "")
    raise AssertionError("a minute or more has one of these units")


def _tall(value: float, top: float) -> float:
    # What is there must be seen, however small it is beside the largest.
    return max(value / top * HEIGHT, 1.5) if value else 0
