"""Bloom filters over several chunks of closed buckets: made by a collection, asked before the filters of the chunks
(docs/specification/id-catalog.md).

A filter states which chunks are in it, each by the hash of its ids. So what it says, *certainly new* to these chunks,
holds for ever: it is about ids and not about places. A look-up lists its chunks as ever, and lets a filter answer for
those that are listed with such a hash. Any other chunk is asked by itself: one that was taken back and made again of
other ids (however many), one that was merged, one that came late into a closed bucket. The batch, life and layout of
partitions decide which chunks are listed, and nothing here. So a missing, damaged or old filter costs time, and nothing
else.

Who calls it: `onlyonce.operate.gc`, `catalog_lookup`, and an erasure. Errors: InvariantBroken for a chunk whose
ids are not those of its hash.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onlyonce.catalog import filters
from onlyonce.catalog.chunks import Chunk, Chunks, Place, ids_hash
from onlyonce.core import gc, stored_names
from onlyonce.core.errors import InvariantBroken
from onlyonce.database import locks
from onlyonce.database.connect import Transactions, ask, do, one_transaction
from onlyonce.failpoints import passing

PROBES = 20
"""One false positive in thirty million, 4.7 bytes an id: each fetches the filters of all chunks that are in it."""


@dataclass(frozen=True)
class Block:
    """Closed buckets of one partition."""

    partitions: int
    partition: int
    first: int
    last: int

    @property
    def key(self) -> dict[str, int]:
        """As the named queries ask for it."""
        return {"partitions": self.partitions, "partition": self.partition, "first": self.first, "last": self.last}


@dataclass(frozen=True)
class RangeFilter:
    """A filter over chunks in a block, without the filter itself: the chunks by the hash of their ids, and how many ids
    they have."""

    block: Block
    hashes: tuple[int, ...]
    id_count: int


class RangeFilters(Transactions):
    """The filters over several chunks."""

    @one_transaction
    def visible(self, place: Place) -> list[RangeFilter]:
        """The filters that may answer for ids of this partition, the longest range first; none where one bucket alone
        is asked."""
        if place.probe == "own_bucket":
            return []
        rows = ask(
            self.connection, "range_filters", "visible",
            instance=place.instance, floor=place.floor, partition=place.partition, partitions=place.partitions,
        )  # fmt: skip
        return [_of(row) for row in rows]

    @one_transaction
    def listed(self, place: Place) -> tuple[list[Chunk], list[RangeFilter]]:
        """The chunks and filters that are asked for ids of this partition."""
        return Chunks(self.connection).visible(place), self.visible(place)

    @one_transaction
    def stored(self, instance: str, of: RangeFilter) -> filters.Filter | None:
        """The filter; None when it is not there any more.

        A damaged one is removed, so that the next collection makes it again.
        """
        named = {"instance": instance, "chunk_hashes": list(of.hashes), **of.block.key}
        rows = ask(self.connection, "range_filters", "filter", **named)
        known = filters.read(bytes(rows[0].filter), of.id_count) if rows else None
        if rows and known is None:
            do(self.connection, "range_filters", "remove", **named)
        return known

    @one_transaction
    def remove_below(self, instance: str) -> int:
        """Remove those of which all buckets are below the floor; gives their number."""
        floor = ask(self.connection, "catalog", "floor", instance=instance)[0].gc_floor
        return do(self.connection, "range_filters", "remove_below", instance=instance, floor=floor)

    @one_transaction
    def wanted(self, instance: str) -> list[Block]:
        """The blocks of which a filter is to be made, by what there is now."""
        newest = ask(self.connection, "range_filters", "newest", instance=instance)[0].bucket
        if newest is None:
            return []
        floor = ask(self.connection, "catalog", "floor", instance=instance)[0].gc_floor
        chunks: dict[tuple[int, int], dict[int, gc.Chunks]] = defaultdict(lambda: defaultdict(dict))
        for row in ask(self.connection, "range_filters", "chunks", instance=instance, floor=floor, newest=newest):
            chunks[row.partitions, row.partition][row.bucket][row.ids_hash] = row.id_count
        known: dict[tuple[int, int], dict[gc.Range, set[int]]] = defaultdict(dict)
        for one in map(_of, ask(self.connection, "range_filters", "all", instance=instance)):
            known[one.block.partitions, one.block.partition][one.block.first, one.block.last] = set(one.hashes)
        return [
            Block(*layout, *block)
            for layout, some in chunks.items()
            for block in gc.wanted_ranges(some, known[layout], floor, newest)
        ]

    @one_transaction
    def make(self, instance: str, block: Block) -> int:
        """Make the filter of a block from the ids that are there now, in place of those over parts of it; gives their
        number."""
        locks.wait(self.connection, stored_names.catalog_lock(instance))
        rows = ask(self.connection, "range_filters", "ids", instance=instance, **block.key)
        count, hashes = sum(row.id_count for row in rows), sorted({row.ids_hash for row in rows})
        if len(hashes) < 2 or count > gc.FULL_FILTER:
            return 0  # it has changed since it was chosen; the next collection looks again
        made = filters.make(_ids(instance, rows), PROBES)
        do(
            self.connection, "range_filters", "add",
            instance=instance, chunk_hashes=hashes, id_count=count, filter=made, **block.key,
        )  # fmt: skip
        passing("ranges-before-commit")
        return count

    @one_transaction
    def forget(self, instance: str, bucket: int) -> None:
        """Remove the filters over a bucket, in the transaction that erases ids from its chunks."""
        do(self.connection, "range_filters", "forget", instance=instance, bucket=bucket)


def shared(
    filters: Iterable[RangeFilter], chunks: list[Chunk]
) -> tuple[list[tuple[RangeFilter, list[Chunk]]], list[Chunk]]:
    """Which chunks are asked together, each under the first filter that has it; and those that are asked alone."""
    groups, alone = [], chunks
    for one in filters:
        hashes = set(one.hashes)
        under = [chunk for chunk in alone if chunk.ids_hash in hashes]
        if len(under) > 1:
            groups.append((one, under))
            answered = set(under)
            alone = [chunk for chunk in alone if chunk not in answered]
    return groups, alone


def _ids(instance: str, rows: list[Any]) -> filters.Ids:
    if any(ids_hash(bytes(row.ids)) != row.ids_hash for row in rows):
        raise InvariantBroken(
            f"a catalog chunk of {instance} holds other ids than when it was written",
            data="no filter was made of it; the chunk is as it was",
            hint="did somebody change onlyonce_private.catalog_chunks by hand? `onlyonce doctor` makes its chunks "
            "anew from `events`",
        )
    halves = [filters.unpack(bytes(row.ids)) for row in rows]
    return np.concatenate([high for high, _ in halves]), np.concatenate([low for _, low in halves])


def _of(row: Any) -> RangeFilter:
    block = Block(row.partitions, row.partition, row.first_bucket, row.last_bucket)
    return RangeFilter(block, tuple(row.chunk_hashes), row.id_count)
