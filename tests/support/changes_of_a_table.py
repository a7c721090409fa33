"""Random changes of the rows of a database's table, as a connector delivers them: a snapshot first, again, out of
order.

And what comes of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SNAPSHOT = 100
"""The position at which the snapshot was read."""


@dataclass(frozen=True, order=True)
class Change:
    """A change of the row of a key.

    `op` is r (read by the snapshot), c, u or d; a deleted row keeps the value that it had.
    """

    position: int
    key: str
    op: str
    value: int

    @property
    def deleted(self) -> bool:
        """Whether the key has no row from here on."""
        return self.op == "d"


def made(chance: random.Random, keys: int, changes: int) -> list[Change]:
    """The snapshot of some keys, and what happened after it, in the order of the source."""
    names = [f"k{number}" for number in range(keys)]
    there = {name: chance.randrange(1000) for name in names if chance.random() < 0.6}
    found = [Change(SNAPSHOT, name, "r", value) for name, value in there.items()]
    for number in range(changes):
        name, value, position = chance.choice(names), chance.randrange(1000), SNAPSHOT + 7 * (number + 1)
        if name not in there:
            found.append(Change(position, name, "c", value))
            there[name] = value
        elif chance.random() < 0.4:
            found.append(Change(position, name, "d", there.pop(name)))
        else:
            found.append(Change(position, name, "u", value))
            there[name] = value
    return found


def delivered(chance: random.Random, changes: list[Change], again: float = 0.2, apart: int = 12) -> list[Change]:
    """The same as they come in: some of them once more, each at most so many places from its own."""
    twice = [change for change in changes for _ in range(1 + (chance.random() < again))]
    placed = sorted(enumerate(twice), key=lambda one: one[0] + chance.uniform(0, apart))
    return [change for _, change in placed]


def cut(chance: random.Random, changes: list[Change], largest: int = 15) -> Iterator[list[Change]]:
    """The same in batches."""
    first = 0
    while first < len(changes):
        size = chance.randint(1, largest)
        yield changes[first : first + size]
        first += size


def newest(changes: Iterable[Change]) -> dict[str, Change]:
    """The last change of each key, by the order of the source."""
    return {change.key: change for change in sorted(changes)}


def table(changes: Iterable[Change]) -> set[tuple[str, int, int]]:
    """(key, position, value) of the rows that the source has after these changes."""
    return {(change.key, change.position, change.value) for change in newest(changes).values() if not change.deleted}


def history(changes: Iterable[Change]) -> set[tuple[str, int, int, int, int | None, bool]]:
    """(key, position, value, valid from, valid to, whether it is current) of each version, where a change's time is its
    position."""
    ordered = sorted({*changes}, key=lambda change: (change.key, change.position))
    found = set()
    for change, after in zip(ordered, [*ordered[1:], None], strict=True):
        ends = after.position if after is not None and after.key == change.key else None
        if not change.deleted:
            found.add((change.key, change.position, change.value, change.position, ends, ends is None))
    return found


TIED = (Change(3, "a", "u", 20), Change(3, "a", "d", 20))
"""A version and a delete of a key at one position, as two batches may bring them."""
TIED_HISTORY = {("a", 1, 10, 1, 3, False), ("a", 3, 20, 3, 3, False)}


def tied(first: Change) -> list[list[Change]]:
    """Two batches, of which the first has `first` of the two."""
    return [[Change(1, "a", "c", 10), first], [one for one in TIED if one != first]]
