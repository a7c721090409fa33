"""Chunks of the id catalog that are made again from `events`, and what the log knows of one record.

Chunks are made again of at-least-once batches that have not added their ids, and of batches whose chunks were lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from onlyonce.catalog import filters
from onlyonce.catalog.chunks import ChunkKey, Chunks, KeptBatch, Place
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.core import stored_names
from onlyonce.database import locks
from onlyonce.database.connect import Transactions, ask, do, one_transaction
from onlyonce.failpoints import passing


class Rebuilds(Transactions):
    """Chunks that are made again."""

    @one_transaction
    def add(self, driver: Driver, instance: str, batches: Sequence[KeptBatch], ids: Mapping[int, filters.Ids]) -> None:
        """Add the ids of at-least-once batches. Raise Superseded."""
        Incarnations(self.connection).check_epoch(driver.incarnation, driver.epoch)
        for batch in batches:
            if not Chunks(self.connection).ids_added(batch.incarnation, batch.batch_id):
                continue  # by another driver, or by this one, when the answer to its COMMIT was lost
            if batch.bucket >= Chunks(self.connection).ensure_bucket(instance, batch.bucket):
                self._store(instance, batch, ids[batch.batch_id])
        passing("rebuild-before-commit")

    @one_transaction
    def kept(self, incarnation: str, bucket: int) -> list[KeptBatch]:
        """Return the committed batches of an incarnation whose ids are in a bucket."""
        rows = ask(self.connection, "doctor", "kept_in_bucket", incarnation=incarnation, bucket=bucket)
        return [KeptBatch(**row._mapping) for row in rows]

    @one_transaction
    def replace(
        self,
        instance: str,
        incarnation: str,
        bucket: int,
        batches: Sequence[KeptBatch],
        ids: Mapping[int, filters.Ids],
    ) -> bool:
        """Replace the chunks of some batches. Return False if the bucket has other batches by now."""
        locks.wait(self.connection, stored_names.catalog_lock(instance))
        if bucket < Chunks(self.connection).ensure_bucket(instance, bucket):
            return True  # it was removed meanwhile
        if self.kept(incarnation, bucket) != batches:
            return False
        numbers = [batch.batch_id for batch in batches]
        do(
            self.connection, "doctor", "take_chunks",
            instance=instance, incarnation=incarnation, bucket=bucket, batch_ids=numbers,
        )  # fmt: skip
        for batch in batches:
            self._store(instance, batch, ids[batch.batch_id])
        return True

    def _store(self, instance: str, batch: KeptBatch, ids: filters.Ids) -> None:
        target = np.mod(ids[0].view(np.int64), batch.partitions)
        for partition in range(batch.partitions):
            mine = (ids[0][target == partition], ids[1][target == partition])
            once = filters.first_of_each(mine)
            mine = mine[0][once], mine[1][once]
            place = Place(instance, batch.bucket, 0, batch.incarnation, batch.batch_id, partition, batch.partitions)
            Chunks(self.connection).add(place, filters.pack(mine), filters.make(mine))


# What the log knows of one record: its batch and unit, its readers, its windows, and the chunk that holds its id.


@dataclass(frozen=True)
class Judged:
    """The batch that judged a record, and its unit if the log still has it."""

    state: str
    run_id: str
    committed_at: datetime | None
    delta_version: int | None
    mode: str
    units_removed: datetime | None
    unique_id: str | None
    unit_committed_at: datetime | None


@dataclass(frozen=True)
class Reading:
    """The first batch of an output that has read a version of `events`, and the start of its incarnation."""

    incarnation: str
    batch_id: int
    run_id: str
    committed_at: datetime
    start_from: dict[str, Any] | None


@dataclass(frozen=True)
class SeenWindow:
    """A window as readers see it. `events_version`: the version that its backfill has read."""

    window_start: datetime
    window_end: datetime
    generation: int | None
    state: str
    rows: int | None
    incarnation: str
    batch: int
    committed_at: datetime | None
    events_version: int | None


class Traces(Transactions):
    """Questions about one record."""

    @one_transaction
    def judged(self, unit: str, incarnation: str, batch_id: int) -> Judged | None:
        """Return the batch that judged a record, or None if the log does not have it."""
        rows = ask(self.connection, "trace", "batch_of", unique_id=unit, incarnation=incarnation, batch_id=batch_id)
        return Judged(**rows[0]._mapping) if rows else None

    @one_transaction
    def read_by(self, instance: str, query: str, version: int | None) -> Reading | None:
        """Return an output's first batch that has read a version; None if none has, or the version is None."""
        if version is None:
            return None
        rows = ask(self.connection, "trace", "read_by", instance=instance, query=query, version=version)
        return Reading(**rows[0]._mapping) if rows else None

    @one_transaction
    def windows_at(self, instance: str, output: str, time: datetime | None) -> list[SeenWindow]:
        """Return the windows of an output that contain a time."""
        rows = ask(self.connection, "trace", "windows_at", instance=instance, output=output, time=time)
        return [SeenWindow(**row._mapping) for row in rows]

    @one_transaction
    def included(self, instance: str, late: Sequence[Mapping[str, Any]]) -> list[bool | None]:
        """Return whether a backfill has included each of some late records; None if the log lacks its batch.

        `late`: rows of `left_out.late`. A session is not known before a backfill: the time of its record stands for it.
        """
        columns = {
            "outputs": [row["output"] for row in late],
            "times": [row["window_start"] or row["event_time"] for row in late],
            "incarnations": [row["incarnation"] for row in late],
            "batches": [row["batch"] for row in late],
        }
        return [row.included for row in ask(self.connection, "trace", "included", instance=instance, **columns)]

    @one_transaction
    def chunk_with(self, instance: str, high: int, low: int) -> ChunkKey | None:
        """Return the live chunk that holds an id, or None. If a filter says "maybe", the ids decide."""
        ids = (np.array([high % 2**64], dtype=np.uint64), np.array([low % 2**64], dtype=np.uint64))
        probes = filters.probes(ids)
        for row in ask(self.connection, "trace", "chunks", instance=instance, high=high):
            key = ChunkKey(row.bucket, row.incarnation, row.batch, row.partition)
            known = filters.read(self._bytes("filter", instance, key), row.id_count)
            if known is None or len(filters.maybe(known, probes)):
                held = self._bytes("ids", instance, key)
                if held is not None and filters.member(filters.unpack(held), ids)[0]:
                    return key
        return None

    def _bytes(self, column: str, instance: str, key: ChunkKey) -> bytes | None:
        """Return one column of a chunk; None if it is null or the chunk was merged meanwhile."""
        at = {"bucket": key.bucket, "incarnation": key.incarnation, "batch": key.batch_id, "partition": key.partition}
        rows = ask(self.connection, "trace", column, instance=instance, **at)
        return bytes(rows[0][0]) if rows and rows[0][0] is not None else None
