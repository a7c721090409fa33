"""What Python's collector of garbage need not look at again: the libraries of a process that lives on.

A batch makes more objects when there is more to list. Each some hundred of them are a reason to collect, and now and
then Python looks at all that the process holds: some 5 ms of a batch of 60, measured with a driver of 260 MB.
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
    """Collect once, and leave what is left out of all later collections.

    It is still freed when nothing refers to it, but not as part of a circle.

    Who calls it: a driver whose session has started, and the daemon of Spark's Python workers before it forks.
    """
    gc.collect()
    gc.freeze()


# Runs work in Spark's Python workers, as functions over Arrow batches.
#
# Who calls it: whatever reads a source, judges records, or writes a sink by tasks in Python. Errors: those of the work.
# Not promised: how many workers there are, and which one does which part.


Batches = Iterator[pa.RecordBatch]
Work = Callable[[Batches], Batches]
Item = TypeVar("Item")
KEPT_FREE = (1 << 25) - (1 << 16)
"""In bytes: the largest piece from which glibc learns."""
GONE = "records on their way to their task are gone"
"""How it is told that blocks were taken away: mostly by the driver that has taken over."""


def mapped(rows: DataFrame, work: Work, gives: StructType | str) -> DataFrame:
    """Return what work gives of rows, as they lie in Spark's partitions."""
    names = rows.columns
    # Spark's mapInArrow looks up each column by its bare name, and would read a dot in it as a field of a structure.
    plain = all(map(str.isidentifier, names))

    def of_task(batches: Batches) -> Batches:
        settle()
        return work(batches if plain else (batch.rename_columns(names) for batch in batches))

    return (rows if plain else rows.toDF(*(f"c{at}" for at in range(len(names))))).mapInArrow(of_task, gives)


def ran(rows: DataFrame | pa.Table, work: Work, gives: str) -> pa.Table:
    """Return what work gives of rows: those of a frame in Spark's tasks, those of a table here in the driver."""
    if isinstance(rows, pa.Table):
        found = [*work(iter(rows.to_batches()))]
        return pa.Table.from_batches(found) if found else pa.table({})
    return mapped(rows, work, gives).toArrow()


def each(
    spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Batches], gives: StructType | str
) -> DataFrame:
    """What work gives of each item, each in a task of its own."""

    def of_task(numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from work(items[number])

    return mapped(spark.range(0, len(items), 1, max(len(items), 1)), of_task, gives)


def attempt_name() -> str:
    """Which attempt of which task this is, for the log."""
    context: Any = TaskContext.get()
    return f"stage {context.stageId()} task {context.taskAttemptId()}" if context else "driver"


def local_folder() -> Path | None:
    """Where Spark itself spills: the first of its local folders, on an executor as in local mode.

    It goes with the executor. None where Spark told none.
    """
    first = (environment.variable("SPARK_LOCAL_DIRS") or "").split(",")[0]
    return Path(first) if first else None


@contextmanager
def session_of(database: Database, unit: UnitId) -> Iterator[Database]:
    """The database as the task of a unit reaches it, for as long as this is entered.

    Outside of Spark's tasks it is the one that was given.
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
    """Once in the life of a worker: leave what is there now out of all later collections of garbage, and keep memory
    that is free.

    After each task pyspark's daemon has a worker collect all garbage (`pyspark/daemon.py`), and that looks at every
    object: 70 ms of a processor, for the modules of Arrow, SQLAlchemy and Spark, of which none ever goes.
    """
    gc.collect()
    gc.freeze()
    # The C library gives free memory back to the system as soon as it is some megabytes, and has the next block's
    # arrays page by page again: a sixth of the time of reading lines. One large piece that was free (nobody has touched
    # it) tells it to keep twice as much.
    np.empty(KEPT_FREE, np.uint8)
