"""The Iceberg sink: one witness unit and one commit for each batch, which names the batch in the table's own metadata.

As with Delta the unit says what the commit must hold before it is written. The rows are data files that Spark's tasks
write, by pyiceberg, without a jar; the driver commits them (`commits`).
"""

from __future__ import annotations

from functools import cached_property, partial

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, LessThan
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.commitlog.units import Units
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.database.transactions import Scope
from onlyonce.declare.pipeline import Iceberg, Output, target
from onlyonce.model import stored_names
from onlyonce.model.batch import Batch, Plan
from onlyonce.model.errors import Refused
from onlyonce.model.operate.dropping import Place
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.sinks import owner
from onlyonce.model.stored_names import WINDOW_START
from onlyonce.model.units import Content, UnitId
from onlyonce.session.names import quoted
from onlyonce.sinks import content_hash, witness
from onlyonce.sinks.content_hash import Check
from onlyonce.sinks.held_values import Lengths
from onlyonce.sinks.iceberg import catalogs, columns, commits, data_files, iceberg_unit, owners
from onlyonce.sinks.iceberg.iceberg_unit import Batched, Files

START = WINDOW_START


class IcebergWriter:
    """Writes one output to its table."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, Iceberg)
        self._context, self._query, self._output = context, query, output
        self.place = Place(target(context.pipeline, output)).of_run(context.target_suffix())
        self._snapshot: int | None = None
        self._table_id: str | None = None

    def prepare(self, schema: StructType) -> None:
        """Make the table, or add new columns; refuse one that can't work, or is another's."""
        wanted = columns.of(self._output, schema)
        table = columns.make(self._catalog, self.place.where, wanted)
        owners.claim(table, self._owner)
        columns.fit(self._output, table, wanted)
        self._table_id = str(table.metadata.table_uuid)

    def lengths(self) -> Lengths:
        """None: a value may be of any length."""
        return {}

    def write(self, batch: Batch, rows: DataFrame, content: Content) -> int:
        """Witness, write, commit, compare.

        At least once there is no witness, but the property of the table: it gives 0 in any mode.
        """
        table = self._table()
        if content.rows:
            self._check(table, rows)
        if batch.at_least_once:
            iceberg_unit.write_plainly(
                table, self._batched(batch, content), batch.plan.offsets_hash, _written(rows, None)
            )
        else:
            self._snapshot = iceberg_unit.write(
                self._query.database,
                table,
                self._batched(batch, content),
                _written(rows, self._check_written(batch, content)),
            )
        return 0

    def landed(self, plan: Plan) -> bool:
        """Whether the table has this batch."""
        there = commits.last(
            self._table().metadata,
            commits.key(stored_names.writer(self._context.platform, plan.lineage), self._output.name),
        )
        return there is not None and bool(there["batch"] >= plan.batch_id)

    def replace(self, batch: Batch, rows: DataFrame, content: Content, span: Span) -> None:
        """One commit that takes the windows' rows out and puts the new ones in."""
        table = self._table()
        self._check(table, rows)
        self._snapshot = iceberg_unit.write(
            self._query.database,
            table,
            self._batched(batch, content),
            _written(rows, self._check_written(batch, content)),
            _windows(span),
        )

    def end(self, scope: Scope, batch: Batch) -> None:
        """The unit is in the platform's log from its start; the snapshot of its rows is noted."""
        witness.end(scope, batch, self._output.name)
        if self._snapshot is not None:
            Units(scope).note_snapshot(
                UnitId(batch.plan.lineage, batch.plan.batch_id, self._output.name, 0), self._snapshot
            )

    @cached_property
    def _catalog(self) -> Catalog:
        return catalogs.catalog(str(self.place.variable))

    @cached_property
    def _owner(self) -> str:
        return f"{self._context.instance}/{self._output.name} of platform {self._context.platform}"

    def _table(self) -> Table:
        table = catalogs.table(self._catalog, self.place, self._output.name)
        owner.refuse_replaced(self.place.where, self._table_id, str(table.metadata.table_uuid))
        owners.check(table, self._owner)
        columns.refuse(self._output, table)
        return table

    def _batched(self, batch: Batch, content: Content) -> Batched:
        unit = UnitId(batch.plan.lineage, batch.plan.batch_id, self._output.name, 0)
        return Batched(
            unit,
            stored_names.writer(self._context.platform, unit.lineage),
            self._query.driver.epoch,
            content,
            batch.replayed,
        )

    def _check_written(self, batch: Batch, content: Content) -> Check:
        return partial(witness.check, self._batched(batch, content).unit, content)

    def _check(self, table: Table, rows: DataFrame) -> None:
        """Raise Refused for rows that the table does not take, before there is a unit: at each replay it would not take
        them either."""
        names = {name.lower(): name for name in rows.columns}
        for required in (field.name for field in table.schema().fields if field.required):
            if wrong := rows.filter(F.col(quoted(names[required.lower()])).isNull()).limit(1).collect():
                raise Refused(
                    f"output {self._output.name}: {self.place.where} does not take {wrong[0].asDict()}: its column "
                    f"{required} is required",
                    data="nothing of this batch was written to the table",
                    hint="let the transform give rows that the table takes, or make the column optional there",
                )


def _written(rows: DataFrame, check: Check | None) -> Files:
    """Has Spark's tasks write the rows. See `data_files.written`."""
    return lambda table: data_files.written(content_hash.hashed(rows), table, check)


def _windows(span: Span) -> BooleanExpression:
    """The rows whose windows start in a span."""
    first, stop = span.times
    return And(GreaterThanOrEqual(START, first.isoformat()), LessThan(START, stop.isoformat()))
