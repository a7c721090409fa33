"""Puts rows into a fixed number of partitions, which the batch's row in the log has.

Shared by the sinks whose units are tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.commitlog.units import Units
from onlyonce.database.connect import Database
from onlyonce.model.batch import Batch, Plan
from onlyonce.model.errors import InvariantBroken
from onlyonce.model.units import Content, UnitId, compare
from onlyonce.sinks import content_hash
from onlyonce.sinks.content_hash import HASH, Tally

PARTITION = "oo_target"

Batches = Iterator[pa.RecordBatch]


def pin(rows: DataFrame, schema: StructType, target: Column, partitions: int) -> DataFrame:
    """The rows with their hash, each in the partition that `target` tells."""
    hashed = rows.withColumn(HASH, content_hash.row_hash(schema)).withColumn(PARTITION, target)
    return hashed.repartitionById(partitions, F.col(PARTITION))


def check_replay(database: Database, plan: Plan, sink: str, pinned: DataFrame, schema: StructType) -> None:
    """Stop a replay that means other data before any of its tasks writes: each sees its own partition only."""
    there = Units(database).contents(plan.lineage, plan.batch_id, sink)
    if not there:
        return
    meant = content_hash.tallied(pinned, schema, [F.col(PARTITION)])
    nothing = content_hash.nothing(schema)
    for unit, found in there.items():
        compare(unit, found, meant.get((unit.partition,), nothing).content())


def commit_nothing(database: Database, epoch: int, batch: Batch, sink: str, nothing: Content) -> None:
    """All units of a batch without rows, in one transaction of the driver: in most batches no window closes."""
    Units(database).commit_nothing(batch.plan, sink, epoch, nothing, compared=not batch.at_least_once)


def counted(unit: UnitId, batches: Batches, tally: Tally) -> Batches:
    """The batches of a partition as they come, added up; a row of another partition stops the task."""
    for batch in batches:
        targets = batch.column(PARTITION).unique().to_pylist()
        if targets not in ([], [unit.partition]):
            raise InvariantBroken(
                f"unit {unit} has rows of the partitions {targets}",
                data="nothing of this attempt was committed",
                hint="Spark has coalesced or split a pinned exchange: report this with the Spark version",
            )
        tally.add(batch)
        yield batch
