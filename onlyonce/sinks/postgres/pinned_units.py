"""The data units of a batch in PostgreSQL: rows in the recorded number of partitions, one task and one transaction for
each.

Used by the sinks whose rows are in the unit's transaction: a table (`sink_postgres`, `sink_mysql`) and the outbox
(`sink_outbox`).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.commitlog import units
from onlyonce.commitlog.units import Units
from onlyonce.database.connect import Database
from onlyonce.database.transactions import Scope
from onlyonce.failpoints import passing
from onlyonce.model.batch import Batch
from onlyonce.model.units import Content
from onlyonce.session import worker
from onlyonce.session.adaptive import planned_once
from onlyonce.sinks.postgres import pinned, postgres_unit


@dataclass(frozen=True)
class PinnedUnits:
    """How one driver commits the units of one sink."""

    database: Database
    sink: str
    epoch: int

    def pinned(self, batch: Batch, rows: DataFrame, key: Column) -> DataFrame:
        """The rows with their hash, in the partitions that the hash `key` names.

        Raises InvariantBroken for a replay that means other data."""
        plan, schema = batch.plan, rows.schema
        found = pinned.pin(rows, schema, F.pmod(key, F.lit(plan.partitions)).cast("int"), plan.partitions)
        if batch.replayed:
            pinned.check_replay(self.database, plan, self.sink, found, schema)
        return found

    def commit(
        self, exported: DataFrame | pa.Table, work: postgres_unit.Work, put: postgres_unit.Put | None = None
    ) -> None:
        """Commit pinned rows, in the form that the table takes. `put` writes them in another database's words."""
        passing("postgres-before-units")
        rows = exported if isinstance(exported, pa.Table) else planned_once(exported)
        worker.ran(rows, postgres_unit.write_unit(work, put), postgres_unit.RESULT)
        passing("postgres-after-units")

    def commit_nothing(self, batch: Batch, nothing: Content) -> None:
        """All units of a batch without rows."""
        passing("postgres-before-units")
        pinned.commit_nothing(self.database, self.epoch, batch, self.sink, nothing)
        passing("postgres-after-units")

    def end(self, scope: Scope, batch: Batch, authority: str) -> None:
        """Copy the units of another authority than the platform to its log; see that all partitions are there."""
        plan = batch.plan
        if authority != "platform":
            for unit in Units(self.database).of_batch(plan.lineage, plan.batch_id):
                Units(scope).copy(plan.lineage, plan.batch_id, unit, authority)
        if batch.at_least_once:
            return
        logged = Units(scope).of_batch(plan.lineage, plan.batch_id)
        units.expect(logged, self.sink, plan.partitions, plan.lineage, plan.batch_id)
