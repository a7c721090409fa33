"""Data that an output's target stores, for an erasure: the files and rows to search, and what can be removed.

It also says when data that can't be removed will be gone. Each kind of sink has an implementation in its folder, which
`targets.stored_of` chooses. No Spark is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onlyonce.core.erasure import Mentions
from onlyonce.core.locations import Location
from onlyonce.tables import stores


@dataclass(frozen=True)
class File:
    """A file or object: its name, and how to read it. `goes`: when an erasure's values in it will be deleted.

    `read` raises FileNotFoundError once the file is gone.
    """

    at: str
    read: Callable[[], bytes]
    goes: str


@dataclass(frozen=True)
class Rows:
    """A table, how many of its rows mention a condition, and when those rows are gone."""

    at: str
    count: int
    goes: str


Mentioned = Callable[[File], bool]


class Stored:
    """The target of one output. A kind of sink overrides what it has; by default nothing can be searched or removed."""

    def files(self) -> Iterator[File]:
        """Yield each file or object of the target that may have values of records."""
        yield from ()

    def root(self) -> str | None:
        """Return the folder or prefix of its files; None if it has none."""
        return None

    def rows(self, mentions: Mentions) -> Iterator[Rows]:
        """Yield each table with rows that mention the condition."""
        yield from ()

    def clean(self, mentions: Mentions, mentioned: Mentioned) -> None:
        """Remove what mentions the condition and no reader or later run needs. `mentioned` searches a file."""

    def stays(self) -> str | None:
        """Return which copies of rows the target may keep where no search reads them, and until when.

        Return None if the search reads all of the target.
        """
        return None


def file_at(at: Location, goes: str) -> File:
    """Return a file or object at a location."""
    return File(str(at), lambda: stores.of(at).read(at), goes)


def below(root: Location, goes: str) -> Iterator[File]:
    """Yield each file or object below a location."""
    for entry in [*stores.of(root).entries(root)]:
        yield file_at(entry.at, goes)
