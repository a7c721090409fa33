"""Run functions over Arrow batches in Spark's Python workers, and keep Python's garbage collector from costing time.

- `mapped`, `ran` and `each` run a function in Spark's tasks. `session_of` gives a task its session in the database.
- `leave_out_what_is_here` keeps the garbage collector from scanning all objects of a driver, and of the daemon that
  forks the workers. `settle` does that for a worker, and also lets it keep freed memory.

Why the garbage collector matters: it runs after each few hundred new objects, and from time to time scans all objects
of the process. Many of them belong to imported modules, which are never freed. In a driver of 260 MB the scan took
about 5 ms of a batch of 60 ms. `gc.freeze` excludes all objects that exist so far.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from onlyonce import environment
from onlyonce.core.units import UnitId
from onlyonce.database import connect
from onlyonce.database.connect import Database


def leave_out_what_is_here() -> None:
    """Collect garbage once, and exclude the remaining objects from all later collections (`gc.freeze`).

    An excluded object is still freed when nothing refers to it, unless it is part of a cycle.

    A driver calls this after its session has started. The daemon of Spark's Python workers calls it before it forks.
    """
    gc.collect()
    gc.freeze()


# Functions over Arrow batches in Spark's Python workers.


Batches = Iterator[pa.RecordBatch]
Work = Callable[[Batches], Batches]
Item = TypeVar("Item")
KEPT_FREE = (1 << 25) - (1 << 16)
"""The bytes of the largest allocation whose release makes glibc keep more freed memory (`settle`)."""
GONE = "records on their way to their task are gone"
"""The message if the blocks of an exchange were removed, in most cases by a driver that has taken over."""


def mapped(rows: DataFrame, work: Work, gives: StructType | str) -> DataFrame:
    """Return the result of `work` over each partition of the rows. `gives`: the schema of the result."""
    names = rows.columns
    # Spark's mapInArrow looks up each column by its bare name, and would read a dot in it as a field of a structure.
    plain = all(map(str.isidentifier, names))

    def of_task(batches: Batches) -> Batches:
        settle()
        return work(batches if plain else (batch.rename_columns(names) for batch in batches))

    return (rows if plain else rows.toDF(*(f"c{at}" for at in range(len(names))))).mapInArrow(of_task, gives)


def ran(rows: DataFrame | pa.Table, work: Work, gives: str) -> pa.Table:
    """Return the result of `work` over rows: over a frame in Spark's tasks, over a table here in the driver."""
    if isinstance(rows, pa.Table):
        found = [*work(iter(rows.to_batches()))]
        return pa.Table.from_batches(found) if found else pa.table({})
    return mapped(rows, work, gives).toArrow()


def each(
    spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Batches], gives: StructType | str
) -> DataFrame:
    """Return the result of `work` over each item, each in its own task."""

    def of_task(numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from work(items[number])

    return mapped(spark.range(0, len(items), 1, max(len(items), 1)), of_task, gives)


def attempt_name() -> str:
    """Return the name of this attempt at a task, for the log."""
    context: Any = TaskContext.get()
    return f"stage {context.stageId()} task {context.taskAttemptId()}" if context else "driver"


def local_folder() -> Path | None:
    """Return the first of the local folders to which Spark spills; None if Spark has set none.

    Each executor has its own, which is deleted with the executor. In local mode the driver has one.
    """
    first = (environment.variable("SPARK_LOCAL_DIRS") or "").split(",")[0]
    return Path(first) if first else None


@contextmanager
def session_of(database: Database, unit: UnitId) -> Iterator[Database]:
    """Yield the database for the task of a unit. Its session is named after the unit and the attempt, if possible.

    The tasks of an executor share a limited number of sessions, since PostgreSQL has room for a few hundred
    (`connect.held_session`). The locks that count them are files in the executor's local folder.

    Outside of Spark's tasks yield the given database.
    """
    folder = local_folder()
    if TaskContext.get() is None or folder is None:
        yield database
        return
    with connect.held_session(
        database, f"{unit.batch_id}/{unit.sink}/{unit.partition} {attempt_name()}", folder
    ) as here:
        yield here


@cache
def settle() -> None:
    """Prepare a worker once: exclude its existing objects from garbage collection, and let it keep freed memory.

    After each task pyspark's daemon collects all garbage in the worker (`pyspark/daemon.py`), which scans every object.
    For the modules of Arrow, SQLAlchemy and Spark, which are never freed, that takes 70 ms of processor time.
    """
    gc.collect()
    gc.freeze()
    # glibc returns large freed arrays to the system, and gets the memory again page by page for the next block's
    # arrays. That was a sixth of the time of reading lines. When one large allocation is freed, glibc raises its
    # threshold and keeps up to twice as many bytes. The allocation is never touched, so it takes no memory.
    np.empty(KEPT_FREE, np.uint8)
