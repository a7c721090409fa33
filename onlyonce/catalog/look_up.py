"""Finds which ids the catalog has already. Vectorised; runs in Spark's Python workers.

Chunks of closed buckets have a filter together (`range_filters`): of the ids for which that says no, none is in these
chunks. The ids for which it says maybe, and those of all other chunks, go to the filter of each chunk. If it says no,
the id is not in the chunk. If it says maybe, the ids themselves are read.

Who calls it: `receive_unit`. Errors: Retryable while the database is away, InvariantBroken for a chunk that
is gone. Not promised: that a worker remembers anything; an empty cache only costs time.
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
"""How many filters one query brings."""
SLICES_FROM = 4
"""The ids of a chunk are fetched whole when the slices that are asked for are more than one in so many of them.

Measured on two busy cores, for chunks of 20,000, 250,000 and 1 million ids: whole 18, 84 and 880 ms; 10 slices of
them 5, 15 and 32 ms, 50 slices 42, 60 and 63 ms. A slice costs what its bytes cost, but the whole chunk is kept."""

_AN_ID = 19
# What an id takes in the cache with its share of a filter: bytes, about.

_cache = WorkerCache()


@dataclass(frozen=True)
class Seen:
    """Which of the wanted ids are in the catalog, and what it took to know."""

    found: NDArray[np.bool_]
    took: catalog.LookUps


def seen(database: Database, place: catalog.Place, wanted: Ids) -> NDArray[np.bool_]:
    """For each of the ids whether a chunk visible to this unit holds it."""
    return look_up(database, place, wanted).found


def look_up(database: Database, place: catalog.Place, wanted: Ids) -> Seen:
    """The same, with the look-ups that the filters spared, those that were made, and those made for nothing.

    A collector may merge chunks meanwhile. What is listed and then not there is now in a chunk of another list, so
    the list is read again and what was not asked yet is asked. All of it holds as many ids as before, or it stops.
    """
    asked = _Asked(database, place, wanted)
    chunks, ranges = RangeFilters(database).listed(place) if len(wanted[0]) else ([], [])
    while not asked.all(chunks, ranges):
        listed, ranges = RangeFilters(database).listed(place)
        if _ids_in(listed) < _ids_in(chunks) or set(listed) == set(chunks):
            raise InvariantBroken(
                f"a catalog chunk of {place.instance} is gone while batch {place.lineage}/{place.batch_id} needs it",
                data="the batch is not committed; duplicates of that chunk's records could not be recognised",
                hint="was something deleted by hand? Restore it; the ids can be rebuilt from the table `events`",
            )
        chunks = listed
    return asked.seen()


class _Asked:
    """One look-up as it goes: what was found, and which chunks have answered."""

    def __init__(self, database: Database, place: catalog.Place, wanted: Ids) -> None:
        self.database, self.place, self.instance, self.wanted = database, place, place.instance, wanted
        self.found, self.everyone = np.zeros(len(wanted[0]), dtype=bool), np.arange(len(wanted[0]))
        self.near = self.found.copy()
        self.probes = filters.probes(wanted)
        self.answered: set[Chunk] = set()
        self.looked_up = self.false_positives = 0
        self.all_fit = True

    def all(self, chunks: list[Chunk], ranges: list[RangeFilter]) -> bool:
        """Ask each chunk that has not answered; False when one of them is not there any more."""
        waiting = [chunk for chunk in chunks if chunk not in self.answered]
        self.all_fit = _cache.has_room(_AN_ID * _ids_in(chunks))
        groups, alone = range_filters.shared(ranges, waiting)
        try:
            for of, under in groups:
                self._under(of, under)
            self._each(alone, self.everyone, self.probes, spare=False)
        except _Moved:
            return False
        return True

    def _under(self, of: RangeFilter, chunks: list[Chunk]) -> None:
        """Ask chunks that have a filter together, each only for the ids that may be in one of them."""
        known = _range_filter(self.database, self.instance, of)
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
        """What came of it."""
        spared = len(self.found) * len(self.answered) - self.looked_up
        took = catalog.LookUps(spared, self.looked_up, self.false_positives, int(self.near.sum()))
        return Seen(self.found, took)


def remember(database: Database, place: catalog.Place, stored: bytes, filtered: bytes) -> None:
    """Keep a chunk that this worker has just committed: later batches ask it, and need not fetch it."""
    ids = unpack(stored)
    key = catalog.ChunkKey(place.bucket, place.lineage, place.batch_id, place.partition)
    chunk = Chunk.of(key, stored)
    if known := filters.read(filtered, chunk.id_count):
        _cache.keep_filter(database, place.instance, chunk, known)
        _cache.keep_ids(database, place.instance, chunk, ids)


def share_below(folder: Path | None) -> None:
    """Share with all workers that name this folder what is fetched from now on."""
    _cache.share_below(folder)


def forget() -> None:
    """Forget all that was cached, as a worker that starts again has."""
    _cache.forget()


class _Moved(Exception):
    """A chunk that was listed is not there: it was merged into another."""


def _range_filter(database: Database, instance: str, of: RangeFilter) -> filters.Filter | None:
    """The filter over several chunks, by what is in it: it is never another. None when it is gone or damaged."""
    known = _cache.filter_of(database, instance, of)
    if known is None:
        known = RangeFilters(database).stored(instance, of)
        if known is not None:
            known = _cache.keep_filter(database, instance, of, known)
    return known


def _filters(
    database: Database, instance: str, chunks: list[Chunk], *, spare: bool
) -> Iterator[tuple[Chunk, filters.Filter]]:
    """The filter of each chunk: from the cache, from the catalog a few at a time, or made again from the ids."""
    for start in range(0, len(chunks), AT_ONCE):
        some = chunks[start : start + AT_ONCE]
        cached = {chunk: _cache.filter_of(database, instance, chunk, spare=spare) for chunk in some}
        missing = [chunk.key for chunk, known in cached.items() if known is None]
        stored = Chunks(database).filters(instance, missing) if missing else {}  # type: ignore[misc]
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
    Chunks(database).mend(instance, chunk.key, made)
    known = filters.read(made, len(ids[0]))
    assert known is not None
    return known


def _in_slices(database: Database, instance: str, chunk: Chunk, some: Ids, *, keep: bool) -> NDArray[np.bool_] | None:
    """Which of few ids a large chunk holds, by the slices in which they must be; None when all of it is better fetched.

    Where the cache has room to `keep` all chunks, one is fetched whole once its slices have added up to it. Of one that
    was here whole the fences are still known: its slices are 64 ids then, and not some thousand.
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
            raise _Moved  # under the same key there may be a merged chunk, of more ids
        cached = _cache.keep_ids(database, instance, chunk, unpack(stored))
    return cached


def _ids_in(chunks: list[Chunk]) -> int:
    return sum(chunk.id_count for chunk in chunks)
