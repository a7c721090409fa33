"""How much of what waits in `events` the next batch of an output takes. Pure.

Who calls it: `onlyonce.outputs.backlog`. No errors.
"""

from __future__ import annotations

from collections.abc import Iterable

Size = tuple[int, int]
"""The number of data files of a commit, and their bytes."""


def first_files(waiting: Iterable[Size], most_bytes: int, most_commits: int) -> int | None:
    """The number of files of as many whole commits as fit, of those that wait in their order; None where all of them fit.

    The first commit is always taken, however large: the rows of a batch of receive are in one batch of an output. Commits without
    files are none of receive's. Reads no further than it must.
    """
    files = size = commits = 0
    for more, bytes_ in waiting:
        if not more:
            continue
        if commits and (size + bytes_ > most_bytes or commits == most_commits):
            return files
        files, size, commits = files + more, size + bytes_, commits + 1
    return None
