"""The Postgres sink: rows and unit in one transaction, in a fixed number of partitions (docs/specification/unit.md).

If the table is in another database than the log, that database is the authority. It has its own epoch row and
units; the log notes that (`authorities`), and the end of the batch copies the units to the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from sqlalchemy import Connection

from onlyonce.commitlog import authorities
from onlyonce.commitlog.lineages import Lineages
from onlyonce.commitlog.units import Units
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.database.connect import run
from onlyonce.database.transactions import Scope
from onlyonce.declare.pipeline import Output, Postgres
from onlyonce.failpoints import passing
from onlyonce.model.batch import Batch, Plan
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.units import Content, UnitId
from onlyonce.session import encoding, worker
from onlyonce.session.names import quoted
from onlyonce.sinks import content_hash
from onlyonce.sinks.content_hash import HASH
from onlyonce.sinks.held_values import Lengths
from onlyonce.sinks.postgres import postgres_plain, postgres_unit
from onlyonce.sinks.postgres.pinned import PARTITION
from onlyonce.sinks.postgres.pinned_units import PinnedUnits
from onlyonce.sinks.postgres.postgres_table import SinkTable


class PostgresWriter:
    """Writes one output to its table."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, Postgres)
        self._context, self._query, self._output, self._sink = context, query, output, output.sink
        self._authority = output.sink.connection or "platform"
        self._database = query.driver.session(authorities.database_of(output.sink.connection))
        self._table = SinkTable(self._database, output, output.sink, context.target_suffix())
        self._units = PinnedUnits(self._database, output.name, query.driver.epoch)

    def prepare(self, schema: StructType) -> None:
        """Make schema and table, add new columns, tell their database the epoch; refuse a column of another type."""
        if self._authority != "platform":
            authorities.adopt(self._context.database, self._query.driver, self._authority)
        self._table.prepare(schema)

    def lengths(self) -> Lengths:
        """See `SinkWriter`."""
        return self._table.lengths

    def write(self, batch: Batch, rows: DataFrame | pa.Table, content_of_rows: Content) -> int:
        """One task and one transaction for each pinned partition; at least once, for each that the rows have."""
        if batch.at_least_once:
            assert isinstance(rows, DataFrame)
            return self._plainly(batch, rows, content_of_rows.rows)
        if content_of_rows.rows == 0:
            self._units.commit_nothing(batch, content_of_rows)
            return 0
        self._commit(batch, rows, content_of_rows, self._sink.write, None)
        return 0

    def exported(self, batch: Batch, rows: DataFrame) -> DataFrame | None:
        """Return the rows of a batch of one partition: the driver is its task then."""
        if batch.at_least_once or batch.plan.partitions != 1:
            return None
        stored = self._stored(rows)
        return _in_copy(
            stored.withColumn(HASH, content_hash.row_hash(stored.schema)).withColumn(PARTITION, F.lit(0)), stored.schema
        )

    def landed(self, plan: Plan) -> bool:
        """Whether any rows of this batch are noted."""
        return self._noted(plan) > 0

    def replace(self, batch: Batch, rows: DataFrame, content_of_rows: Content, span: Span) -> None:
        """The same where a batch of a backfill has one partition: one transaction deletes and writes."""
        assert batch.plan.partitions == 1, "a reader must never see half a generation"
        self._commit(batch, rows, content_of_rows, "replace", tuple(time.isoformat() for time in span.times))

    def _commit(
        self, batch: Batch, rows: DataFrame | pa.Table, content: Content, write: str, windows: tuple[str, ...] | None
    ) -> None:
        exported = rows if isinstance(rows, pa.Table) else self._pinned(batch, self._stored(rows))
        columns = exported.column_names if isinstance(exported, pa.Table) else exported.columns
        self._units.commit(exported, self._work(batch, content, columns, write, windows))

    def _pinned(self, batch: Batch, rows: DataFrame) -> DataFrame:
        keys = [F.col(quoted(key)) for key in self._sink.keys]
        return _in_copy(
            self._units.pinned(batch, rows, F.xxhash64(*keys) if keys else content_hash.row_hash(rows.schema)),
            rows.schema,
        )

    def _stored(self, rows: DataFrame) -> DataFrame:
        return rows.select(*[quoted(f.name) for f in self._table.stored(rows.schema).fields])

    def _work(
        self, batch: Batch, content: Content, columns: Sequence[str], write: str, windows: tuple[str, ...] | None
    ) -> postgres_unit.Work:
        unit = UnitId(batch.plan.lineage, batch.plan.batch_id, self._output.name, 0)
        return postgres_unit.Work(
            self._database,
            unit,
            self._query.driver.epoch,
            self._table.schema,
            self._table.name,
            write,
            self._sink.keys,
            tuple(name for name in content.floats if name in columns),
            windows,
            self._table.by_window,
            tuple(content_hash.names_of(columns).items()),
            newest_by=self._sink.newest_by,
            deletes=self._sink.deletes,
        )

    def _plainly(self, batch: Batch, rows: DataFrame, count: int) -> int:
        schema = self._table.stored(rows.schema)
        unit = UnitId(batch.plan.lineage, batch.plan.batch_id, self._output.name, 0)
        work = postgres_unit.Work(
            self._database, unit, self._query.driver.epoch, self._table.schema, self._table.name, self._sink.write,
            self._sink.keys, (), newest_by=self._sink.newest_by,
        )  # fmt: skip
        passing("postgres-before-units")
        # Two rows of the same keys must meet in one task, or nobody would tell.
        placed = rows.repartition(*[F.col(quoted(key)) for key in self._sink.keys]) if self._sink.keys else rows
        exported = placed.select(*[encoding.in_copy(f) for f in schema.fields])
        worker.mapped(exported, postgres_plain.write_rows(work), postgres_unit.RESULT).collect()
        passing("postgres-after-units")
        return self._noted(batch.plan) - count

    def _noted(self, plan: Plan) -> int:
        name = self._output.name
        return Units(self._database).noted(plan.lineage, plan.batch_id, name)

    def clear(self, has_begun: Callable[[], bool]) -> None:
        """Take out all rows, in one transaction that holds the epoch, unless the life that asks has begun a batch."""
        if has_begun():
            return

        def work(connection: Connection) -> None:
            Lineages(connection).check_epoch(self._query.lineage, self._query.driver.epoch)
            self._table.clear(connection)

        run(self._database, work)

    def end(self, scope: Scope, batch: Batch) -> None:
        """Copy the units of another authority to the platform's log; see that all partitions are there."""
        self._units.end(scope, batch, self._authority)


def _in_copy(pinned: DataFrame, schema: StructType) -> DataFrame:
    """Return rows that have their HASH and PARTITION as COPY gets them."""
    return pinned.select(
        *[encoding.in_copy(f) for f in schema.fields], *content_hash.carried(schema, schema.names), HASH, PARTITION
    )
