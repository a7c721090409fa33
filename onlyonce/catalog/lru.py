"""A cache with a budget in bytes. It removes first what was not used for the longest time. For one thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class Cache:
    """Values by name, as many as the budget holds.

    What is spare goes before all else: values that are used in each turn must not make room for a look through many
    others. The last one put that is not spare stays, whatever its size.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._spare: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, name: Hashable) -> Any:
        """The value, now the most recently used; None when it is not here."""
        for shelf in (self._held, self._spare):
            if name in shelf:
                shelf.move_to_end(name)
                return shelf[name][0]
        return None

    def put(self, name: Hashable, value: Any, size: int, *, spare: bool = False) -> None:
        """Keep a value of so many bytes, and let others go until the budget is kept."""
        for shelf in (self._held, self._spare):
            self._bytes -= shelf.pop(name, (None, 0))[1]
        (self._spare if spare else self._held)[name] = (value, size)
        self._bytes += size
        while self._bytes > self._budget and (self._spare or len(self._held) > 1):
            self._bytes -= (self._spare or self._held).popitem(last=False)[1][1]

    def clear(self) -> None:
        """Let all go."""
        self._held.clear()
        self._spare.clear()
        self._bytes = 0
