"""The one of many that fails by itself, found by halves. Pure.

Who calls it: `onlyonce.receive.poison`, for a record at which receive fails; `onlyonce.outputs.function.culprit`, for
one at which a user's function fails. Not promised: that one is found where others fail only together; then the halves
may lead away from it.
"""

from __future__ import annotations

from collections.abc import Callable


def alone(count: int, fails: Callable[[int, int], bool], goes_on: Callable[[], bool] = lambda: True) -> int | None:
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
