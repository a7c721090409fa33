"""Packed record ids: how they are stored, searched and merged.

An id is two unsigned 64-bit halves of a hash. A chunk is its ids sorted by (high, low), 16 bytes each, big-endian.

Who calls it: `receive_unit` and `catalog_lookup` on the executors, the collector for chunks that it merges.
Errors: none. Not promised: that a chunk has an id only once; merging keeps every id that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Half = NDArray[np.uint64]
Ids = tuple[Half, Half]
"""The upper and the lower halves of some ids."""

BYTES = 16
"""What one packed id takes."""

Slices = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Ids of a chunk, by their numbers: from each start to before each end."""
FENCE = 64
"""Each so many-th upper half of a chunk tells exactly where an id would be: an eighth of a byte for each id."""
SPREAD = 4.0
"""Ids are uniform, so the number of one in its chunk is known up to a deviation of sqrt(count) / 2 at most. Four of
these to either side miss one id in 16,000, and a miss is seen."""


def member(chunk: Ids, wanted: Ids) -> NDArray[np.bool_]:
    """For each of the wanted ids whether the sorted chunk holds it; both halves are compared."""
    high, low = chunk
    found = np.zeros(len(wanted[0]), dtype=bool)
    at = np.searchsorted(high, wanted[0], side="left")
    # Ids with equal high halves lie side by side; usually the first round is the last.
    waiting = np.flatnonzero(at < len(high))
    while len(waiting):
        here = at[waiting]
        same_high = high[here] == wanted[0][waiting]
        hit = same_high & (low[here] == wanted[1][waiting])
        found[waiting[hit]] = True
        waiting = waiting[same_high & ~hit]
        at[waiting] += 1
        waiting = waiting[at[waiting] < len(high)]
    return found


def slices(count: int, high: Half) -> Slices:
    """Where in a chunk of `count` ids those with these upper halves should be, by their size."""
    near = (high.astype(np.float64) / 2.0**64 * count).astype(np.int64)
    around = int(SPREAD * np.sqrt(count) / 2) + 2
    return np.maximum(near - around, 0), np.minimum(near + around, count)


def fences(chunk: Ids) -> Half:
    """What `between` needs to know of a chunk."""
    return chunk[0][::FENCE].copy()


def between(known: Half, count: int, high: Half) -> Slices:
    """Where in a chunk of `count` ids those with these upper halves are if they are there, by its fences."""
    before, after = (np.searchsorted(known, high, side=side) for side in ("left", "right"))
    return np.maximum(before - 1, 0) * FENCE, np.minimum(after * FENCE + 1, count)


def joined(some: Slices) -> Slices:
    """The same ids in slices that lie apart, in order."""
    order = np.argsort(some[0])
    starts, ends = some[0][order], np.maximum.accumulate(some[1][order])
    apart = starts[1:] > ends[:-1]
    return starts[np.append(True, apart)], ends[np.append(apart, True)]


def in_slices(ids: Ids, where: Slices, count: int, wanted: Ids) -> NDArray[np.bool_] | None:
    """Which of the wanted ids a chunk of `count` holds, by the ids of some slices of it, joined; None when one of them
    may be outside of the slices."""
    starts, ends = where
    high, first = ids[0], np.append(0, np.cumsum(ends - starts))
    # The slice in which an id must be is the last one that begins below it.
    mine = np.maximum(np.searchsorted(high[first[:-1]], wanted[0], side="left") - 1, 0)
    after_start = (starts[mine] == 0) | (high[first[mine]] < wanted[0])
    before_end = (ends[mine] == count) | (wanted[0] < high[first[mine + 1] - 1])
    return member(ids, wanted) if (after_start & before_end).all() else None


def pack(ids: Ids) -> bytes:
    """Sorted and packed: 16 bytes an id, big-endian."""
    return _packed(ids, _order(ids[0]))


def unpack(packed: bytes) -> Ids:
    """The halves of packed ids."""
    pairs = np.frombuffer(packed, dtype=">u8").reshape(-1, 2).astype(np.uint64)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def first_of_each(ids: Ids, *order: NDArray[np.generic]) -> NDArray[np.bool_]:
    """True for one row of each id: the least by `order`. Twins inside a batch are decided by a total order,
    not by who came first: with other splits another one would."""
    first = np.ones(len(ids[0]), dtype=bool)
    by_high = _order(ids[0])
    high = ids[0][by_high]
    same_as_next = high[:-1] == high[1:]
    if not same_as_next.any():
        return first
    shared = np.zeros(len(high), dtype=bool)
    shared[:-1] |= same_as_next
    shared[1:] |= same_as_next
    rows = np.sort(by_high[shared])
    keys = [column[rows] for column in (*reversed(order), ids[1], ids[0])]
    rows = rows[np.lexsort(keys)]
    repeats = (ids[0][rows][1:] == ids[0][rows][:-1]) & (ids[1][rows][1:] == ids[1][rows][:-1])
    first[rows[1:][repeats]] = False
    return first


def merge(parts: Iterable[bytes]) -> bytes:
    """The packed ids of several chunks as those of one."""
    halves = [unpack(part) for part in parts]
    ids = (np.concatenate([high for high, _ in halves]), np.concatenate([low for _, low in halves]))
    # A stable sort finds what is in order already, and merges: a sixth of the time of a sort.
    return _packed(ids, np.argsort(ids[0], kind="stable"))


def _order(high: Half) -> NDArray[np.intp]:
    """The order of upper halves.

    Of 16 bits numpy's stable sort is one by their digits: two of these bring hashes into order but for a handful, and
    the last one puts these right. A third of the time of a sort at once."""
    order = np.argsort((high >> np.uint64(32)).astype(np.uint16), kind="stable")
    order = order[np.argsort((high[order] >> np.uint64(48)).astype(np.uint16), kind="stable")]
    return order[np.argsort(high[order], kind="stable")]


def _packed(ids: Ids, order: NDArray[np.intp]) -> bytes:
    # Equal upper halves are rare, and a sort by one key takes a fifth of the time of one by two.
    high = ids[0][order]
    if (high[1:] == high[:-1]).any():
        order = np.lexsort((ids[1], ids[0]))
        high = ids[0][order]
    packed = np.empty((len(order), 2), dtype=">u8")
    packed[:, 0], packed[:, 1] = high, ids[1][order]
    return packed.tobytes()
