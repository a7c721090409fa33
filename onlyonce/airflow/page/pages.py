"""Pages of a long list.

A page begins after the last row of the one before, and not at a number, so no row is shown twice while rows come in.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from onlyonce.model.errors import Refused

ROWS = 50
_BETWEEN = "~"
# In no lineage, sink or time.
_FIRST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Order:
    """The columns that order a list, the kind of each, and the place before its first row."""

    columns: tuple[str, ...]
    kinds: tuple[Callable[[str], Any], ...]
    first: tuple[Any, ...]

    def place(self, text: str | None) -> tuple[Any, ...]:
        """The values after which a page begins. Raises Refused for a text that is no place in this list."""
        if not text:
            return self.first
        parts = text.split(_BETWEEN)
        try:
            return tuple(kind(part) for kind, part in zip(self.kinds, parts, strict=True))
        except (ValueError, OverflowError) as error:
            raise Refused(f"{text!r} is no place in this list", hint="go back to its first page") from error


@dataclass(frozen=True)
class Page:
    """Some rows of a list, and the text that names the place after them; None when they are the last."""

    rows: list[dict[str, Any]]
    next: str | None


def page(rows: Sequence[dict[str, Any]], order: Order, size: int = ROWS) -> Page:
    """The first `size` of up to `size + 1` rows: one more than is shown tells whether there are more."""
    shown = list(rows[:size])
    return Page(shown, _text(shown[-1], order) if len(rows) > size else None)


def instant(text: str) -> datetime:
    """A time with its zone, in UTC: PostgreSQL has not all zones that Python has.

    Raises ValueError and OverflowError.
    """
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return value.astimezone(UTC)


BATCHES = Order(("batch",), (int,), (2**62,))
WINDOWS = Order(("window_start", "window_end", "generation"), (instant, instant, int), (_LATEST, _LATEST, 0))
LATE = Order(("window_start", "window_end"), (instant, instant), (_LATEST, _LATEST))
BACKFILLS = Order(("begun_at", "lineage", "batch"), (instant, str, int), (_LATEST, "", 0))
FILES = Order(("output", "since", "pane", "shard"), (str, instant, int, int), ("", _FIRST, -1, -1))
COMMITS = Order(("committed_at", "unique_id"), (instant, str), (_LATEST, ""))
UNITS = Order(("sink", "partition"), (str, int), ("", -1))


def _text(row: Mapping[str, Any], order: Order) -> str:
    values = [row[column] for column in order.columns]
    return _BETWEEN.join(v.isoformat() if isinstance(v, datetime) else str(v) for v in values)
