"""Garbage collection of the id catalog: which ids are removed, which chunks are merged, which filters made. Pure.

Ids are kept for the dedup horizon before the oldest record that is not committed. The bound never moves back, and it
stands still while the platform is down. So the horizon is measured in *lived* time. Between two neighbouring buckets
with committed batches it counts at most `PAUSE`, however long an outage, a silent source or a clock step took. After
an outage of horizon + 1 hour the ids from before it are still in the catalog, also for the tenth batch of the backlog.
A clock that leaps by a year removes at most an hour's worth of ids. If a source sends once a day, the ids of
(horizon / PAUSE) deliveries are kept.

The remaining ids are merged (`to_merge`). A look-up probes each chunk, so many small chunks become a few large ones, by
levels of size, as in a log-structured merge tree (O'Neil et al., 1996; the size-tiered compaction of Bigtable and
Cassandra).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AnySet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate, groupby, pairwise

BUCKET = timedelta(minutes=10)
"""System time is cut into buckets of this length."""
PAUSE = 6
"""The most buckets (an hour) that a gap between two buckets with committed batches counts towards the horizon."""

FULL = 1_000_000
"""The most ids of a merged chunk: 16 MB, and a filter of 2.4 MB. A chunk that is more than half full is not merged."""
CROWD = 8
"""How many chunks of one level are merged in a growing bucket; in a closed one, two small ones of any size."""
LARGE, MANY = FULL // CROWD, 4 * CROWD
"""A chunk of more than LARGE ids is large. Rewriting an id costs 400 ns of processor time; one filter less saves 4 ns
for each later id. So large chunks are merged if there are MANY of them, and in a closed bucket if there are CROWD,
since a closed bucket is queried for a day."""
BETWEEN_BATCHES = FULL // 2
"""After this many ids receive's driver stops merging until its next batch: they take about a second."""


@dataclass(frozen=True)
class NearHorizon:
    """How many of a pipeline's duplicates were caught near the edge of its dedup horizon, and when the last one was."""

    pipeline: str
    near_the_edge: int
    duplicate: int
    last: datetime | None


@dataclass(frozen=True)
class Known:
    """What the log has of one instance, in buckets.

    floor        the stored floor
    committed    the buckets of committed receive batches; those below the floor may be left out
    uncommitted  the buckets of begun receive batches
    begun_with   the floors that begun receive batches were given
    unacknowledged   the buckets in which messages were landed that may be delivered again
    newest       the bucket of the last arrival. Later buckets come from a wrong clock, and count once time has come
                 so far. None: the last bucket
    """

    floor: int = 0
    committed: Iterable[int] = field(default_factory=tuple)
    uncommitted: Iterable[int] = field(default_factory=tuple)
    begun_with: Iterable[int] = field(default_factory=tuple)
    unacknowledged: Iterable[int] = field(default_factory=tuple)
    newest: int | None = None


def horizon_buckets(horizon: timedelta) -> int:
    """Return the horizon in whole buckets, rounded up."""
    return -(-horizon // BUCKET)


def edge_buckets(horizon: timedelta) -> int:
    """Return the oldest tenth of the horizon in whole buckets: a duplicate there was nearly too late to be caught."""
    return -(-horizon_buckets(horizon) // 10)


def floor(known: Known, horizon: int) -> int:
    """Return the new floor: buckets below it may be removed. It is never below the stored floor."""
    arrived = {bucket for bucket in known.committed if known.newest is None or bucket <= known.newest}
    lived = _behind(sorted(arrived, reverse=True), horizon)
    bounds = [*known.uncommitted, *known.begun_with, *known.unacknowledged]
    wanted = known.floor if lived is None else min([lived, *bounds])
    return max(known.floor, wanted)


def _behind(committed: list[int], horizon: int) -> int | None:
    """Return the bucket whose age, in lived time from the newest bucket backwards, is the horizon."""
    if not committed:
        return None
    age = 0
    for newer, older in pairwise(committed):
        step = min(newer - older, PAUSE)
        if age + step > horizon:
            return newer - (horizon - age)
        age += step
    return committed[-1] - (horizon - age)


@dataclass(frozen=True, order=True)
class Part:
    """A chunk of a committed batch. Parts of one lineage, layout and partition hold ids of one remainder."""

    lineage: str
    partitions: int
    partition: int
    batch_id: int
    ids: int


def level(ids: int) -> int:
    """Return the level of a chunk by its size: each level begins at the next power of CROWD."""
    return (max(ids, 1).bit_length() - 1) // (CROWD.bit_length() - 1)


def to_merge(parts: Iterable[Part], *, closed: bool) -> list[Part]:
    """Return the parts of one bucket that become one chunk next, in the order of their batches; empty if none do.

    The chunk takes the batch number of its last part, and all parts are of committed batches. So each batch that can
    still look up comes after all of them, and sees either the parts or the chunk. And no chunk holds ids of a batch
    that can still be replayed: the replay would take its own records for duplicates.

    In a growing bucket CROWD parts of one level make a chunk of a higher level. So a partition has fewer than CROWD
    small chunks of each level and fewer than MANY large ones, however many batches there were. An id is written once
    for each level.
    """
    small = sorted(part for part in parts if part.ids <= FULL // 2)
    for _, layout in groupby(small, lambda part: (part.lineage, part.partitions, part.partition)):
        for some, crowd in _groups(list(layout), closed=closed):
            fitting = _fitting(some)
            if len(fitting) >= crowd or len(fitting) < len(some):
                return fitting
    return []


def _groups(parts: list[Part], *, closed: bool) -> Iterator[tuple[list[Part], int]]:
    """Yield groups of parts that may be merged with each other, each with the number of parts that a merge needs."""
    large = [part for part in parts if part.ids > LARGE]
    others = [part for part in parts if part.ids <= LARGE]
    if len(large) >= (CROWD if closed else MANY):
        yield (parts if closed else large), 2
    if closed:
        yield others, 2
    else:
        by_level = sorted(others, key=lambda part: level(part.ids))  # a stable sort: the order of the batches stays
        yield from ((list(some), CROWD) for _, some in groupby(by_level, lambda part: level(part.ids)))


def _fitting(parts: list[Part]) -> list[Part]:
    """Return the first parts that fit into one chunk: at least two of several, since each is at most half full."""
    sizes = accumulate(part.ids for part in parts)
    return [part for part, size in zip(parts, sizes, strict=True) if size <= FULL]


# Which closed buckets share one Bloom filter, so that a look-up reads few filters.
#
# The ranges are blocks of 8, 64, 512, … buckets that begin at a multiple of their length, as the levels of a
# log-structured merge tree: a block of 64 replaces its eight blocks of 8. So a look-up over n live buckets reads at
# most seven blocks of each length at either end of the horizon. An id is put into a filter once for each length. A
# block of more than `FULL_FILTER` ids is not made: a filter must be built in memory and kept by a worker. There a
# look-up reads the filters of the shorter blocks or of the chunks.


Range = tuple[int, int]
"""The first and the last bucket."""
Chunks = dict[int, int]
"""The number of ids of each chunk, by the hash of its ids."""

STEP = 8
LEVELS = 6
"""The longest block has 8 to the power of 6 buckets, five years."""
FULL_FILTER = 4_000_000
"""The most ids of one filter: 19 MB, and some 400 MB while it is made."""
AT_ONCE = 50_000_000
"""After this many ids a garbage collection makes no further filter until the next time: about half a minute of
work."""


def wanted_ranges(
    chunks: Mapping[int, Chunks], known: Mapping[Range, AnySet[int]], floor: int, newest: int
) -> list[Range]:
    """Return the blocks that need a filter, the longest first.

    A block is closed (below `newest`), whole above the `floor`, and has several chunks. It is left out if a `known`
    filter, given with its chunks, covers it. A block that the floor has reached is not made again: its filter still
    answers for the remaining chunks.

    chunks   the chunks of one partition, by bucket
    """
    there: dict[Range, AnySet[int]] = dict(known)
    found = []
    for level in range(LEVELS, 0, -1):
        for block, inside in _blocks(chunks, STEP**level):
            closed = floor <= block[0] and block[1] < newest
            fits = len(inside) > 1 and sum(inside.values()) <= FULL_FILTER
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
