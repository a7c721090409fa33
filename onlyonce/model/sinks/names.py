"""The names of tables and folders that are derived from the declared one: of a bounded run, of what was deleted, of
sums by window.

Pure.

A name that its database would cut has a hash of the whole name at its end, so that no two names become one. A derived
table is known by its note as the platform's: a team's own table of that name is never written to, and never dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from onlyonce.model import stored_names

NOTES = (stored_names.DELETED_NOTE, stored_names.BY_WINDOW_NOTE)
HASH_DIGITS = 12


def _bytes(name: str) -> int:
    return len(name.encode())


@dataclass(frozen=True)
class Names:
    """The names of one kind of database, which takes `most` units as `size` counts them."""

    most: int
    size: Callable[[str], int] = _bytes

    def table(self, declared: str, suffix: str = "") -> str:
        """Return the name of an output's table; `suffix` is what a bounded run adds (@1)."""
        return self._fitting(declared + suffix)

    def deleted(self, table: str) -> str:
        """Return the name of the table that keeps the keys of deleted rows."""
        return self._fitting(table + stored_names.DELETED_SUFFIX)

    def by_window(self, table: str) -> str:
        """Return the name of the table that keeps what each window has added."""
        return self._fitting(table + stored_names.BY_WINDOW_SUFFIX)

    def _fitting(self, name: str) -> str:
        if self.size(name) <= self.most:
            return name
        mark = f"_{hashlib.sha256(name.encode()).hexdigest()[:HASH_DIGITS]}"
        start = name
        while self.size(start + mark) > self.most:
            start = start[:-1]
        return start + mark


POSTGRES = Names(63)
MYSQL = Names(64, len)
FOLDER = Names(255)
"""A part of a path, in every file system that we know."""
