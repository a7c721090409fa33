"""Lengths of time: check those of a declaration, which are timedelta, and write them in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import timedelta
from functools import cache
from typing import Any

from onlyonce.core.errors import Refused

_TEXT = re.compile(r"\s*(\d+)\s*(s|m|h|d|w)(?:ec|econd|in|inute|our|ay|eek)?s?\s*", re.IGNORECASE)
_NOTHING_GIVEN = timedelta(0)
_MOST_SECONDS = 10 * 365 * 86_400
"""A greater number is no length of time in seconds."""
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_WORDS = ("day", "hour", "minute", "second", "millisecond", "microsecond")
_STORED = re.compile(r"(?:(-?\d+) days?, )?(\d+):(\d\d):(\d\d)(?:\.(\d{6}))?")
"""A timedelta as Python's `str` writes it, which is its form in a stored identity."""


def in_words(length: timedelta) -> str:
    """Return a length of time in words: `1 hour 30 minutes`."""
    parts = [f"{count} {word}{'s' if count > 1 else ''}" for word, count in _counts(length)]
    return ("-" if length < _NOTHING_GIVEN else "") + (" ".join(parts) or "0 seconds")


def roughly(seconds: float) -> str:
    """Return seconds by their two longest units: `2 days 3 hours`. Less than a minute has a tenth: `0.6 seconds`."""
    if abs(seconds) < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " seconds"
    parts = [f"{count} {word}{'s' if count > 1 else ''}" for word, count in _counts(timedelta(seconds=round(seconds)))]
    return ("-" if seconds < 0 else "") + " ".join(parts[:2])


def in_source(length: timedelta) -> str:
    """Return a length of time as a person writes it in Python: `timedelta(hours=1, minutes=30)`."""
    parts = [f"{word}s={count}" for word, count in _counts(length)]
    return f"{'-' if length < _NOTHING_GIVEN else ''}timedelta({', '.join(parts) or '0'})"


def _counts(length: timedelta) -> Iterator[tuple[str, int]]:
    """Yield each unit that a length of time has, with how many of it, the longest unit first."""
    left = abs(length)
    for word in _WORDS:
        count, left = divmod(left, timedelta(**{f"{word}s": 1}))
        if count:
            yield word, count


def stored_in_words(text: str) -> str:
    """Return a stored length of time in words, and any other string as it is."""
    if not (found := _STORED.fullmatch(text)):
        return text
    days, hours, minutes, seconds, micros = (int(part or 0) for part in found.groups())
    return in_words(timedelta(days, seconds, micros, minutes=minutes, hours=hours))


def refuse_other_types(made: type, given: Mapping[str, Any]) -> None:
    """Raise Refused for an option that a dataclass declares as a timedelta and that is another value."""
    for name, may_be_none in _lengths(made).items():
        value = given.get(name, _NOTHING_GIVEN)
        if not (isinstance(value, timedelta) or (value is None and may_be_none)):
            found = meant(value)
            raise Refused(
                f"{made.__name__}({name}={value!r}): must be a timedelta",
                hint=(f"did you mean {name}={found}?" if found else f"for example {name}=timedelta(minutes=10)")
                + " It needs: from datetime import timedelta",
            )


def meant(value: object) -> str | None:
    """Return the Python of the length of time that a value is or probably stands for (`1 hour`, `10m`), or None."""
    if isinstance(value, timedelta):
        return in_source(value)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return in_source(timedelta(seconds=value)) if value < _MOST_SECONDS else None
    found = _TEXT.fullmatch(str(value))
    return f"timedelta({_UNITS[found[2].lower()]}={int(found[1])})" if found else None


def is_length(made: type, option: str) -> bool:
    """Return whether an option of a dataclass is a length of time."""
    return option in _lengths(made)


@cache
def _lengths(made: type) -> dict[str, bool]:
    """Return the options that are lengths of time, and whether each may be None."""
    found: Any = made
    return {field.name: "None" in str(field.type) for field in fields(found) if str(field.type).startswith("timedelta")}
