"""A catalog of any size, made by the product's functions without Spark, and workers that judge batches against it."""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, text

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import filters, look_up, range_filters
from onlyonce.catalog.chunks import Chunks
from onlyonce.catalog.expiry import Collector
from onlyonce.catalog.filters import Ids
from onlyonce.catalog.range_filters import RangeFilters
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.core import gc
from onlyonce.core.batch import Plan
from onlyonce.database.connect import Database, do, run
from onlyonce.operate import gc as operate_gc
from onlyonce.receive import unit
from tests.support.shop import SHOP

PARTITIONS = 2
BATCH = 500_000
CHUNK = BATCH // PARTITIONS
AGAIN = CHUNK // 20
"""So many of a partition's ids were delivered before."""
BUCKETS = 144
"""A day: the default horizon."""
FIRST = 2_900_000
RECENT = 6
"""The buckets of the last hour."""
ENDED = """
UPDATE onlyonce_private.batches
SET state = 'committed', committed_at = clock_timestamp(), conserved = true, read = :read, kept = :read, invalid = 0, expired = 0, duplicate = 0
WHERE incarnation = :incarnation AND batch_id = :batch_id
"""


@dataclass(frozen=True)
class Catalog:
    """A catalog of `ids` ids, as batches of 500,000 leave it: a chunk for each batch and partition, over one day."""

    url: str
    ids: int

    @property
    def instance(self) -> str:
        """A pipeline of its own."""
        return f"growth_{self.ids}"

    @property
    def batches(self) -> int:
        """How many batches have made it."""
        return self.ids // BATCH

    @property
    def database(self) -> Database:
        """Where it is."""
        return Database(self.url)

    def bucket(self, batch: int) -> int:
        """The batches are spread over the day; the last one is in its last bucket."""
        return FIRST + BUCKETS - 1 - (self.batches - 1 - batch) * BUCKETS // max(self.batches, BUCKETS)

    def start(self) -> Driver:
        """Its one driver."""
        Incarnations(self.database).add_instance(self.instance, self.instance)
        incarnation = Incarnations(self.database).register(self.instance, "receive", uuid4())
        return Incarnations(self.database).bump(incarnation, "bench")

    def place(self, driver: Driver, batch: int, bucket: int, partition: int = 0) -> catalog.Place:
        """Where a unit is."""
        return catalog.Place(self.instance, bucket, 0, driver.incarnation, batch, partition, PARTITIONS)

    def fill(self, driver: Driver, batch: int, bucket: int) -> None:
        """The chunks of one batch, in the bucket of its ingestion time, and the batch as it is when it has ended."""
        self._begin(driver, batch, bucket)
        for partition in range(PARTITIONS):
            ids = self.chunk(batch, partition)
            place, stored, made = self.place(driver, batch, bucket, partition), filters.pack(ids), filters.make(ids)
            Chunks(self.database).add(place, stored, made)  # type: ignore[misc]
        ended = {"incarnation": driver.incarnation, "batch_id": batch, "read": BATCH}
        run(self.database, lambda conn: conn.execute(text(ENDED), ended))

    def collect(self) -> None:
        """What the hourly collections have done by now: merged chunks, and filters over several buckets."""
        horizon = replace(SHOP, dedup_horizon=BUCKETS * gc.BUCKET)
        while any(
            operate_gc.collect_instance(self.database, self.instance, horizon, [])[part]
            for part in ("into", "range filters")
        ):
            pass

    def chunk(self, batch: int, partition: int) -> Ids:
        """The ids of a batch's partition: the same whenever they are asked for."""
        return uniform(np.random.default_rng([self.ids, batch, partition]), CHUNK, partition)

    def begin(self, driver: Driver, batch: int) -> catalog.Place:
        """The next batch, begun in the log."""
        bucket = FIRST + BUCKETS
        self._begin(driver, batch, bucket)
        return self.place(driver, batch, bucket)

    def _begin(self, driver: Driver, batch: int, bucket: int) -> None:
        plan = Plan(
            incarnation=driver.incarnation, batch_id=batch, source_from=None, source_to={}, offsets_hash=str(batch),
            partitions=PARTITIONS, ingestion_time=datetime.fromtimestamp(bucket * catalog.BUCKET_SECONDS, UTC),
            bucket=bucket, settings={}, mode="exactly_once", declaration_hash="bench",
        )  # fmt: skip
        Batches(self.database).begin(driver, self.instance, plan, None)


def uniform(made: np.random.Generator, count: int, partition: int) -> Ids:
    """Ids as the hash gives them, of one partition."""
    high, low = (made.integers(0, 2**64, count, dtype=np.uint64) for _ in range(2))
    return high & ~np.uint64(1) | np.uint64(partition), low


class Judged(NamedTuple):
    """What a worker took for its part of a batch; megabytes are the most that it has held so far, shared or not, and
    what it holds now for itself alone."""

    seconds: float
    cpu_seconds: float
    megabytes: float
    private_megabytes: float


class Workers:
    """A process for each partition, as Spark keeps them; each remembers what it has loaded, in files below one folder,
    as those of an executor do."""

    def __init__(self, filled: Catalog, driver: Driver) -> None:
        self.filled, self.driver, self.next = filled, driver, filled.batches
        self._folder = TemporaryDirectory()
        share, below = look_up.share_below, (Path(self._folder.name),)
        self._pools = [
            ProcessPoolExecutor(1, get_context("spawn"), initializer=share, initargs=below) for _ in range(PARTITIONS)
        ]

    def judge(self, oldest: int) -> Judged:
        """Judge a batch with 5 % re-deliveries of the batches from `oldest` on. Gives the worst of its workers."""
        place = self.filled.begin(self.driver, self.next)
        asked = [
            pool.submit(judge, self.filled, self.driver.epoch, place, partition, oldest)
            for partition, pool in enumerate(self._pools)
        ]
        answers = [answer.result() for answer in asked]
        self.next += 1
        return Judged(*[max(figures) for figures in zip(*answers, strict=True)])

    def end(self) -> None:
        """End the processes, and remove what they have shared."""
        for pool in self._pools:
            pool.shutdown()
        self._folder.cleanup()


def delivered(filled: Catalog, batch: int, partition: int, oldest: int) -> Ids:
    """The ids of a new batch's partition, with re-deliveries of the batches from `oldest` on."""
    made = np.random.default_rng([filled.ids, batch, partition, 1])
    high, low = uniform(made, CHUNK - AGAIN, partition)
    sources = made.integers(oldest, filled.batches, AGAIN)
    for source, wanted in zip(*np.unique(sources, return_counts=True), strict=True):
        ids = filled.chunk(int(source), partition)
        chosen = made.choice(CHUNK, int(wanted), replace=False)
        high, low = np.concatenate([high, ids[0][chosen]]), np.concatenate([low, ids[1][chosen]])
    return high, low


class LookedUp(NamedTuple):
    """One partition's look-up in this process: what it took with re-deliveries; the seconds of one of new ids alone,
    once all is in memory."""

    took: catalog.LookUps
    new_seconds: float
    filters: int
    bytes_an_id: float


def looked_up(filled: Catalog, driver: Driver, oldest: int) -> LookedUp:
    """Look up one partition's part of a batch, a few times."""
    place = filled.place(driver, filled.batches + 1000, FIRST + BUCKETS)
    look_up.forget()
    took = look_up.look_up(filled.database, place, delivered(filled, place.batch_id, 0, oldest)).took
    seconds = []
    for number in range(5):
        new = uniform(np.random.default_rng([filled.ids, number, 2]), CHUNK, 0)
        began = time.monotonic()
        look_up.look_up(filled.database, place, new)
        seconds.append(time.monotonic() - began)
    listed = run(filled.database, lambda conn: (RangeFilters(conn).visible(place), Chunks(conn).visible(place)))
    groups, alone = range_filters.shared(*listed)
    held = run(filled.database, lambda conn: _filter_bytes(conn, filled.instance, groups, alone))
    ids = sum(chunk.id_count for chunk in listed[1])
    return LookedUp(took, sorted(seconds)[2], len(groups) + len(alone), held / ids)


def _filter_bytes(connection: Connection, instance: str, groups: list[Any], alone: list[catalog.Chunk]) -> int:
    """What the filters take that a look-up asks for new ids."""
    ranges = [RangeFilters(connection).stored(instance, of) for of, _ in groups]
    chunks = Chunks(connection).filters(instance, [chunk.key for chunk in alone])
    return sum(one.nbytes for one in ranges if one) + sum(len(stored or b"") for stored in chunks.values())


def collected(url: str) -> float:
    """The seconds that it takes to collect a bucket of a million ids, once its time is over."""
    filled = Catalog(url, 1_000_000)
    driver = filled.start()
    for batch in range(filled.batches):
        filled.fill(driver, batch, FIRST)
    database, instance = filled.database, filled.instance
    run(database, lambda conn: do(conn, "gc", "raise_floor", instance=instance, floor=FIRST + 1))
    (gone,) = Collector(database).below_floor(instance)
    began = time.monotonic()
    dropped = Collector(database).drop(instance, gone)
    seconds = time.monotonic() - began
    assert dropped is not None
    assert dropped.ids == filled.ids
    return seconds


def judge(filled: Catalog, epoch: int, begun: catalog.Place, partition: int, oldest: int) -> Judged:
    """One unit, by the product's function, in this process."""
    columns = _columns(*delivered(filled, begun.batch_id, partition, oldest), partition)
    work = unit.Work(filled.database, begun, epoch)
    began, used = time.monotonic(), time.process_time()
    verdicts = list(unit.judge(work)(iter([columns])))
    seconds, cpu = time.monotonic() - began, time.process_time() - used
    fates = np.concatenate([verdict.fates for verdict in verdicts])
    assert (fates == unit.DUPLICATE).sum() == AGAIN, "a re-delivery was not found, or a new record was taken for one"
    return Judged(seconds, cpu, _kilobytes("VmHWM") / 1024, _kilobytes("RssAnon") / 1024)


def _kilobytes(of: str) -> int:
    """`VmHWM`: the most that this process has held, while `getrusage` tells at least what the process that started it
    held.

    `RssAnon`: what it holds now that is in no file, so that no other process can share it."""
    [found] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{of}:")]
    return int(found.split()[1])


def _columns(high: Any, low: Any, partition: int) -> unit.Columns:
    count = len(high)
    code = np.full(count + 1, unit.CANDIDATE, dtype=np.int8)
    code[-1] = unit.SEED
    numbers = [np.append(half, np.uint64(end)).view(np.int64) for half, end in ((high, partition), (low, 0))]
    zeros = pa.array(np.zeros(count + 1, dtype=np.int64))
    return (
        pa.array(code), pa.array(numbers[0]), pa.array(numbers[1]), zeros, zeros,
        pa.array(np.zeros(count + 1, dtype=bool)),
    )  # fmt: skip


def sizes(asked: str | None = None) -> list[int]:
    """The sizes that are asked for: none unless ONLYONCE_BENCH_IDS names them."""
    return [int(part) for part in (asked or os.environ.get("ONLYONCE_BENCH_IDS", "")).split(",") if part]
