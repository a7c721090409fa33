"""The Delta sink: one witness unit and one Delta commit for each batch.

The unit says what the commit must hold (rows, content hash) before it is written. A replay with other data stops there.
By the commit's transaction id Delta skips a second commit (docs/specification/delta-commit.md).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructField, StructType

from onlyonce import settings
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.database.transactions import Scope
from onlyonce.declare.outputs import newest
from onlyonce.declare.outputs.output import check_rows
from onlyonce.declare.outputs.sinks import later_window_wins
from onlyonce.declare.pipeline import Delta, Output, target
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.batch import Batch, Plan
from onlyonce.model.errors import Refused
from onlyonce.model.operate.dropping import Place
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.sinks import owner
from onlyonce.model.stored_names import WINDOW_DATE, WINDOW_END, WINDOW_START
from onlyonce.model.units import Content, UnitId
from onlyonce.session.names import quoted
from onlyonce.sinks import content_hash, witness
from onlyonce.sinks.content_hash import Check
from onlyonce.sinks.delta import (
    delta_append,
    delta_deletes,
    delta_features,
    delta_files,
    delta_fit,
    delta_history,
    delta_name,
    delta_replace,
    delta_rows,
    delta_table,
    delta_upsert,
)
from onlyonce.sinks.held_values import Lengths
from onlyonce.sources.parse import columns
from onlyonce.storage import changing, delta, opening, own_tables
from onlyonce.storage.appended import Appended

DATE = WINDOW_DATE
"""The partition column of a windowed table. Each upsert and each backfill goes by it, so that the two don't collide."""

LATER_WINDOW = (
    "t.window_end IS NULL OR t.window_end < s.window_end OR "
    "(t.window_end = s.window_end AND t.window_start <= s.window_start)"
)
"""An upsert whose keys don't say the window: a row of an earlier one comes too late, say by a backfill."""


class DeltaWriter:
    """Writes one output to its Delta table."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, Delta)
        self._context, self._query, self._output, self._sink = context, query, output, output.sink
        self.path = settings.table_location(
            Place(target(context.pipeline, output)).of_run(context.target_suffix()).where
        )
        self._deletes = delta_deletes.of(self.path, self._sink)
        self._read_on: Appended | None = None
        self._schema = StructType()
        self._form: opening.Form | None = None

    def prepare(self, schema: StructType) -> None:
        """Make the table, partitioned by the window's date, or add new columns; refuse one with another type."""
        missing = [key for key in self._sink.keys if key not in schema.names]
        if missing:
            raise Refused(f"output {self._output.name}: keys {missing} are not in {schema.names}")
        check_rows(self._output, {field.name: field.dataType.simpleString() for field in schema.fields})
        ends = delta_history.ENDS if self._sink.write == newest.HISTORY else ()
        full = _with_date(StructType([*(field for field in schema.fields if field.name != self._sink.deletes), *ends]))
        session = self._context.spark
        # A row of an upsert whose keys don't tell its window moves from date to date, so there is no file that is
        # closed.
        settled = self._sink.write == "append" or {*self._sink.keys} & {WINDOW_START, WINDOW_END}
        delta_deletes.refuse_as_target(self.path, self._output)
        if self._deletes:
            self._deletes.prepare(session, schema, self._output)
        delta.make(
            self.path,
            full,
            session,
            [DATE] if DATE in full.names and settled else [],
            {owner.PROPERTY: owner.note(self._context.platform)},
        )
        self._schema, self._form = full, None
        self._check_table(opening.table(self.path))
        if self._sink.table and not self._context.target_suffix():
            delta_name.enter(session, self._output, self._sink.table, self.path)
        if DATE in full.names and not settled:
            delta_table.check_one_row_a_key(session, self.path, self._output.name, self._sink.keys, DATE)

    def _check_table(self, table: DeltaTable) -> None:
        """Check the table, and add the columns that it lacks, unless it has the form in which it was checked last: its
        owner may alter it between two batches, but not replace it."""
        found = opening.form(table)
        if found == self._form:
            return
        if self._form:
            owner.refuse_replaced(str(self.path), self._form.table_id, found.table_id)
        delta_table.check(table, self.path, self._output)
        columns.fit(self.path, self._schema, f"output {self._output.name}")
        self._form = opening.form(opening.table(self.path))

    def lengths(self) -> Lengths:
        """See `SinkWriter`."""
        return delta_features.lengths(delta_rows.schema(self._now().table))

    def write(self, batch: Batch, rows: DataFrame | pa.Table, content: Content) -> int:
        """Witness, write, compare.

        At least once there is no witness, but Delta's transaction: it gives 0 in any mode.
        """
        check = None if batch.at_least_once else partial(witness.check, self._unit(batch), content)
        if isinstance(rows, pa.Table) or not content.rows:
            self._append(batch, rows, content, check)
            return 0
        hashed = _dated(rows if batch.at_least_once else content_hash.hashed(rows))
        self._check_table(self._now().table)
        if self._sink.write == "append":
            delta_fit.check(self._output, self.path, _dated(rows), _dated(rows))
            self._append(batch, hashed, content, check)
            return 0
        folder = self.path / own_tables.folder(self._commit(batch, content))
        with delta_files.settled(hashed, folder, check) if check else nullcontext(hashed) as settled:
            delta_fit.check(self._output, self.path, settled, self._stored(settled), lambda: self._upsert(settled))
            self._witnessed(batch, content, lambda commit: self._change(settled, commit, replayed=batch.replayed))
        return 0

    def _append(self, batch: Batch, rows: DataFrame | pa.Table, content: Content, check: Check | None) -> None:
        self._witnessed(
            batch,
            content,
            lambda commit: delta_append.append(
                rows, self._now(), commit, replayed=batch.replayed, form=self._form, check=check
            ),
        )

    def _change(self, rows: DataFrame, commit: delta.Commit, *, replayed: bool) -> None:
        if self._deletes:
            self._deletes.remember(rows, commit, replayed=replayed)
        changing.change(self.path, commit, self._upsert(rows), replayed=replayed, form=self._form)

    def _witnessed(self, batch: Batch, content: Content, put: Callable[[delta.Commit], object]) -> None:
        """The witness, then what `put` commits; of a batch without rows the witness alone."""
        if not batch.at_least_once:
            self._witness(self._unit(batch), content)
        if content.rows == 0:
            return
        passing("delta-before-write")
        put(self._commit(batch, content))
        passing("delta-after-write")

    def exported(self, batch: Batch, rows: DataFrame) -> DataFrame | None:
        """Return the rows of an append to a table without conditions for a row."""
        if self._sink.write != "append":
            return None
        self._check_table(self._now().table)
        table = self._now().table
        stored = delta_append.stored(_dated(content_hash.hashed(rows)), table)
        if delta_fit.conditions(table, delta_rows.schema(table), stored, rows.columns) or {*rows.columns} - {
            *stored.columns
        }:
            return None
        return stored

    def landed(self, plan: Plan) -> bool:
        """Whether the table has the transaction of this batch."""
        there = delta.version(self.path, self._app_id(plan))
        return there is not None and there >= plan.batch_id

    def replace(self, batch: Batch, rows: DataFrame, content: Content, span: Span) -> None:
        """One commit that takes the windows' rows out and puts the new ones in."""
        self._check_table(opening.table(self.path))
        delta_features.refuse_change(opening.table(self.path), self.path)
        dated, hashed = (one.withColumn(DATE, F.to_date(WINDOW_START)) for one in (rows, content_hash.hashed(rows)))
        delta_fit.check(self._output, self.path, dated, dated)
        self._witness(self._unit(batch), content)
        commit = self._commit(batch, content)
        passing("delta-before-replace")
        check = partial(witness.check, self._unit(batch), content)
        changing.change(self.path, commit, delta_replace.Replace(hashed, self.path, span, DATE, check), form=self._form)
        passing("delta-after-replace")

    def clear(self, has_begun: Callable[[], bool]) -> None:
        """Take out the rows that are there now, in one commit, unless the life that asks has begun a batch.

        Rows that come meanwhile stay.
        """
        table = opening.table(self.path)
        if not has_begun():
            table.delete(
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": f"cleared by: {self._query.lineage}"}
                )
            )

    def end(self, scope: Scope, batch: Batch) -> None:
        """The unit is in the platform's log from its start."""
        witness.end(scope, batch, self._output.name)

    def _now(self) -> Appended:
        """The table as it is now; what of its log earlier batches of the run have read stays read."""
        self._read_on = self._read_on.look() if self._read_on else Appended(self.path)
        return self._read_on

    def _unit(self, batch: Batch) -> UnitId:
        return UnitId(batch.plan.lineage, batch.plan.batch_id, self._output.name, 0)

    def _commit(self, batch: Batch, content: Content) -> delta.Commit:
        # At least once, whatever the first attempt wrote is right: other code may give other rows in a replay.
        meant = batch.plan.offsets_hash if batch.at_least_once else content.exact
        return delta.Commit(
            self._app_id(batch.plan), batch.plan.batch_id, str(self._unit(batch)), self._query.driver.epoch, meant
        )

    def _app_id(self, plan: Plan) -> str:
        return stored_names.result_transaction(self._context.platform, plan.lineage, self._output.name)

    def _witness(self, unit: UnitId, content: Content) -> None:
        witness.witness(self._query.database, unit, self._query.driver.epoch, content, "delta")

    def _upsert(self, rows: DataFrame) -> delta_history.History | delta_upsert.Upsert:
        if self._sink.write == newest.HISTORY:
            return delta_history.History(rows, self.path, self._sink)
        keys, newer = self._sink.keys, self._newer(rows.columns)
        if self._deletes:
            return delta_upsert.Upsert(self._deletes.standing(rows), self.path, keys, newer, self._deletes.column)
        # Rows of the same keys have the same date then, so others are not looked into.
        return delta_upsert.Upsert(rows, self.path, keys, newer, further=[DATE] if WINDOW_START in keys else [])

    def _stored(self, rows: DataFrame) -> DataFrame:
        """The rows that are written as they are in the table: without those that say what is deleted."""
        return rows.filter(~F.col(quoted(self._deletes.column))).drop(self._deletes.column) if self._deletes else rows

    def _newer(self, columns: list[str]) -> Column | None:
        """When an arriving row replaces the one of its keys; None: always."""
        if later_window_wins(self._sink.write, self._sink.keys, columns):
            return F.expr(LATER_WINDOW)
        if not self._sink.newest_by:
            return None
        return delta_upsert.as_new(self._sink.newest_by)


def _dated(rows: DataFrame) -> DataFrame:
    return rows.withColumn(DATE, F.to_date(WINDOW_START)) if WINDOW_START in rows.columns else rows


def _with_date(schema: StructType) -> StructType:
    if WINDOW_START not in schema.names:
        return schema
    return StructType([*schema.fields, StructField(DATE, DateType())])
