"""Receive's executor step on a real PostgreSQL, without Spark: what a task judges, and what it asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import look_up as catalog_look_up
from onlyonce.catalog.chunks import Chunks
from onlyonce.catalog.filters import Ids
from onlyonce.commitlog.incarnations import Driver
from onlyonce.receive import unit
from tests.contract.conftest import Log

Record = tuple[int, int]
FATES = {
    unit.KEPT: "kept", unit.DUPLICATE: "duplicate", unit.EXPIRED: "expired",
    unit.INVALID: "invalid",
}  # fmt: skip


def ids_of(records: list[Record]) -> Ids:
    """Two arrays of halves."""
    return np.array([h for h, _ in records], dtype=np.uint64), np.array([w for _, w in records], dtype=np.uint64)


@dataclass
class Worker:
    """A Python worker of receive. Counts its look-ups in (id, chunk) pairs, and each chunk's ids that it loads."""

    log: Log
    floor: int = 0
    looked_up: int = 0
    spared: int = 0
    false_positives: int = 0
    loaded: list[catalog.ChunkKey] = field(default_factory=list)
    next: int = 0
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        self.driver = self.log.start()
        self.restart()

    def restart(self) -> None:
        """Start again with nothing cached."""
        catalog_look_up.forget()

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> Worker:
        """Count from now on."""
        look_up, ids = catalog_look_up.look_up, Chunks.ids

        def counted(*arguments: Any) -> catalog_look_up.Seen:
            seen = look_up(*arguments)
            self.looked_up += seen.took.made
            self.spared += seen.took.spared
            self.false_positives += seen.took.false_positives
            return seen

        def loaded(connection: Any, instance: str, key: catalog.ChunkKey) -> bytes | None:
            self.loaded.append(key)
            return ids(connection, instance, key)

        monkeypatch.setattr(catalog_look_up, "look_up", counted)
        monkeypatch.setattr(Chunks, "ids", loaded)
        return self

    def place(self, bucket: int, batch_id: int) -> catalog.Place:
        """The one unit of a batch."""
        return catalog.Place("shop", bucket, self.floor, self.driver.incarnation, batch_id, 0, 1)

    def receive(self, bucket: int, records: list[Record], batch_id: int | None = None) -> list[str]:
        """The fates of a batch's records, in order; the unit is then committed. A number given again is a replay."""
        number = self.next if batch_id is None else batch_id
        self.next = max(self.next, number + 1)
        Chunks(self.log.database).ensure_bucket("shop", bucket)
        work = unit.Work(self.log.database, self.place(bucket, number), self.driver.epoch)
        verdicts = list(unit.judge(work)(iter([columns(records)])))
        return [FATES[code] for code in verdicts[0].fates.tolist() if code != unit.SEED]


def columns(records: list[Record], partition: int = 0) -> unit.Columns:
    """What Spark hands to the task of a partition: the records, and its seed."""
    high, low = ids_of([*records, (partition, 0)])
    count = len(records)
    code = pa.array([unit.CANDIDATE] * count + [unit.SEED], pa.int8())
    zeros = pa.array([0] * (count + 1), pa.int64())
    return (
        code, pa.array(high.view(np.int64)), pa.array(low.view(np.int64)), zeros, zeros,
        pa.array([False] * (count + 1)),
    )  # fmt: skip


def uniform(count: int, seed: int) -> list[Record]:
    """Ids as the hash gives them."""
    made = np.random.default_rng(seed)
    halves: Iterator[Any] = (made.integers(0, 2**64, count, dtype=np.uint64).tolist() for _ in range(2))
    return list(zip(*halves, strict=True))
