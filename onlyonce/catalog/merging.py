"""Merges many small chunks of a bucket into a few large ones, and gives the freed space back to PostgreSQL.

docs/specification/id-catalog.md. Each merged chunk is one transaction, so a look-up lists either the parts or the
merged chunk. A look-up that listed the parts and does not find one of them lists again (`look_up`). `gc.to_merge` in
`onlyonce.core` decides which parts are merged. One call need not merge everything. After a kill both continue where
they stopped.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg2 import sql as identifiers

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import filters
from onlyonce.catalog.chunks import Chunks, ask_binary
from onlyonce.catalog.expiry import SHORT_WAIT
from onlyonce.core import gc, stored_names
from onlyonce.core.errors import InvariantBroken
from onlyonce.core.gc import Part
from onlyonce.database import locks
from onlyonce.database.connect import Transactions, ask, one_transaction
from onlyonce.failpoints import passing

WASTE = 1.5
"""The table of a closed bucket is rewritten if its size is WASTE times what its chunks need plus WORTH_IT bytes."""
WORTH_IT = 1 << 20


@dataclass(frozen=True)
class Crowd:
    """A bucket with several small chunks of one incarnation and partition."""

    bucket: int
    closed: bool


@dataclass(frozen=True)
class Waste:
    """The table of a bucket that takes much more space than its chunks need."""

    bucket: int
    table: str
    index: str
    held: int


class Merging(Transactions):
    """Merges of chunks."""

    @one_transaction
    def crowded(self, instance: str) -> list[Crowd]:
        """Return the live buckets in which chunks may be merged, oldest first."""
        floor = ask(self.connection, "catalog", "floor", instance=instance)[0].gc_floor
        rows = ask(self.connection, "gc", "crowded", instance=instance, floor=floor, half=gc.FULL // 2)
        return [Crowd(row.bucket, row.newest is not None and row.bucket < row.newest) for row in rows]

    @one_transaction
    def merge_next(self, instance: str, crowd: Crowd) -> int:
        """Merge the next few parts of a bucket into one chunk. Return their number, 0 if there is nothing to merge.

        Raise InvariantBroken if the ids don't add up; then nothing has changed.
        """
        locks.wait(self.connection, stored_names.catalog_lock(instance))
        return len(self.merge_locked(instance, crowd))

    @one_transaction
    def grown(self, incarnation: str, batch_id: int, bucket: int) -> list[Crowd]:
        """Return the bucket of a batch, and the bucket that closed with it."""
        rows = ask(self.connection, "gc", "bucket_before", incarnation=incarnation, batch_id=batch_id)
        return [Crowd(bucket, closed=False), *(Crowd(row.bucket, closed=True) for row in rows if row.bucket < bucket)]

    @one_transaction
    def merge_if_free(self, instance: str, crowd: Crowd) -> list[Part]:
        """Merge the next parts of a bucket if the catalog's lock is free. Return the parts, none if another session has
        the lock.
        """
        ask(self.connection, "gc", "short_wait", wait=SHORT_WAIT)
        if not locks.if_free(self.connection, stored_names.catalog_lock(instance)):
            return []
        return self.merge_locked(instance, crowd)

    @one_transaction
    def merge_locked(self, instance: str, crowd: Crowd) -> list[Part]:
        """Merge the next parts of a bucket for a caller that holds the catalog's lock; return the parts."""
        rows = ask(self.connection, "gc", "parts", instance=instance, bucket=crowd.bucket, half=gc.FULL // 2)
        parts = gc.to_merge((Part(*tuple(row)) for row in rows), closed=crowd.closed)
        if parts:
            self._merge(instance, crowd.bucket, parts)
        return parts

    @one_transaction
    def wasteful(self, instance: str) -> list[Waste]:
        """Return the closed buckets whose tables have so much free space, after merges, that a rewrite pays off."""
        floor = ask(self.connection, "catalog", "floor", instance=instance)[0].gc_floor
        rows = ask(self.connection, "gc", "wasteful", instance=instance, floor=floor, waste=WASTE, worth_it=WORTH_IT)
        return [Waste(*tuple(row)) for row in rows]

    @one_transaction
    def compact(self, instance: str, waste: Waste) -> None:
        """Rewrite the table of a bucket without its free space. Look-ups of the bucket wait meanwhile.

        Raise Retryable (from `connect.run`) if a reader holds the table for longer than `SHORT_WAIT`.
        """
        locks.wait(self.connection, stored_names.catalog_lock(instance))
        ask(self.connection, "gc", "short_wait", wait=SHORT_WAIT)
        if waste in self.wasteful(instance):  # and no other gc run has done it
            names = {
                "table": identifiers.Identifier(stored_names.PRIVATE_SCHEMA, waste.table),
                "index": identifiers.Identifier(waste.index),
            }
            self.connection.connection.cursor().execute(
                identifiers.SQL("CLUSTER {table} USING {index}").format(**names)
            )

    def _merge(self, instance: str, bucket: int, parts: list[Part]) -> None:
        last = parts[-1]
        taken = ask_binary(
            self.connection, "gc", "take_parts",
            instance=instance, bucket=bucket, incarnation=last.incarnation, partitions=last.partitions,
            partition=last.partition, batch_ids=[part.batch_id for part in parts],
        )  # fmt: skip
        passing("merge-after-take")
        ids = filters.merge(stored or b"" for (stored,) in taken)
        if len(ids) != filters.BYTES * sum(part.ids for part in parts):
            raise InvariantBroken(
                f"{len(parts)} chunks of {instance}, bucket {bucket}, hold {len(ids) // filters.BYTES} ids, which is "
                "not the number that they state",
                data="nothing was merged; the chunks are as they were",
                hint="did a person change onlyonce_private.catalog_chunks by hand? The ids can be rebuilt from "
                "`events`",
            )
        place = catalog.Place(
            instance, bucket, 0, last.incarnation, last.batch_id, last.partition, last.partitions
        )  # fmt: skip
        Chunks(self.connection).add(place, ids, filters.make(filters.unpack(ids)))
        passing("merge-before-commit")
