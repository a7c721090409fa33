"""Receive without Spark, on a real PostgreSQL: begin, units, rows, end, each by the product's own functions.

`events` stands in for the Delta table: one commit for each batch, and the first one stays (docs/specification/delta-commit.md).
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import look_up
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.batch import Batch
from onlyonce.core.gc import edge_buckets
from onlyonce.receive import loop, unit
from tests.contract.conftest import Log, plan_of
from tests.contract.receiver import FATES, Record, columns

BUCKET_SECONDS = 600
DAY = timedelta(days=1)


class Receive:
    """The receive query of one instance, as its drivers run it one after the other."""

    def __init__(self, log: Log, instance: str = "shop", partitions: int = 2) -> None:
        self.log, self.instance, self.partitions = log, instance, partitions
        self.driver: Driver = log.start(instance)
        self.next = 0
        self.events: dict[tuple[str, int], list[tuple[str, Record]]] = {}

    def restart(self) -> None:
        """The next driver; its workers have nothing cached."""
        self.driver = self.log.restart(self.driver)
        look_up.forget()

    def begin(self, bucket: int, batch_id: int | None = None) -> Batch:
        """A batch whose input was first seen in a bucket; the next number, or a replay of one."""
        number = self.next if batch_id is None else batch_id
        self.next = max(self.next, number + 1)
        time = datetime.fromtimestamp(bucket * BUCKET_SECONDS, UTC)
        plan = plan_of(self.driver, number, bucket=bucket, ingestion_time=time, partitions=self.partitions)
        return Batches(self.log.database).begin(self.driver, self.instance, plan, None)

    def place(self, batch: Batch, partition: int = 0) -> catalog.Place:
        """Where a unit of the batch is."""
        plan = batch.plan
        return catalog.Place(
            self.instance, plan.bucket, batch.gc_floor, plan.incarnation, plan.batch_id, partition, plan.partitions,
            edge=edge_buckets(DAY),
        )  # fmt: skip

    def unit(self, batch: Batch, records: list[Record], partition: int) -> list[tuple[str, Record]]:
        """One task: (fate, record) of those that fall into the partition. Duplicates are not delivered."""
        mine = [r for r in records if _signed(r[0]) % batch.plan.partitions == partition]
        work = unit.Work(self.log.database, self.place(batch, partition), self.driver.epoch)
        [verdicts] = unit.judge(work)(iter([columns(mine, partition)]))
        fates = [FATES[code] for code in verdicts.fates.tolist() if code != unit.SEED]
        return [(fate, r) for fate, r in zip(fates, mine, strict=True) if fate != "duplicate"]

    def units(self, batch: Batch, records: list[Record]) -> list[tuple[str, Record]]:
        """All tasks of the batch."""
        return [row for partition in range(batch.plan.partitions) for row in self.unit(batch, records, partition)]

    def land(self, batch: Batch, rows: list[tuple[str, Record]]) -> None:
        """The one commit of the batch to `events`; there already, it stays as it is."""
        self.events.setdefault((batch.plan.incarnation, batch.plan.batch_id), rows)

    def end(self, batch: Batch, read: int) -> None:
        """The end, with the check that the batch is conserved."""
        key = batch.plan.batch_id
        Batches(self.log.database).end_receive(self.driver, batch, read, key, bounded=False)

    def batch(self, bucket: int, records: list[Record], batch_id: int | None = None) -> Batch:
        """A whole batch."""
        batch = self.begin(bucket, batch_id)
        if not batch.committed:
            self.land(batch, self.units(batch, records))
            self.end(batch, len(records))
        return batch

    def merge(self, batch: Batch) -> int:
        """What the driver does between this batch and the next."""
        return loop.merge_catalog(self.log.database, self.driver, self.instance, batch.plan)

    def rows(self) -> Counter[tuple[str, Record]]:
        """What is in `events`: (fate, record) as a multiset."""
        return Counter(row for rows in self.events.values() for row in rows)

    def known(self, batch: Batch, records: list[Record]) -> list[bool]:
        """Which of the records a look-up by the batch finds, whatever partition they are of."""
        found = dict.fromkeys(records, False)
        for partition in range(batch.plan.partitions):
            mine = [r for r in records if _signed(r[0]) % batch.plan.partitions == partition]
            halves = tuple(np.array([r[half] for r in mine], dtype=np.uint64) for half in (0, 1))
            seen = look_up.seen(self.log.database, self.place(batch, partition), (halves[0], halves[1]))
            found |= dict(zip(mine, seen.tolist(), strict=True))
        return [found[r] for r in records]

    def chunks(self) -> list[tuple[Any, ...]]:
        """(bucket, batch, partition, ids) of each chunk."""
        return self.log.rows(
            "SELECT bucket, batch_id, partition, id_count FROM onlyonce_private.catalog_chunks WHERE instance = %s "
            "ORDER BY 1, 2, 3",
            self.instance,
        )


def _signed(high: int) -> int:
    return high - 2**64 if high >= 2**63 else high
