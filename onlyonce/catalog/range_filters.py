"""Bloom filters over several chunks of closed buckets (docs/specification/id-catalog.md).

A gc run makes them, and a look-up probes them before the filters of the chunks.

A filter names its chunks by the hashes of their ids. So "certainly new to these chunks" holds for ever: it is about
ids, not about positions. A look-up lists its chunks as without such filters. A filter answers for the listed chunks
whose hash it has. Any other chunk is asked on its own: it was made again with other ids, was merged, or came late into
a closed bucket. The filters have no influence on which chunks are listed. So a missing, damaged or old filter only
costs time.
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
"""One false positive in thirty million, 4.7 bytes an id. Each fetches the filters of all chunks of the filter."""


@dataclass(frozen=True)
class Block:
    """Closed buckets of one partition."""

    partitions: int
    partition: int
    first: int
    last: int

    @property
    def key(self) -> dict[str, int]:
        """Return the block as parameters of the named queries."""
        return {"partitions": self.partitions, "partition": self.partition, "first": self.first, "last": self.last}


@dataclass(frozen=True)
class RangeFilter:
    """A filter over chunks in a block, without its bytes: the hashes of the chunks' ids, and the number of ids."""

    block: Block
    hashes: tuple[int, ...]
    id_count: int


class RangeFilters(Transactions):
    """The filters over several chunks."""

    @one_transaction
    def visible(self, place: Place) -> list[RangeFilter]:
        """Return the filters that may answer for ids of this partition, the longest range first."""
        rows = ask(
            self.connection, "range_filters", "visible",
            instance=place.instance, floor=place.floor, partition=place.partition, partitions=place.partitions,
        )  # fmt: skip
        return [_of(row) for row in rows]

    @one_transaction
    def listed(self, place: Place) -> tuple[list[Chunk], list[RangeFilter]]:
        """Return the chunks and filters to ask for ids of this partition."""
        return Chunks(self.connection).visible(place), self.visible(place)

    @one_transaction
    def stored(self, instance: str, of: RangeFilter) -> filters.Filter | None:
        """Return the filter; None if it is gone.

        Remove a damaged one, so that the next gc run makes it again.
        """
        named = {"instance": instance, "chunk_hashes": list(of.hashes), **of.block.key}
        rows = ask(self.connection, "range_filters", "filter", **named)
        known = filters.read(bytes(rows[0].filter), of.id_count) if rows else None
        if rows and known is None:
            do(self.connection, "range_filters", "remove", **named)
        return known

    @one_transaction
    def remove_below(self, instance: str) -> int:
        """Remove the filters whose buckets are all below the floor; return their number."""
        floor = ask(self.connection, "catalog", "floor", instance=instance)[0].gc_floor
        return do(self.connection, "range_filters", "remove_below", instance=instance, floor=floor)

    @one_transaction
    def wanted(self, instance: str) -> list[Block]:
        """Return the blocks for which a filter should be made, by the current chunks and filters."""
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
        """Make the filter of a block from its current ids, in place of filters over parts of it. Return the number of
        ids.

        Raise InvariantBroken if a chunk's ids don't have its hash.
        """
        locks.wait(self.connection, stored_names.catalog_lock(instance))
        rows = ask(self.connection, "range_filters", "ids", instance=instance, **block.key)
        count, hashes = sum(row.id_count for row in rows), sorted({row.ids_hash for row in rows})
        if len(hashes) < 2 or count > gc.FULL_FILTER:
            return 0  # it has changed since it was chosen; the next gc run tries again
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
    """Return the chunks that share a filter, each under the first filter that has it, and the chunks without one."""
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
            hint="did a person change onlyonce_private.catalog_chunks by hand? `onlyonce doctor` makes its chunks "
            "again from `events`",
        )
    halves = [filters.unpack(bytes(row.ids)) for row in rows]
    return np.concatenate([high for high, _ in halves]), np.concatenate([low for _, low in halves])


def _of(row: Any) -> RangeFilter:
    block = Block(row.partitions, row.partition, row.first_bucket, row.last_bucket)
    return RangeFilter(block, tuple(row.chunk_hashes), row.id_count)
