"""Garbage collection of the id catalog. Pure. It decides three things:

1. `floor`: which ids are removed.
2. `to_merge`: which chunks of the remaining ids are merged into one.
3. `wanted_ranges`: which closed buckets get a shared Bloom filter.

The catalog stores ids in *chunks*: each partition of a receive batch adds one. A chunk is in the *bucket* of its
batch's arrival. Buckets are ten minutes long (`BUCKET`).

*The floor* is the bucket below which ids may be removed. It is older than the newest bucket with a committed batch by
the dedup horizon. It is still older if a batch that has begun needs older ids, or a message that may come again. It
never moves back, unless a person corrects arrivals that were ahead (`commitlog.sources.Arrivals.correct`).

The horizon is measured in *lived* time, not by a clock: a gap between two neighbouring buckets with committed batches
counts as at most `PAUSE` (an hour), however long it took. So:

- After an outage that is longer than the horizon, the ids from before it are still in the catalog, for the whole
  backlog.
- If a clock leaps by a year, at most an hour's worth of ids is removed.
- If a source sends once a day, the ids of (horizon / PAUSE) deliveries are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AnySet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate, groupby, pairwise

BUCKET = timedelta(minutes=10)
"""Ingestion time is cut into buckets of this length."""
PAUSE = 6
"""The most buckets (an hour) that a gap between two buckets with committed batches counts towards the horizon."""

FULL = 1_000_000
"""The most ids of a merged chunk: 16 MB, and a filter of 2.4 MB. A chunk that is more than half full is not merged."""
CROWD = 8
"""How many small chunks of one level a merge needs in a growing bucket. In a closed bucket two of any level suffice."""
LARGE, MANY = FULL // CROWD, 4 * CROWD
"""A chunk of more than LARGE ids is large, all others are small. Large chunks are merged only if there are MANY of them
in a growing bucket, or CROWD in a closed one. For rewriting an id costs 400 ns of processor time, and one filter less
saves 4 ns for each id that is looked up later. A closed bucket needs fewer, because it is read for a day."""
BETWEEN_BATCHES = FULL // 2
"""After this many merged ids, which take about a second, receive's driver stops merging until its next batch."""


@dataclass(frozen=True)
class NearHorizon:
    """How many of a pipeline's duplicates were caught near the edge of its dedup horizon, and when the last one was."""

    pipeline: str
    near_the_edge: int
    duplicate: int
    last: datetime | None


@dataclass(frozen=True)
class Known:
    """The log's state of one instance, in numbers of buckets.

    floor            the stored floor
    committed        the buckets of committed receive batches; those below the floor may be left out
    uncommitted      the buckets of begun receive batches
    begun_with       the floors that begun receive batches were given: their look-ups still read these buckets
    unacknowledged   the buckets of pulled messages that Pub/Sub may deliver again
    newest           the bucket of the last arrival. Later buckets come from a wrong clock, and are ignored until the
                     last arrival has passed them. None: no bucket is ignored
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
    """Return the new floor: buckets below it may be removed. It is never below the stored floor.

    `horizon`: the dedup horizon in buckets.
    """
    arrived = {bucket for bucket in known.committed if known.newest is None or bucket <= known.newest}
    lived = _behind(sorted(arrived, reverse=True), horizon)
    bounds = [*known.uncommitted, *known.begun_with, *known.unacknowledged]
    wanted = known.floor if lived is None else min([lived, *bounds])
    return max(known.floor, wanted)


def _behind(committed: list[int], horizon: int) -> int | None:
    """Return the bucket that is the horizon older than the newest bucket, in lived time; None without a bucket.

    `committed`: the newest bucket first.
    """
    if not committed:
        return None
    age = 0
    for newer, older in pairwise(committed):
        step = min(newer - older, PAUSE)
        if age + step > horizon:
            return newer - (horizon - age)
        age += step
    return committed[-1] - (horizon - age)


# Which chunks are merged.
#
# A look-up probes the filter of each chunk, so many small chunks become a few large ones, by levels of size, as in a
# log-structured merge tree (O'Neil et al., 1996; the size-tiered compaction of Bigtable and Cassandra). A bucket is
# *growing* while batches still add chunks to it, and *closed* afterwards.


@dataclass(frozen=True, order=True)
class Part:
    """A chunk of a committed batch.

    Chunks are merged only with chunks of the same incarnation, number of partitions and partition: a look-up finds a
    chunk by these.
    """

    incarnation: str
    partitions: int
    partition: int
    batch_id: int
    ids: int


def level(ids: int) -> int:
    """Return the level of a chunk by its size: each level begins at the next power of CROWD."""
    return (max(ids, 1).bit_length() - 1) // (CROWD.bit_length() - 1)


def to_merge(parts: Iterable[Part], *, closed: bool) -> list[Part]:
    """Return the parts of one bucket that are merged next, in the order of their batches; an empty list if none are.

    A group of parts (`_groups`) is merged if enough of its parts fit into one chunk. It is also merged if not all of
    them fit: then a full chunk is made.

    All parts are chunks of committed batches, and the merged chunk takes the batch number of the last one. So:

    - Each batch that can still look up ids comes after all of them, and sees either the parts or the merged chunk.
    - No merged chunk has ids of a batch that can still be replayed. The replay would take its own records for
      duplicates.

    In a growing bucket CROWD parts of one level make a chunk of a higher level. So a partition has fewer than CROWD
    small chunks of each level and fewer than MANY large ones, after any number of batches. An id is rewritten once for
    each level.
    """
    mergeable = sorted(part for part in parts if part.ids <= FULL // 2)
    for _, layout in groupby(mergeable, lambda part: (part.incarnation, part.partitions, part.partition)):
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
    """Return the first parts that fit into one chunk together.

    If there are several parts, these are at least two, since each is at most half full.
    """
    sizes = accumulate(part.ids for part in parts)
    return [part for part, size in zip(parts, sizes, strict=True) if size <= FULL]


# Which closed buckets share one Bloom filter, so that a look-up reads few filters.
#
# A *block* is a range of 8, 64, 512, … buckets that begins at a multiple of its length. The lengths are levels, as in a
# log-structured merge tree: the filter of a block of 64 replaces the filters of its eight blocks of 8. So a look-up
# reads the filters of at most seven blocks of each length at either end of the horizon. An id is put into a filter once
# for each length.
#
# A block with more than `FULL_FILTER` ids gets no filter, since a filter is built in memory and kept by a worker. For
# such a block a look-up reads the filters of its shorter blocks or of its chunks.


Range = tuple[int, int]
"""The first and the last bucket of a filter."""
Chunks = dict[int, int]
"""The number of ids of each chunk, by the hash of its ids."""

STEP = 8
LEVELS = 6
"""The number of lengths. The longest block has 8 to the power of 6 buckets, which are five years."""
FULL_FILTER = 4_000_000
"""The most ids of one filter: 19 MB, and about 400 MB while it is made."""
AT_ONCE = 50_000_000
"""After this many ids a garbage collection makes no further filter until the next time: about half a minute of
work."""


def wanted_ranges(
    chunks: Mapping[int, Chunks], known: Mapping[Range, AnySet[int]], floor: int, newest: int
) -> list[Range]:
    """Return the blocks of one partition that need a filter, the longest first.

    chunks   the chunks of the partition, by bucket
    known    the existing filters: the range of each, and the hashes of the chunks that it includes
    newest   the newest bucket, which is still growing

    A block gets a filter if all of this holds:

    - It is closed: all its buckets are below `newest`.
    - All its buckets are at or above the `floor`. If the floor has passed its first bucket, an existing filter is not
      made again, because it still answers for the remaining chunks.
    - It has several chunks, and at most FULL_FILTER ids.
    - No known filter, and no filter of a longer block in this result, includes all its chunks.
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
