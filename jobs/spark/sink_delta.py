"""The Delta sink: one witness unit and one Delta commit for each batch.

The unit says what the commit must hold (rows, content hash) before it is written; a replay that means
other data stops there. The commit's transaction id makes a second one a skip (protocol step 4).
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructField, StructType
from sqlalchemy import Connection

from jobs import settings
from jobs.commitlog import units
from jobs.commitlog.connect import run
from jobs.failpoints import passing
from jobs.model.backfill import Span
from jobs.model.batch import Batch, Plan, to_time
from jobs.model.declare import Delta, Output, target
from jobs.model.errors import InvariantBroken, Refused
from jobs.model.units import Content, UnitId, compare
from jobs.model.windows import micros
from jobs.spark import columns, delta
from jobs.spark.names import quoted
from jobs.spark.query import Query
from jobs.spark.run_context import RunContext

DATE = "window_date"
"""The partition column of a windowed table. Each MERGE and replaceWhere names it, so that a backfill and
the stream do not collide (experiments, A9)."""

DAY = micros(timedelta(days=1))

MERGE_APP_ID = "spark.databricks.delta.write.txnAppId"
MERGE_VERSION = "spark.databricks.delta.write.txnVersion"
MERGE_NOTE = "spark.databricks.delta.commitInfo.userMetadata"


class DeltaWriter:
    """Writes one output to its Delta table."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, Delta)
        self._context, self._query, self._output, self._sink = context, query, output, output.sink
        self.path = settings.tables_dir() / (
            target(context.pipeline, output).split(":", 1)[1] + context.target_suffix()
        )

    def prepare(self, schema: StructType) -> None:
        """Make the table, partitioned by the window's date, or add new columns; refuse one with another type."""
        missing = [key for key in self._sink.keys if key not in schema.names]
        if missing:
            raise Refused(f"output {self._output.name}: keys {missing} are not in {schema.names}")
        full = _with_date(schema)
        session = self._context.spark
        delta.make(self.path, full, session, [DATE] if DATE in full.names else [], {})
        columns.fit(session, self.path, full, f"output {self._output.name}")

    def write(self, batch: Batch, rows: DataFrame, content: Content) -> int:
        """Witness, write, compare. At least once there is no witness, but Delta's transaction: it gives 0 in any mode."""
        unit = UnitId(batch.plan.lineage, batch.plan.batch_id, self._output.name, 0)
        if not batch.at_least_once:
            self._witness(batch, unit, content)
        if content.rows == 0:
            return 0
        commit = self._commit(batch, unit, content)
        dated = rows.withColumn(DATE, F.to_date("window_start")) if "window_start" in rows.columns else rows
        passing("delta-before-write")
        if self._sink.write == "append":
            delta.append(dated, self.path, commit, [DATE] if DATE in dated.columns else [])
        else:
            self._check_keys(rows)
            delta.once(self.path, commit, lambda: self._merge(dated, commit))
        passing("delta-after-write")
        return 0

    def landed(self, plan: Plan) -> bool:
        """Whether the table has the transaction of this batch."""
        there = delta.version(self.path, self._app_id(plan))
        return there is not None and there >= plan.batch_id

    def replace(self, batch: Batch, rows: DataFrame, content: Content, span: Span) -> None:
        """One commit that takes the windows' rows out and puts the new ones in."""
        unit = UnitId(batch.plan.lineage, batch.plan.batch_id, self._output.name, 0)
        self._witness(batch, unit, content)
        if self._sink.keys:
            self._check_keys(rows)
        commit = self._commit(batch, unit, content)
        dated = rows.withColumn(DATE, F.to_date("window_start"))
        passing("delta-before-replace")
        delta.once(self.path, commit, lambda: delta.replace(dated, self.path, commit, _where(span)))
        passing("delta-after-replace")

    def end(self, connection: Connection, batch: Batch) -> None:
        """The unit is in the platform's log from its start."""
        if batch.at_least_once:
            return
        there = units.of_batch(connection, batch.plan.lineage, batch.plan.batch_id)
        units.expect(there, self._output.name, 1, batch.plan.lineage, batch.plan.batch_id)

    def _commit(self, batch: Batch, unit: UnitId, content: Content) -> delta.Commit:
        # At least once, whatever the first attempt wrote is right: other code may give other rows in a replay.
        meant = batch.plan.offsets_hash if batch.at_least_once else content.exact
        return delta.Commit(self._app_id(batch.plan), batch.plan.batch_id, str(unit), self._query.driver.epoch, meant)

    def _app_id(self, plan: Plan) -> str:
        return f"{plan.lineage}/{self._output.name}"

    def _witness(self, batch: Batch, unit: UnitId, content: Content) -> None:
        def work(connection: Connection) -> None:
            claimed = units.Claim(unit, self._query.driver.epoch, "driver", "witness")
            there = units.claim(connection, claimed)
            passing("delta-unit-after-claim")
            if there is not None:
                compare(unit, there, content)
                return
            units.fill(connection, unit, content)

        passing("delta-unit-before-claim")
        run(self._query.database, work)
        passing("delta-unit-after-commit")

    def _check_keys(self, rows: DataFrame) -> None:
        twice = rows.groupBy(*map(quoted, self._sink.keys)).count().filter("count > 1").limit(1).collect()
        if twice:
            raise InvariantBroken(
                f"output {self._output.name}: two rows of one batch have the keys {twice[0].asDict()}",
                data="nothing of this batch was written to the table",
                hint="the keys must identify a row of the transform's result: group by all of them",
            )

    def _merge(self, rows: DataFrame, commit: delta.Commit) -> None:
        from delta.tables import DeltaTable

        session = rows.sparkSession
        # The transaction of a MERGE is a session setting, and one that stays set skips later writes.
        settings_of_write = {MERGE_APP_ID: commit.app_id, MERGE_VERSION: str(commit.version), MERGE_NOTE: commit.note()}
        condition = [F.col(f"t.{quoted(key)}").eqNullSafe(F.col(f"s.{quoted(key)}")) for key in self._sink.keys]
        if DATE in rows.columns:
            dates = [row[0] for row in rows.select(DATE).distinct().collect()]
            condition += [F.col(f"t.{DATE}").isin(dates), F.col(f"t.{DATE}") == F.col(f"s.{DATE}")]
        matched = condition[0]
        for part in condition[1:]:
            matched &= part
        for key, value in settings_of_write.items():
            session.conf.set(key, value)
        try:
            table = DeltaTable.forPath(session, str(self.path)).alias("t")
            # Not the actions that take all columns: they don't know a backtick in a name.
            values = {quoted(name): F.col(f"s.{quoted(name)}") for name in rows.columns}
            merge = table.merge(rows.alias("s"), matched).whenMatchedUpdate(set=values)
            merge.whenNotMatchedInsert(values=values).execute()
        finally:
            for key in settings_of_write:
                session.conf.unset(key)


def _where(span: Span) -> str:
    """The rows whose windows start in a span, as Delta is told."""
    first, last = (time.isoformat() for time in (span.times[0], to_time(span.stop - 1)) if time)
    # By the dates Delta sees that the stream, which writes other ones, is not in the way.
    dates = f"{DATE} >= DATE'{first[:10]}' AND {DATE} <= DATE'{last[:10]}'"
    if span.start % DAY == span.stop % DAY == 0:
        return dates  # Delta then takes files out whole, and looks into none.
    return f"{dates} AND window_start >= TIMESTAMP'{first}' AND window_start <= TIMESTAMP'{last}'"


def _with_date(schema: StructType) -> StructType:
    if "window_start" not in schema.names:
        return schema
    return StructType([*schema.fields, StructField(DATE, DateType())])
