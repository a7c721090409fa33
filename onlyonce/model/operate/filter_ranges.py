"""Decides over which closed buckets one Bloom filter is made, so that a look-up asks few filters.

Pure, and without a clock.

The ranges are blocks of 8, 64, 512, … buckets that begin at a multiple of their length, as the levels of a
log-structured merge tree: one of 64 takes the place of its eight of 8. So of n live buckets at most seven blocks of
each length are asked, at either end of the horizon, and an id is put into a filter once for each length. A block of
more than `FULL` ids stays as shorter ones: from there on a look-up asks one filter for each `FULL / STEP` to `FULL`
ids, or the chunks' own, since a filter must be made in memory and kept by a worker.

Who calls it: `catalog.range_filters`. Errors: none. Not promised: that a block is made as soon as it may be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AnySet

Range = tuple[int, int]
"""The first and the last bucket."""
Chunks = dict[int, int]
"""The number of ids of some chunks, by the hash of their ids."""

STEP = 8
LEVELS = 6
"""The longest block is of 8 to the power of 6 buckets, five years."""
FULL = 4_000_000
"""The most ids of one filter: 19 MB, and some 400 MB while it is made."""
AT_ONCE = 50_000_000
"""After so many ids a collection makes no further filter until the next time: what that takes is about half a
minute."""


def wanted(chunks: Mapping[int, Chunks], known: Mapping[Range, AnySet[int]], floor: int, newest: int) -> list[Range]:
    """The blocks to make a filter of, the longest first: closed (below `newest`), whole above the `floor`, of several
    chunks, and not covered by one that is `known`, with the chunks that are in it.

    `chunks` are those of one partition, by bucket.

    A block that the floor has reached is not made again: its filter still answers for the chunks that are left.
    """
    there: dict[Range, AnySet[int]] = dict(known)
    found = []
    for level in range(LEVELS, 0, -1):
        for block, inside in _blocks(chunks, STEP**level):
            closed = floor <= block[0] and block[1] < newest
            fits = len(inside) > 1 and sum(inside.values()) <= FULL
            if closed and fits and not _covered(block, inside, there):
                there[block] = inside.keys()
                found.append(block)
    return found


def _blocks(chunks: Mapping[int, Chunks], length: int) -> Iterator[tuple[Range, Chunks]]:
    blocks: dict[int, Chunks] = defaultdict(dict)
    for bucket in sorted(chunks):
        blocks[bucket // length].update(chunks[bucket])
    for number, inside in blocks.items():
        yield (number * length, (number + 1) * length - 1), inside


def _covered(block: Range, inside: Chunks, there: Mapping[Range, AnySet[int]]) -> bool:
    return any(
        first <= block[0] and block[1] <= last and inside.keys() <= hashes for (first, last), hashes in there.items()
    )
