"""Units of sinks whose rows are not in the unit's transaction, or whose tasks write units of their own.

docs/specification/unit.md. A reference unit says what a commit to Delta or Iceberg must hold, before that is written.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.commitlog import units
from onlyonce.commitlog.units import Units
from onlyonce.core.batch import Batch, Plan
from onlyonce.core.errors import InvariantBroken
from onlyonce.core.units import COMPUTED, Content, UnitId, compare
from onlyonce.database.connect import Database, Scope
from onlyonce.failpoints import passing
from onlyonce.sinks.base import content
from onlyonce.sinks.base.content import HASH, Tally


def reference(database: Database, unit: UnitId, epoch: int, content: Content, points: str) -> None:
    """Claim and fill the reference unit of a batch; compare it if it exists. `points`: the prefix of its fail-points.

    Raise InvariantBroken for a replay with different rows, or Superseded.
    """
    passing(f"{points}-unit-before-claim")
    Units(database).commit(units.Claim(unit, epoch, "driver", "reference"), content, points)
    passing(f"{points}-unit-after-commit")


def check(unit: UnitId, content: Content, found: Content) -> None:
    """Compare what tasks wrote with the unit, before the rows are committed. Raise InvariantBroken if they differ.

    Rows that are lost with an executor are computed again, and may differ.
    """
    if not found.same_as(content):
        again = found.exact != content.exact or found.rows == content.rows
        raise InvariantBroken(
            f"unit {unit} has {content.rows} rows (hash {content.exact}), but Spark's tasks wrote {found.rows} "
            f"rows (hash {found.exact}): "
            + (
                "a part of the rows was computed a second time, and differs"
                if again
                else "the writer of the files left rows out, or wrote them twice"
            ),
            data="nothing of this batch was committed to the table",
            hint=COMPUTED
            if again
            else "report it with the table's schema and partitions; a table without partitions takes the rows",
        )


def end(scope: Scope, batch: Batch, sink: str) -> None:
    """Check that the batch has its unit. An at-least-once batch has none."""
    if batch.at_least_once:
        return
    there = Units(scope).of_batch(batch.plan.incarnation, batch.plan.batch_id)
    units.expect(there, sink, 1, batch.plan.incarnation, batch.plan.batch_id)


# Pinned partitions: their number is in the batch's row in the log. Used by the sinks whose units are tasks.


PARTITION = "oo_target"

RecordBatches = Iterator[pa.RecordBatch]


def pin(rows: DataFrame, schema: StructType, target: Column, partitions: int) -> DataFrame:
    """Return the rows with their hash, each in the partition `target`."""
    hashed = rows.withColumn(HASH, content.row_hash(schema)).withColumn(PARTITION, target)
    return hashed.repartitionById(partitions, F.col(PARTITION))


def check_replay(database: Database, plan: Plan, sink: str, pinned: DataFrame, schema: StructType) -> None:
    """Raise if a replay's rows differ from the committed units, before a task writes: a task sees one partition."""
    there = Units(database).contents(plan.incarnation, plan.batch_id, sink)
    if not there:
        return
    meant = content.tallied(pinned, schema, [F.col(PARTITION)])
    nothing = content.nothing(schema)
    for unit, found in there.items():
        compare(unit, found, meant.get((unit.partition,), nothing).content())


def commit_nothing(database: Database, epoch: int, batch: Batch, sink: str, nothing: Content) -> None:
    """Commit all units of a batch without rows in one transaction of the driver: in most batches no window closes."""
    Units(database).commit_nothing(batch.plan, sink, epoch, nothing, compared=not batch.at_least_once)


def counted(unit: UnitId, batches: RecordBatches, tally: Tally) -> RecordBatches:
    """Yield the batches of a partition and add them up. Raise InvariantBroken for a row of another partition."""
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
