"""A cache with a budget in bytes: what was not used for the longest time goes first. For one thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class Cache:
    """Values by name, as many as the budget holds. The last one put stays, whatever its size."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, name: Hashable) -> Any:
        """The value, now the most recently used; None when it is not here."""
        if name not in self._held:
            return None
        self._held.move_to_end(name)
        return self._held[name][0]

    def put(self, name: Hashable, value: Any, size: int) -> None:
        """Keep a value of so many bytes, and let others go until the budget is kept."""
        self._bytes += size - self._held.pop(name, (None, 0))[1]
        self._held[name] = (value, size)
        while self._bytes > self._budget and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Let all go."""
        self._held.clear()
        self._bytes = 0
