"""Finds which ids are already in the id catalog. Vectorised; runs in Spark's Python workers.

Several chunks of closed buckets share a filter (`range_filters`). If it says no, the id is in none of these chunks. If
it says maybe, and for all other chunks, the filter of each chunk is probed. If that says no, the id is not in the
chunk. If it says maybe, the ids themselves are read.

An empty cache only costs time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import filters, range_filters
from onlyonce.catalog.chunks import Chunk, Chunks
from onlyonce.catalog.filters import Ids, member, unpack
from onlyonce.catalog.range_filters import RangeFilter, RangeFilters
from onlyonce.catalog.worker_cache import WorkerCache
from onlyonce.core.errors import InvariantBroken
from onlyonce.database.connect import Database

AT_ONCE = 32
"""How many filters one query fetches."""
SLICES_FROM = 4
"""A chunk is fetched whole if the slices asked for are more than one in SLICES_FROM of its ids.

Measured on two busy cores, for chunks of 20,000, 250,000 and 1 million ids. Whole chunks took 18, 84 and 880 ms; 10
slices 5, 15 and 32 ms; 50 slices 42, 60 and 63 ms. A slice costs what its bytes cost, but the whole chunk is kept.
"""

_AN_ID = 19
# Bytes of an id in the cache with its share of a filter, approximately.

_cache = WorkerCache()


@dataclass(frozen=True)
class Seen:
    """Which of the wanted ids are in the id catalog, and the figures of the look-up."""

    found: NDArray[np.bool_]
    took: catalog.LookUps


def seen(database: Database, place: catalog.Place, wanted: Ids) -> NDArray[np.bool_]:
    """Return for each of the ids whether a chunk visible to this unit holds it."""
    return look_up(database, place, wanted).found


def look_up(database: Database, place: catalog.Place, wanted: Ids) -> Seen:
    """Return which ids a chunk visible to this unit holds, and how many look-ups were spared, made, and made without a
    match.

    A gc run may merge chunks meanwhile. A listed chunk that is gone is then in a chunk of another list. So the list is
    read again, and the chunks that have not answered are asked.

    Raise InvariantBroken if the new list holds fewer ids, or the same chunks: then a chunk was deleted.
    """
    asked = _Asked(database, place, wanted)
    chunks, ranges = RangeFilters(database).listed(place) if len(wanted[0]) else ([], [])
    while not asked.all(chunks, ranges):
        listed, ranges = RangeFilters(database).listed(place)
        if _ids_in(listed) < _ids_in(chunks) or set(listed) == set(chunks):
            raise InvariantBroken(
                f"a catalog chunk of {place.instance} is gone while batch {place.incarnation}/{place.batch_id} needs "
                "it",
                data="the batch is not committed; duplicates of that chunk's records could not be recognised",
                hint="was something deleted by hand? Restore it; the ids can be rebuilt from the table `events`",
            )
        chunks = listed
    return asked.seen()


class _Asked:
    """One look-up: the ids found so far, and the chunks that have answered."""

    def __init__(self, database: Database, place: catalog.Place, wanted: Ids) -> None:
        self.database, self.place, self.instance, self.wanted = database, place, place.instance, wanted
        self.found, self.everyone = np.zeros(len(wanted[0]), dtype=bool), np.arange(len(wanted[0]))
        self.near = self.found.copy()  # found in a bucket that gc removes soon: the dedup horizon may be too short
        self.probes = filters.probes(wanted)
        self.answered: set[Chunk] = set()
        self.looked_up = self.false_positives = 0
        self.all_fit = True

    def all(self, chunks: list[Chunk], ranges: list[RangeFilter]) -> bool:
        """Ask each chunk that has not answered. Return False if one of them is gone."""
        waiting = [chunk for chunk in chunks if chunk not in self.answered]
        self.all_fit = _cache.has_room(_AN_ID * _ids_in(chunks))
        groups, alone = range_filters.shared(ranges, waiting)
        try:
            for shared, under in groups:
                self._under(shared, under)
            self._each(alone, self.everyone, self.probes, spare=False)
        except _Moved:
            return False
        return True

    def _under(self, shared: RangeFilter, chunks: list[Chunk]) -> None:
        """Ask chunks that share a filter, each only for the ids that may be in one of them."""
        known = _range_filter(self.database, self.instance, shared)
        if known is None:
            self._each(chunks, self.everyone, self.probes, spare=True)
        elif len(maybe := filters.maybe(known, self.probes)):
            self._each(chunks, maybe, filters.some(self.probes, maybe), spare=True)
        self.answered.update(chunks)

    def _each(self, chunks: list[Chunk], at: NDArray[np.intp], probes: filters.Probes, *, spare: bool) -> None:
        for chunk, known in _filters(self.database, self.instance, chunks, spare=spare):
            self._one(chunk, at[filters.maybe(known, probes)])

    def _one(self, chunk: Chunk, maybe: NDArray[np.intp]) -> None:
        if len(maybe):
            some = (self.wanted[0][maybe], self.wanted[1][maybe])
            held = _in_slices(self.database, self.instance, chunk, some, keep=self.all_fit)
            if held is None:
                held = member(_ids(self.database, self.instance, chunk), some)
            self.found[maybe[held]] = True
            if self.place.near_edge(chunk.key.bucket):
                self.near[maybe[held]] = True
            self.looked_up += len(maybe)
            self.false_positives += int((~held).sum())
        self.answered.add(chunk)

    def seen(self) -> Seen:
        """Return the result of the look-up."""
        spared = len(self.found) * len(self.answered) - self.looked_up
        took = catalog.LookUps(spared, self.looked_up, self.false_positives, int(self.near.sum()))
        return Seen(self.found, took)


def remember(database: Database, place: catalog.Place, stored: bytes, filtered: bytes) -> None:
    """Keep a chunk that this worker has just committed, so that later batches need not fetch it."""
    ids = unpack(stored)
    key = catalog.ChunkKey(place.bucket, place.incarnation, place.batch_id, place.partition)
    chunk = Chunk.of(key, stored)
    if known := filters.read(filtered, chunk.id_count):
        _cache.keep_filter(database, place.instance, chunk, known)
        _cache.keep_ids(database, place.instance, chunk, ids)


def share_below(folder: Path | None) -> None:
    """Share what is fetched from now on with all workers that name this folder."""
    _cache.share_below(folder)


def forget() -> None:
    """Clear the cache, as after a restart of the worker."""
    _cache.forget()


class _Moved(Exception):
    """A listed chunk is gone: it was merged into another."""


def _range_filter(database: Database, instance: str, of: RangeFilter) -> filters.Filter | None:
    """Return the filter over several chunks; None if it is gone or damaged. Its content never changes."""
    known = _cache.filter_of(database, instance, of)
    if known is None:
        known = RangeFilters(database).stored(instance, of)
        if known is not None:
            known = _cache.keep_filter(database, instance, of, known)
    return known


def _filters(
    database: Database, instance: str, chunks: list[Chunk], *, spare: bool
) -> Iterator[tuple[Chunk, filters.Filter]]:
    """Yield the filter of each chunk: from the cache, from the id catalog a few at a time, or made again from the
    ids.

    spare   whether a shared filter is above them, so that these are asked less often and may leave the cache first
    """
    for start in range(0, len(chunks), AT_ONCE):
        some = chunks[start : start + AT_ONCE]
        cached = {chunk: _cache.filter_of(database, instance, chunk, spare=spare) for chunk in some}
        missing = [chunk.key for chunk, known in cached.items() if known is None]
        stored = Chunks(database).filters(instance, missing) if missing else {}
        for chunk, known in cached.items():
            if known is None:
                if chunk.key not in stored:
                    raise _Moved
                known = filters.read(stored[chunk.key], chunk.id_count) or _made_again(database, instance, chunk)
                known = _cache.keep_filter(database, instance, chunk, known, spare=spare)
            yield chunk, known


def _made_again(database: Database, instance: str, chunk: Chunk) -> filters.Filter:
    ids = _ids(database, instance, chunk)
    made = filters.make(ids)
    # A gc run may have merged more ids into the chunk meanwhile. Then the number of ids in the filter is another than
    # the chunk's, and its next reader makes it again.
    Chunks(database).repair_filter(instance, chunk.key, made)
    known = filters.read(made, len(ids[0]))
    assert known is not None
    return known


def _in_slices(database: Database, instance: str, chunk: Chunk, some: Ids, *, keep: bool) -> NDArray[np.bool_] | None:
    """Return which of a few ids a large chunk holds, by slices; None if the whole chunk is better fetched.

    If the cache has room to `keep` all chunks, a chunk is fetched whole once its slices have added up to its size. If
    the whole chunk was cached before, its fences (each 64th id) still are: then a slice has 64 ids instead of a few
    thousand.
    """
    if _cache.ids_of(database, instance, chunk) is not None:
        return None
    known = _cache.fences_of(database, instance, chunk)
    near = filters.slices(chunk.id_count, some[0]) if known is None else filters.between(known, chunk.id_count, some[0])
    starts, ends = filters.joined(near)
    asked = int((ends - starts).sum())
    paid = asked + _cache.paid_of(database, instance, chunk)
    if SLICES_FROM * asked > chunk.id_count or (keep and paid > chunk.id_count):
        return None
    _cache.pay(database, instance, chunk, paid)
    parts = Chunks(database).slices(instance, chunk, starts.tolist(), ends.tolist())
    if parts is None:
        raise _Moved
    return filters.in_slices(unpack(b"".join(parts)), (starts, ends), chunk.id_count, some)


def _ids(database: Database, instance: str, chunk: Chunk) -> Ids:
    cached = _cache.ids_of(database, instance, chunk)
    if cached is None:
        stored = Chunks(database).ids(instance, chunk.key)
        if stored is None or not chunk.is_of(stored):
            raise _Moved  # under the same key there may be a merged chunk, with more ids
        cached = _cache.keep_ids(database, instance, chunk, unpack(stored))
    return cached


def _ids_in(chunks: list[Chunk]) -> int:
    return sum(chunk.id_count for chunk in chunks)
