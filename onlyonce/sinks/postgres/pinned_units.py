"""The data units of a batch in PostgreSQL: rows in the recorded number of partitions, one task and one transaction for each.

Used by the sinks whose rows are in the unit's transaction: a table (`sink_postgres`) and the outbox (`sink_outbox`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.database.connect import Database
from onlyonce.failpoints import passing
from onlyonce.model.batch import Batch
from onlyonce.model.units import Content
from onlyonce.session import worker
from onlyonce.sinks import content_hash
from onlyonce.sinks.postgres import pinned, postgres_unit


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
        found = pinned.pin(rows, schema, F.pmod(key, F.lit(plan.partitions)).cast("int"), plan.partitions)
        if batch.replayed:
            pinned.check_replay(self.database, plan, self.sink, found, schema)
        return found

    def commit(self, exported: DataFrame, work: postgres_unit.Work) -> None:
        """Commit pinned rows, in the form that the table takes."""
        passing("postgres-before-units")
        worker.mapped(exported, postgres_unit.write_unit(work), postgres_unit.RESULT).collect()
        passing("postgres-after-units")

    def commit_nothing(self, batch: Batch, nothing: Content) -> None:
        """All units of a batch without rows."""
        passing("postgres-before-units")
        pinned.commit_nothing(self.database, self.epoch, batch, self.sink, nothing)
        passing("postgres-after-units")


def floats(schema: StructType) -> tuple[str, ...]:
    """The columns of which a unit keeps sums."""
    return tuple(f.name for f in content_hash.float_fields(schema))
