"""How much of what waits in `events` the next batch of an output takes. Pure.

Who calls it: `onlyonce.outputs.events.backlog`, `onlyonce.outputs.events.first_reading`. No errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

Size = tuple[int, int]
"""The number of data files of a commit, and their bytes."""


def first_files(waiting: Iterable[Size], most_bytes: int, most_commits: int) -> int | None:
    """The number of files of as many whole commits as fit, of those that wait in their order; None where all of them
    fit.

    The first commit is always taken, however large: the rows of a batch of receive are in one batch of an output.
    Commits without files are none of receive's. Reads no further than it must.
    """
    files = size = commits = 0
    for more, bytes_ in waiting:
        if not more:
            continue
        if commits and (size + bytes_ > most_bytes or commits == most_commits):
            return files
        files, size, commits = files + more, size + bytes_, commits + 1
    return None


def records_of_part(waiting: int, record_bytes: float, most_bytes: int, steps: int) -> int | None:
    """How many of the records that wait a part of a first reading has at most; None where it has all of them.

    steps   how many parts there can be, this one included. Where they are too few for parts of `most_bytes`, parts are
            larger, and alike.
    """
    if steps <= 1 or waiting * record_bytes <= most_bytes:
        return None
    return max(1, int(most_bytes / record_bytes), ceil(waiting / steps))
