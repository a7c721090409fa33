"""The work of one task of a Postgres sink in at-least-once mode: check the epoch, write the rows, note them, commit.

There is no claim, and no hash to compare: a second attempt of a task, or a replay, writes its rows again. The note in
the rows' transaction adds up over all attempts, so the batch can tell how many rows are there twice.

Who calls it: `sink_postgres`. Raises Superseded, and what `postgres_unit.put_rows` raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from onlyonce.commitlog.lineages import Lineages
from onlyonce.commitlog.units import Units
from onlyonce.database.connect import transaction
from onlyonce.failpoints import passing
from onlyonce.session.worker import attempt_name, session_of
from onlyonce.sinks.postgres import postgres_unit
from onlyonce.sinks.postgres.pinned import Batches
from onlyonce.sinks.postgres.postgres_unit import Put, Work


def write_rows(work: Work, put: Put = postgres_unit.put_rows) -> Callable[[Batches], Batches]:
    """The Arrow function of a batch: the rows of one partition → (partition, rows)."""

    def run_task(batches: Batches) -> Batches:
        context: Any = TaskContext.get()
        here = replace(work, unit=replace(work.unit, partition=context.partitionId()))
        first = next(batches, None)
        rows = 0
        if first is not None:
            with session_of(work.database, here.unit) as database:
                rows = _commit(replace(here, database=database), chain([first], batches), put)
        yield pa.RecordBatch.from_pydict(
            {"partition": pa.array([here.unit.partition], pa.int32()), "rows": pa.array([rows], pa.int64())}
        )

    return run_task


def _commit(work: Work, batches: Batches, put: Put) -> int:
    rows = 0

    def counted() -> Batches:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    with transaction(work.database) as connection:
        Lineages(connection).check_epoch(work.unit.lineage, work.epoch)
        put(connection, work, counted())
        Units(connection).note(work.unit, work.epoch, attempt_name(), rows)
        passing("postgres-plain-before-commit")
    passing("postgres-plain-after-commit")
    return rows
