"""The data units of a batch in PostgreSQL: rows in the recorded number of partitions, one task and one transaction for each.

For the sinks whose rows are in the unit's transaction: a table (`sink_postgres`) and the outbox (`sink_outbox`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from sqlalchemy import Connection

from jobs.commitlog import units
from jobs.commitlog.connect import Database, run
from jobs.failpoints import passing
from jobs.model.batch import Batch, Plan
from jobs.model.units import Content, UnitId, compare
from jobs.spark import content, postgres_unit


@dataclass(frozen=True)
class PinnedUnits:
    """How one driver commits the units of one sink."""

    database: Database
    sink: str
    epoch: int

    def pinned(self, batch: Batch, rows: DataFrame, key: Column) -> DataFrame:
        """The rows with their hash, in the partitions that the hash `key` names. Raises InvariantBroken for a replay that
        means other data."""
        plan, schema = batch.plan, rows.schema
        hashed = rows.withColumn(postgres_unit.HASH, content.row_hash(schema))
        target = F.pmod(key, F.lit(plan.partitions)).cast("int")
        pinned = hashed.withColumn(postgres_unit.PARTITION, target).repartitionById(
            plan.partitions, F.col(postgres_unit.PARTITION)
        )
        self._check_replay(batch, pinned, schema)
        return pinned

    def commit(self, exported: DataFrame, work: postgres_unit.Work) -> None:
        """Commit pinned rows, in the form that the table takes."""
        passing("postgres-before-units")
        exported.mapInArrow(postgres_unit.write_unit(work), postgres_unit.RESULT).collect()
        passing("postgres-after-units")

    def commit_nothing(self, plan: Plan, nothing: Content) -> None:
        """All units of a batch without rows, in one transaction of the driver: in most batches no window closes."""

        def work(connection: Connection) -> None:
            for partition in range(plan.partitions):
                unit = UnitId(plan.lineage, plan.batch_id, self.sink, partition)
                there = units.claim(connection, units.Claim(unit, self.epoch, "driver", "data"))
                if there is None:
                    units.fill(connection, unit, nothing)
                else:
                    compare(unit, there, nothing)

        passing("postgres-before-units")
        run(self.database, work)
        passing("postgres-after-units")

    def _check_replay(self, batch: Batch, pinned: DataFrame, schema: StructType) -> None:
        """Stop a replay that means other data before any of its tasks writes: each sees its own partition only."""
        if not batch.replayed:
            return
        plan = batch.plan
        there = run(self.database, lambda conn: units.contents(conn, plan.lineage, plan.batch_id, self.sink))
        if not there:
            return
        groups = pinned.groupBy(postgres_unit.PARTITION).agg(*content.aggregates(schema)).collect()
        for unit, found in there.items():
            mine = [group for group in groups if group[postgres_unit.PARTITION] == unit.partition]
            compare(unit, found, content.of_groups(schema, mine))


def floats(schema: StructType) -> tuple[str, ...]:
    """The columns of which a unit keeps sums."""
    return tuple(f.name for f in content.float_fields(schema))
