"""A record at which every attempt of receive fails: decides when such a record is searched for, and how. Pure.

Who calls it: `onlyonce.receive.poison`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

ATTEMPTS = 3
"""So many attempts fail of the same cause before a record is suspected."""
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Invalid|Interrupt|Failure|Warning)\b: ")


class Place(NamedTuple):
    """Where a record is: the key of its file or partition, and its position there."""

    file: int
    position: int


def cause_of(error: BaseException) -> str:
    """What tells one cause from another: the error's kind and its first lines, without the numbers of tasks, lines and attempts."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return _NUMBERS.sub("#", f"{type(error).__name__}: {' | '.join(lines[:3])}")[:500]


def told(error: BaseException) -> str:
    """The cause in a line: of an error that came from a Python worker, what its traceback ends with."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)] if any(line == _TRACEBACK for line in lines) else []
    return (raised or lines or [type(error).__name__])[-1 if raised else 0][:500]


def is_due(times: int) -> bool:
    """Whether a batch that has failed so many times of one cause is to be looked through."""
    return times > 0 and times % ATTEMPTS == 0


def alone(count: int, fails: Callable[[int, int], bool]) -> int | None:
    """The first of so many records that fails by itself, found by halves. None where no record does: then the cause is none of theirs.

    `fails(first, stop)` tries the records [first, stop).
    """
    first, stop = 0, count
    while stop - first > 1:
        middle = (first + stop) // 2
        if fails(first, middle):
            stop = middle
        elif fails(middle, stop):
            first = middle
        else:
            return None
    return first if count and fails(first, stop) else None
