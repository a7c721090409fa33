"""Which ids are in the catalog already, and the packed form of ids. Vectorised; runs in Spark's Python workers.

An id is two unsigned 64-bit halves. A chunk is the ids sorted by (high, low), packed big-endian. A chunk's
filter is asked first: its "no" spares the look-up, its "maybe" is settled by the ids (SYSTEMS.md, 2).

Who calls it: `receive_unit`. Errors: Retryable while the database is away, InvariantBroken for a chunk that
is gone. Not promised: that a worker remembers anything; an empty cache only costs time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jobs.commitlog import catalog
from jobs.commitlog.connect import Database, run
from jobs.spark import bloom
from jobs.spark.lru import Cache

Half = bloom.Half
Ids = bloom.Ids

CACHE_BYTES = 256 * 1024 * 1024
"""How much of the catalog a worker keeps, filters and ids together; the least recently used goes first."""
AT_ONCE = 32
"""How many filters one query brings."""

Chunk = tuple[catalog.ChunkKey, int]

_cache = Cache(CACHE_BYTES)
# By database, instance, chunk and its number of ids: a worker may serve several platforms, one after the other.


@dataclass(frozen=True)
class Seen:
    """Which of the wanted ids are in the catalog, and what it took to know: in (id, chunk) pairs."""

    found: NDArray[np.bool_]
    spared: int
    looked_up: int
    false_positives: int


def seen(database: Database, place: catalog.Place, wanted: Ids) -> NDArray[np.bool_]:
    """For each of the ids whether a chunk visible to this unit holds it."""
    return look_up(database, place, wanted).found


def look_up(database: Database, place: catalog.Place, wanted: Ids) -> Seen:
    """The same, with the look-ups that the filters spared, those that were made, and those made for nothing."""
    found = np.zeros(len(wanted[0]), dtype=bool)
    chunks = run(database, lambda conn: catalog.visible(conn, place)) if len(found) else []
    probes = bloom.probes(wanted)
    looked_up = false_positives = 0
    for chunk, known in _filters(database, place.instance, chunks):
        asked = bloom.maybe(known, probes)
        if len(asked):
            held = member(_ids(database, place.instance, chunk), (wanted[0][asked], wanted[1][asked]))
            found[asked[held]] = True
            looked_up += len(asked)
            false_positives += int((~held).sum())
    return Seen(found, len(found) * len(chunks) - looked_up, looked_up, false_positives)


def forget() -> None:
    """Forget all that was cached, as a worker that starts again has."""
    _cache.clear()


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


def _filters(database: Database, instance: str, chunks: list[Chunk]) -> Iterator[tuple[Chunk, bloom.Filter]]:
    """The filter of each chunk: from the cache, from the catalog a few at a time, or made again from the ids."""
    for start in range(0, len(chunks), AT_ONCE):
        some = chunks[start : start + AT_ONCE]
        cached = {chunk: _cache.get(("filter", database.url, instance, chunk)) for chunk in some}
        missing = [key for (key, _), known in cached.items() if known is None]
        stored = run(database, lambda conn, keys=missing: catalog.filters(conn, instance, keys)) if missing else {}  # type: ignore[misc]
        for chunk, known in cached.items():
            if known is None:
                known = bloom.read(stored.get(chunk[0]), chunk[1]) or _made_again(database, instance, chunk)
                _cache.put(("filter", database.url, instance, chunk), known, known.field.nbytes)
            yield chunk, known


def _made_again(database: Database, instance: str, chunk: Chunk) -> bloom.Filter:
    ids = _ids(database, instance, chunk)
    made = bloom.make(ids)
    run(database, lambda conn: catalog.mend(conn, instance, chunk[0], made))
    known = bloom.read(made, len(ids[0]))
    assert known is not None
    return known


def _ids(database: Database, instance: str, chunk: Chunk) -> Ids:
    name = ("ids", database.url, instance, chunk)
    cached: Ids | None = _cache.get(name)
    if cached is None:
        cached = unpack(run(database, lambda conn: catalog.ids(conn, instance, chunk[0])))
        _cache.put(name, cached, sum(half.nbytes for half in cached))
    return cached
