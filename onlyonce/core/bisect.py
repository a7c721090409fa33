"""Find the record at which a batch fails at each attempt, by bisection. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


def fails_alone(
    count: int, fails: Callable[[int, int], bool], goes_on: Callable[[], bool] = lambda: True
) -> int | None:
    """Bisect `count` items to find one that fails on its own. None if there is none, or once `goes_on` returns False.

    `fails(first, stop)` tries [first, stop). It gets `count` items in all at most, and the failing item again. If
    items fail only together, the search may miss an item that fails on its own.
    """
    first, stop = 0, count
    while stop - first > 1:
        if not goes_on():
            return None
        middle = (first + stop) // 2
        # The other half is not tried: the last remaining item is tried on its own.
        first, stop = (first, middle) if fails(first, middle) else (middle, stop)
    return first if count and goes_on() and fails(first, stop) else None


# The place of a record that makes a batch fail, and when receive searches for it.


ATTEMPTS = 3
"""After this many failures with the same cause a record is suspected."""
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Invalid|Interrupt|Failure|Warning)\b: ")


class Place(NamedTuple):
    """The place of a record: the key of its file or partition, and the position in it."""

    file: int
    position: int


def cause_of(error: BaseException) -> str:
    """Return what identifies a cause: the error's type and its first lines, with numbers masked.

    The numbers of tasks, lines and attempts differ at each attempt."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return _NUMBERS.sub("#", f"{type(error).__name__}: {' | '.join(lines[:3])}")[:500]


def told_of_record(error: BaseException) -> str:
    """Return the cause in one line; for an error from a Python worker the last line of its traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)] if any(line == _TRACEBACK for line in lines) else []
    return (raised or lines or [type(error).__name__])[-1 if raised else 0][:500]


def is_search_due(times: int) -> bool:
    """Return whether a batch that has failed `times` times with one cause must be searched now."""
    return times > 0 and times % ATTEMPTS == 0
