"""Work in Spark's Python workers, and the garbage collection of long-lived processes.

A batch makes more objects when there is more to list, and Python collects after each few hundred. From time to time
Python scans all objects of the process: some 5 ms of a batch of 60 ms, measured with a driver of 260 MB.
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

    They are still freed when nothing refers to them, except as part of a cycle.

    A driver calls this after its session has started, and the daemon of Spark's Python workers before it forks.
    """
    gc.collect()
    gc.freeze()


# Runs work in Spark's Python workers, as functions over Arrow batches.


Batches = Iterator[pa.RecordBatch]
Work = Callable[[Batches], Batches]
Item = TypeVar("Item")
KEPT_FREE = (1 << 25) - (1 << 16)
"""Bytes: the largest allocation by which glibc raises its threshold."""
GONE = "records on their way to their task are gone"
"""The message if blocks were removed: mostly by the driver that has taken over."""


def mapped(rows: DataFrame, work: Work, gives: StructType | str) -> DataFrame:
    """Return the result of work over rows, partitioned as the rows are."""
    names = rows.columns
    # Spark's mapInArrow looks up each column by its bare name, and would read a dot in it as a field of a structure.
    plain = all(map(str.isidentifier, names))

    def of_task(batches: Batches) -> Batches:
        settle()
        return work(batches if plain else (batch.rename_columns(names) for batch in batches))

    return (rows if plain else rows.toDF(*(f"c{at}" for at in range(len(names))))).mapInArrow(of_task, gives)


def ran(rows: DataFrame | pa.Table, work: Work, gives: str) -> pa.Table:
    """Return the result of work over rows: a frame's in Spark's tasks, a table's here in the driver."""
    if isinstance(rows, pa.Table):
        found = [*work(iter(rows.to_batches()))]
        return pa.Table.from_batches(found) if found else pa.table({})
    return mapped(rows, work, gives).toArrow()


def each(
    spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Batches], gives: StructType | str
) -> DataFrame:
    """Return the result of work over each item, each in its own task."""

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
    """Return the first of Spark's local folders, to which it spills, on an executor as in local mode.

    The folder is deleted with the executor. None if Spark has set none.
    """
    first = (environment.variable("SPARK_LOCAL_DIRS") or "").split(",")[0]
    return Path(first) if first else None


@contextmanager
def session_of(database: Database, unit: UnitId) -> Iterator[Database]:
    """Yield the database as the task of a unit reaches it.

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
    """Once in the life of a worker: freeze the existing objects, and keep freed memory.

    After each task pyspark's daemon lets a worker collect all garbage (`pyspark/daemon.py`), which scans every object.
    That takes 70 ms of a processor for the modules of Arrow, SQLAlchemy and Spark, which are never freed.
    """
    gc.collect()
    gc.freeze()
    # The C library returns freed memory to the system from some megabytes on, and gets it again page by page for the
    # next block's arrays: a sixth of the time of reading lines. Freeing one large allocation, never touched, makes it
    # keep twice as much.
    np.empty(KEPT_FREE, np.uint8)
