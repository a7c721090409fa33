"""Merges many small chunks of a bucket into a few large ones, and gives the freed space back to PostgreSQL.

docs/specification/id-catalog.md. Each merged chunk is one transaction, so a look-up lists either the parts or the
merged chunk. A look-up that listed the parts and does not find one of them lists again (`catalog_lookup`).
`model.operate.collecting` decides which parts are merged.

Who calls it: `onlyonce.operate.gc`, and `receive.merge_as_it_grows`. Not promised: that one call merges
everything, or that space is given back at once. After a kill both go on where they were.
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
"""A closed bucket's table that takes so many times what its chunks need is written anew, once it is worth it."""
WORTH_IT = 1 << 20


@dataclass(frozen=True)
class Crowd:
    """A bucket with several small chunks of one lineage and partition."""

    bucket: int
    closed: bool


@dataclass(frozen=True)
class Waste:
    """The table of a bucket that takes much more than its chunks need."""

    bucket: int
    table: str
    index: str
    held: int


class Merging(Transactions):
    """Merges of chunks."""

    @one_transaction
    def crowded(self, instance: str) -> list[Crowd]:
        """The live buckets in which chunks may be merged, oldest first."""
        floor = ask(self.connection, "catalog", "floor", instance=instance)[0].gc_floor
        rows = ask(self.connection, "collect", "crowded", instance=instance, floor=floor, half=gc.FULL // 2)
        return [Crowd(row.bucket, row.newest is not None and row.bucket < row.newest) for row in rows]

    @one_transaction
    def merge_next(self, instance: str, crowd: Crowd) -> int:
        """Make one chunk of the next few parts of a bucket; gives their number, 0 when there is nothing to merge.

        Raises InvariantBroken when they don't add up; nothing has changed then.
        """
        locks.wait(self.connection, stored_names.catalog_lock(instance))
        return len(self.merge_locked(instance, crowd))

    @one_transaction
    def grown(self, lineage: str, batch_id: int, bucket: int) -> list[Crowd]:
        """The bucket of a batch, and the one that closed with it."""
        rows = ask(self.connection, "collect", "bucket_before", lineage=lineage, batch_id=batch_id)
        return [Crowd(bucket, closed=False), *(Crowd(row.bucket, closed=True) for row in rows if row.bucket < bucket)]

    @one_transaction
    def merge_if_free(self, instance: str, crowd: Crowd) -> list[Part]:
        """The same where nobody has the lock of the catalog; gives the parts, none where somebody has it."""
        ask(self.connection, "collect", "short_wait", wait=SHORT_WAIT)
        if not locks.if_free(self.connection, stored_names.catalog_lock(instance)):
            return []
        return self.merge_locked(instance, crowd)

    @one_transaction
    def merge_locked(self, instance: str, crowd: Crowd) -> list[Part]:
        """The same for a caller that holds the lock of the catalog; gives the parts."""
        rows = ask(self.connection, "collect", "parts", instance=instance, bucket=crowd.bucket, half=gc.FULL // 2)
        parts = gc.to_merge((Part(*tuple(row)) for row in rows), closed=crowd.closed)
        if parts:
            self._merge(instance, crowd.bucket, parts)
        return parts

    @one_transaction
    def wasteful(self, instance: str) -> list[Waste]:
        """The closed buckets in which much of the room is free, after a merge: worth to be written anew."""
        floor = ask(self.connection, "catalog", "floor", instance=instance)[0].gc_floor
        rows = ask(
            self.connection, "collect", "wasteful", instance=instance, floor=floor, waste=WASTE, worth_it=WORTH_IT
        )
        return [Waste(*tuple(row)) for row in rows]

    @one_transaction
    def compact(self, instance: str, waste: Waste) -> None:
        """Write the table of a bucket anew, without the room that is free. Look-ups of the bucket wait while it is
        done.

        Raises Retryable (by way of `connect.transaction`) when a reader holds the table for longer than `SHORT_WAIT`.
        """
        locks.wait(self.connection, stored_names.catalog_lock(instance))
        ask(self.connection, "collect", "short_wait", wait=SHORT_WAIT)
        if waste in self.wasteful(instance):  # and no other collector has done it
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
            self.connection, "collect", "take_parts",
            instance=instance, bucket=bucket, lineage=last.lineage, partitions=last.partitions,
            partition=last.partition, batch_ids=[part.batch_id for part in parts],
        )  # fmt: skip
        passing("merge-after-take")
        ids = filters.merge(stored or b"" for (stored,) in taken)
        if len(ids) != filters.BYTES * sum(part.ids for part in parts):
            raise InvariantBroken(
                f"{len(parts)} chunks of {instance}, bucket {bucket}, hold {len(ids) // filters.BYTES} ids, which is "
                "not the number that they state",
                data="nothing was merged; the chunks are as they were",
                hint="did somebody change onlyonce_private.catalog_chunks by hand? The ids can be rebuilt from "
                "`events`",
            )
        place = catalog.Place(
            instance, bucket, 0, last.lineage, last.batch_id, last.partition, last.partitions
        )  # fmt: skip
        Chunks(self.connection).add(place, ids, filters.make(filters.unpack(ids)))
        passing("merge-before-commit")
