"""What brings a batch's blocks from the tasks that read to those that judge, where machines share no disk: Spark's
exchange, or objects in the store.

Blocks of random bytes, as many and as large as those of 500,000 lines. By the store a task puts each block as an object
and tells its name, and the tasks of a second job get them: two requests for each block of a task and partition, and the
objects are to be removed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.core.locations import Location
from onlyonce.engine import worker
from onlyonce.tables import stores
from tests.benchmarks import measure

BYTES, TASKS = 70 << 20, 2
BLOCKS = 5
"""Of each task for each partition: of some seven megabytes, as receive cuts them."""
ROUNDS = 7

Batches = Iterator[pa.RecordBatch]


def _made(batches: Batches) -> Iterator[tuple[int, bytes]]:
    for _ in batches:
        for number in range(BLOCKS * TASKS):
            yield number % TASKS, os.urandom(BYTES // TASKS // TASKS // BLOCKS)


def _as_rows(batches: Batches) -> Batches:
    for target, block in _made(batches):
        yield pa.RecordBatch.from_pydict(
            {"target": pa.array([target], pa.int32()), "block": pa.array([block], pa.binary())}
        )


def _sizes(batches: Batches) -> Batches:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"bytes": [sum(len(block.as_buffer()) for block in batch.column("block"))]})


def by_exchange(tasks: DataFrame, _: Location) -> int:
    """One job; gives the bytes that came."""
    moved = worker.mapped(tasks, _as_rows, "target int, block binary").repartitionById(TASKS, F.col("target"))
    return int(sum(row.bytes for row in worker.mapped(moved, _sizes, "bytes long").collect()))


def by_store(tasks: DataFrame, at: Location) -> int:
    """Two jobs, and the removal."""

    def put(batches: Batches) -> Batches:
        for number, (target, block) in enumerate(_made(batches)):
            name = at / f"{os.urandom(8).hex()}-{number}"
            stores.of(name).put(name, block)
            yield pa.RecordBatch.from_pydict({"target": pa.array([target], pa.int32()), "name": [name.name]})

    there = worker.mapped(tasks, put, "target int, name string").collect()
    shares = [[row.name for row in there if row.target == target] for target in range(TASKS)]

    def get(names: list[str]) -> Batches:
        yield pa.RecordBatch.from_pydict({"bytes": [sum(len(stores.of(at / name).read(at / name)) for name in names)]})

    found = int(sum(row.bytes for row in worker.each(tasks.sparkSession, shares, get, "bytes long").collect()))
    stores.of(at).clear(at)
    return found


def compared(spark: SparkSession, at: Location) -> dict[str, object]:
    """The median seconds of each way, by turns."""
    ways: dict[str, Callable[[DataFrame, Location], int]] = {"by_exchange": by_exchange, "by_store": by_store}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            began = time.monotonic()
            assert (
                way(spark.range(0, TASKS, 1, TASKS), at) == BYTES // TASKS // TASKS // BLOCKS * TASKS * TASKS * BLOCKS
            )
            seconds[name].append(round(time.monotonic() - began, 3))
    return {**{name: measure.median(each[2:]) for name, each in seconds.items()}, "bytes": BYTES}
