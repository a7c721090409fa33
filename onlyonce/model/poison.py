"""A record at which receive fails at each attempt: where it is, when it is looked for, and what is said of it. Pure.

Who calls it: `onlyonce.receive.poison`.
"""

from __future__ import annotations

import re
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
    """What tells one cause from another: the error's kind and its first lines, without the numbers of tasks, lines and
    attempts."""
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
