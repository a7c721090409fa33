"""The one of many that fails by itself, found by halves. Pure.

Who calls it: `onlyonce.receive.batch_files`, for a record at which receive fails; `onlyonce.outputs.culprit`, for
one at which a user's function fails. Not promised: that one is found where others fail only together; then the halves
may lead away from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


def fails_alone(
    count: int, fails: Callable[[int, int], bool], goes_on: Callable[[], bool] = lambda: True
) -> int | None:
    """The first of `count` that fails by itself. None where none does, or once `goes_on` says no.

    `fails(first, stop)` tries [first, stop). In all it is given `count` to try at most, and the one that is found once
    more.
    """
    first, stop = 0, count
    while stop - first > 1:
        if not goes_on():
            return None
        middle = (first + stop) // 2
        # The other half is not tried: what is left in the end is, by itself.
        first, stop = (first, middle) if fails(first, middle) else (middle, stop)
    return first if count and goes_on() and fails(first, stop) else None


# A record at which receive fails at each attempt: where it is, when it is looked for, and what is said of it. Pure.
#
# Who calls it: `onlyonce.receive.batch_files`.


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
    """What tells one cause from another: the error's kind and its first lines, without the numbers of tasks, lines and
    attempts."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return _NUMBERS.sub("#", f"{type(error).__name__}: {' | '.join(lines[:3])}")[:500]


def told_of_record(error: BaseException) -> str:
    """The cause in a line: of an error that came from a Python worker, what its traceback ends with."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)] if any(line == _TRACEBACK for line in lines) else []
    return (raised or lines or [type(error).__name__])[-1 if raised else 0][:500]


def is_search_due(times: int) -> bool:
    """Whether a batch that has failed so many times of one cause is to be looked through."""
    return times > 0 and times % ATTEMPTS == 0
