"""Chunks of the catalog that are made of the ids in `events`: of at-least-once batches that have not added theirs, and
of batches whose chunks were lost.

Who calls it: `onlyonce.receive.catalog_rebuild`, which reads the ids. Errors: Superseded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onlyonce.catalog import bloom, packed
from onlyonce.catalog.chunks import Chunks, KeptBatch, Place
from onlyonce.commitlog.lineages import Driver, Lineages
from onlyonce.database import locks
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.failpoints import passing
from onlyonce.model import stored_names


class Rebuilds(Transactions):
    """Chunks that are made again."""

    @one_transaction
    def add(self, driver: Driver, instance: str, batches: Sequence[KeptBatch], ids: Mapping[int, packed.Ids]) -> None:
        """Add the ids of at-least-once batches."""
        Lineages(self.connection).check_epoch(driver.lineage, driver.epoch)
        for batch in batches:
            if not Chunks(self.connection).ids_added(batch.lineage, batch.batch_id):
                continue  # by another driver, or by this one, when the answer to its COMMIT was lost
            if batch.bucket >= Chunks(self.connection).ensure_bucket(instance, batch.bucket):
                self._store(instance, batch, ids[batch.batch_id])
        passing("rebuild-before-commit")

    @one_transaction
    def kept(self, lineage: str, bucket: int) -> list[KeptBatch]:
        """The committed batches of a lineage whose ids are in a bucket."""
        rows = ask(self.connection, "doctor", "kept_in_bucket", lineage=lineage, bucket=bucket)
        return [KeptBatch(**row._mapping) for row in rows]

    @one_transaction
    def replace(
        self,
        instance: str,
        lineage: str,
        bucket: int,
        batches: Sequence[KeptBatch],
        ids: Mapping[int, packed.Ids],
    ) -> bool:
        """Take the chunks of some batches out and put new ones in; False when there are other batches by now."""
        locks.wait(self.connection, stored_names.catalog_lock(instance))
        if bucket < Chunks(self.connection).ensure_bucket(instance, bucket):
            return True  # it was collected meanwhile
        if self.kept(lineage, bucket) != batches:
            return False
        numbers = [batch.batch_id for batch in batches]
        do(
            self.connection, "doctor", "take_chunks",
            instance=instance, lineage=lineage, bucket=bucket, batch_ids=numbers,
        )  # fmt: skip
        for batch in batches:
            self._store(instance, batch, ids[batch.batch_id])
        return True

    def _store(self, instance: str, batch: KeptBatch, ids: packed.Ids) -> None:
        target = np.mod(ids[0].view(np.int64), batch.partitions)
        for partition in range(batch.partitions):
            mine = (ids[0][target == partition], ids[1][target == partition])
            once = packed.first_of_each(mine)
            mine = mine[0][once], mine[1][once]
            place = Place(instance, batch.bucket, 0, batch.lineage, batch.batch_id, partition, batch.partitions)
            Chunks(self.connection).add(place, packed.pack(mine), bloom.make(mine))
