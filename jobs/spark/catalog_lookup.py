"""Which ids are in the catalog already, and the packed form of ids. Vectorised; runs in Spark's Python workers.

An id is two unsigned 64-bit halves. A chunk is the ids sorted by (high, low), packed big-endian.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from jobs.commitlog import catalog
from jobs.commitlog.connect import Database, run

Half = NDArray[np.uint64]
Ids = tuple[Half, Half]

CACHE_BYTES = 256 * 1024 * 1024
"""How much of the catalog a worker keeps; the least recently used chunk goes first."""

_cache: OrderedDict[tuple[str, str, catalog.ChunkKey, int], Ids] = OrderedDict()
# By database, instance, chunk and its number of ids: a worker may serve several platforms, one after the other.


def seen(database: Database, place: catalog.Place, wanted: Ids) -> NDArray[np.bool_]:
    """For each of the ids whether a chunk visible to this unit holds it."""
    found = np.zeros(len(wanted[0]), dtype=bool)
    for key, count in run(database, lambda conn: catalog.visible(conn, place)):
        found |= member(_chunk(database, place.instance, key, count), wanted)
    return found


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


def pack(ids: Ids) -> bytes:
    """Sorted and packed: 16 bytes an id, big-endian."""
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
    by_high = np.argsort(ids[0], kind="stable")
    high = ids[0][by_high]
    same_as_next = high[:-1] == high[1:]
    if not same_as_next.any():
        return first
    shared = np.zeros(len(high), dtype=bool)
    shared[:-1] |= same_as_next
    shared[1:] |= same_as_next
    rows = by_high[shared]
    keys = [column[rows] for column in (*reversed(order), ids[1], ids[0])]
    rows = rows[np.lexsort(keys)]
    repeats = (ids[0][rows][1:] == ids[0][rows][:-1]) & (ids[1][rows][1:] == ids[1][rows][:-1])
    first[rows[1:][repeats]] = False
    return first


def _chunk(database: Database, instance: str, key: catalog.ChunkKey, count: int) -> Ids:
    name = (database.url, instance, key, count)
    cached = _cache.pop(name, None)
    if cached is None:
        cached = unpack(run(database, lambda conn: catalog.ids(conn, instance, key)))
    _cache[name] = cached
    while sum(part[0].nbytes * 2 for part in _cache.values()) > CACHE_BYTES:
        _cache.popitem(last=False)
    return cached
