"""Which commits to `events` may be compacted, and which of their files go together. Pure.

Who calls it: `onlyonce.operate.compact.compaction`. No errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

TARGET_BYTES = 1 << 26
"""How large a file becomes, as it lies on the disk. Its rows are in memory while they are sorted: some ten times as
much."""
SMALL_BYTES = TARGET_BYTES // 2
"""A file of so much is left as it is."""
FEW = 2
"""Fewer files than this are left as they are."""
WORTH = 4
"""A file that has more than so many times the bytes of all smaller ones beside it is left for a later time: so a row is
written again each time that the files have grown by a quarter, and not every hour."""


@dataclass(frozen=True)
class Reader:
    """A life of an output that may go on.

    last            its last committed batch; None before the first
    begun_after     the version of `events` after which that batch began to read; -1 for the beginning
    read_upto       the version that it has read
    starts_from     the version from which a new life would read; 0 for all that there is
    first_reading   the version of the table with which it has begun to read in parts, where its last batch is such a
                    part; else None
    """

    query: str
    last: int | None
    begun_after: int
    read_upto: int
    starts_from: int
    first_reading: int | None = None


def whole_from(ended: int, readers: Sequence[Reader], compacted: int = -1) -> tuple[int, str | None]:
    """The version of `events` up to which commits may be compacted (-1: none), and the query that holds the next ones,
    if one does.

    `compacted`: up to where they are already. A life that would begin there begins with the table as it is, and holds
    none of them.

    Not those that receive has not ended. Not those that a query may read again, commit by commit: Spark repeats the
    last batch when the checkpoint has not its end. Not those from which a new life would read on. What reads from the
    beginning asks for no commit: it takes the table as it is.
    """
    found, by = ended, None
    for reader in readers:
        limit = until(replace(reader, starts_from=0) if reader.starts_from - 1 <= compacted else reader)
        if limit is not None and limit < found:
            found, by = limit, reader.query
    return max(found, -1), by


def until(reader: Reader) -> int | None:
    """The last version whose commit a life, or a new one after it, does not read one by one again; None where it reads
    none."""
    holds = [reader.starts_from - 2] if reader.starts_from > 0 else []  # the stream begins at the version before
    if reader.first_reading is not None:
        holds.append(reader.first_reading)  # a part takes no commit by itself
    elif reader.last is not None:
        holds.append(reader.begun_after if reader.last else reader.read_upto)  # the first batch is repeated as a whole
    return min(holds, default=None)


class Sized(Protocol):
    """A file that may go together with others."""

    @property
    def bytes(self) -> int: ...


F = TypeVar("F", bound=Sized)


def together(files: Sequence[F]) -> list[list[F]]:
    """The small files that make one, in the order in which they are given: each group as large as a file may be."""
    groups: list[list[F]] = [[]]
    size = 0
    for file in files:
        if file.bytes >= SMALL_BYTES:
            continue
        if size + file.bytes > TARGET_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.bytes
    return [worth for group in groups if len(worth := _without_giants(group)) >= FEW]


def _without_giants(group: list[F]) -> list[F]:
    left = sum(file.bytes for file in group)
    giants = set()
    for at in sorted(range(len(group)), key=lambda at: group[at].bytes, reverse=True):
        left -= group[at].bytes
        if group[at].bytes <= WORTH * left:
            break
        giants.add(at)
    return [file for at, file in enumerate(group) if at not in giants]
