"""Record ids, packed: how they are stored, searched and merged.

An id is two unsigned 64-bit halves of a hash. A chunk is its ids sorted by (high, low), 16 bytes each, big-endian.

Who calls it: `receive_unit` and `catalog_lookup` on the executors, the collector for chunks that it merges.
Errors: none. Not promised: that an id is in a chunk only once; merging keeps what it is given.
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

Slice = tuple[int, int]
"""Ids of a chunk, by their numbers: from the first to before the second."""
SPREAD = 4.0
"""Ids are uniform, so the number of one in its chunk is known up to a deviation of sqrt(count) / 2 at most. Four of these
to either side miss one id in 16,000, and a miss is seen."""


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


def slices(count: int, high: Half) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where in a chunk of `count` ids those with these upper halves should be, by their size: starts and ends."""
    near = (high.astype(np.float64) / 2.0**64 * count).astype(np.int64)
    around = int(SPREAD * np.sqrt(count) / 2) + 2
    return np.maximum(near - around, 0), np.minimum(near + around, count)


def in_slice(ids: Ids, where: Slice, count: int, wanted: tuple[np.uint64, np.uint64]) -> bool | None:
    """Whether the chunk holds an id, by one slice of it; None when it may be outside of the slice."""
    first, last = where
    after_first = first == 0 or (len(ids[0]) > 0 and ids[0][0] < wanted[0])
    before_last = last == count or (len(ids[0]) > 0 and wanted[0] < ids[0][-1])
    if not (after_first and before_last):
        return None
    return bool(member(ids, (np.array([wanted[0]]), np.array([wanted[1]])))[0])


def pack(ids: Ids) -> bytes:
    """Sorted and packed: 16 bytes an id, big-endian."""
    # Equal upper halves are rare, and a sort by one key takes a fifth of the time of one by two.
    order = np.argsort(ids[0])
    high = ids[0][order]
    if (high[1:] == high[:-1]).any():
        order = np.lexsort((ids[1], ids[0]))
    packed = np.empty((len(order), 2), dtype=">u8")
    packed[:, 0], packed[:, 1] = ids[0][order], ids[1][order]
    return packed.tobytes()


def unpack(packed: bytes) -> Ids:
    """The halves of packed ids."""
    pairs = np.frombuffer(packed, dtype=">u8").reshape(-1, 2).astype(np.uint64)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def first_of_each(ids: Ids, *order: NDArray[np.generic]) -> NDArray[np.bool_]:
    """True for one row of each id: the least by `order`. Twins inside a batch are decided by a total order,
    not by who came first: with other splits another one would (experiments, A6)."""
    first = np.ones(len(ids[0]), dtype=bool)
    by_high = np.argsort(ids[0])
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
    return pack((np.concatenate([high for high, _ in halves]), np.concatenate([low for _, low in halves])))
