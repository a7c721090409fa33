"""Find the form of times that are not ISO 8601: a count since 1970, or a date in the order that people write. Pure.

Only a form that is certain is proposed. A count needs a column whose name says that it is a time. Of two orders of day
and month, one needs a day beyond 12 in the sample.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import product
from typing import Any

from onlyonce.model.values import conversions, time_formats
from onlyonce.model.values.conversions import Cell, Number, Unfit

HAPPENED = ("event_time", "event_timestamp", "occurred", "happened", "timestamp", "time", "ts", "at", "created", "date")
"""Words of the name of a time at which something happened, the clearest first."""
HANDLED = ("updated", "modified", "loaded", "ingested", "inserted", "received", "processed", "arrived", "landed")
"""Words of the name of a time at which a system handled a record: that comes later, and again."""
FIRST, LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""A count since 1970 is taken for a time of these years only."""
DAYS = [
    order.replace("/", by) for by in "./-" for order in ("%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d/%b/%Y", "%d/%B/%Y")
]
LOOKS_LIKE = re.compile(r"[0-9]{1,4}[./-]")
CLOCKS = ("", "%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
PATTERNS = [
    f"{day}{by}{clock}{zone}"
    for day, clock in product(DAYS, CLOCKS)
    for by in ((" ", "T", ", ", ":") if clock else ("",))
    for zone in (("", "%z", " %z") if clock else ("",))
]


@cache
def _reader(pattern: str) -> time_formats.Read:
    return time_formats.reader(pattern)


def words(name: str) -> list[str]:
    """Return the words of a column's name in small letters."""
    return [word.lower() for word in re.split(r"_|(?<=[a-z])(?=[A-Z])", name) if word]


def of(name: str, kind: str, values: Sequence[Any]) -> tuple[str, tuple[str, ...]]:
    """Return the type of a column, and the forms that read all its values as times; one form is certain, several are
    not.

    Without a form it stays what it was.
    """
    there = [_written(value) for value in values if value is not None]
    if kind == "string" and there and all(isinstance(value, str) for value in values if value is not None):
        found = tuple(form for form in PATTERNS if all(map(_reader(form), there))) if LOOKS_LIKE.match(there[0]) else ()
        if found:
            return ("timestamp" if time_formats.has_clock(found[0]) else "date"), found
    says_time = any(word in (*HAPPENED, *HANDLED) for word in words(name))
    if says_time and kind in ("long", "string") and there:
        found = tuple(form for form in time_formats.EPOCHS if all(_is_count(value, form) for value in there))
        return ("timestamp" if found else kind), found
    return kind, ()


def read(value: Any, form: str) -> datetime | None:
    """Return the time of a value by a form; None if it has none."""
    try:
        found = conversions.formatted("timestamp", form)(_written(value), [])
    except Unfit:
        return None
    assert isinstance(found, datetime)
    return found


def _written(value: Any) -> str:
    return Cell(value) if isinstance(value, str) else Number(value)


def _is_count(value: str, form: str) -> bool:
    return (
        bool(conversions.WHOLE.fullmatch(value))
        and (found := read(Number(value), form)) is not None
        and FIRST <= found < LAST
    )
