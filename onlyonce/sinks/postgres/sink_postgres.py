"""The Postgres sink: rows and unit in one transaction, in a fixed number of partitions (docs/specification/unit.md).

If the table is in another database than the log, that database is the authority. It has its own epoch row and units.
The log notes that (`authorities`), and the end of the batch copies the units to the log.

At least once there is no claim, and no hash to compare: a second attempt of a task, or a replay, writes its rows again.
The note in the rows' transaction adds up over all attempts, so the batch can report how many rows are written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from psycopg2 import sql as identifiers
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from sqlalchemy import Connection

from onlyonce import environment
from onlyonce.api.pipeline import Output, Pipeline, Postgres
from onlyonce.commitlog import units
from onlyonce.commitlog.erasures import Erasures
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.commitlog.units import Units
from onlyonce.context import Query, RunContext
from onlyonce.core import ownership
from onlyonce.core.backfill import OpenSpan, Span
from onlyonce.core.batch import Batch, Plan
from onlyonce.core.column_types import Types
from onlyonce.core.erasure import ESCAPES, Mentions
from onlyonce.core.errors import Refused
from onlyonce.core.units import Content, UnitId
from onlyonce.database.connect import Database, Scope, Session, run, transaction
from onlyonce.engine import encoding, worker
from onlyonce.engine.session import quoted
from onlyonce.engine.worker import attempt_name, session_of
from onlyonce.failpoints import passing
from onlyonce.sinks.base import content as base_content
from onlyonce.sinks.base import frames
from onlyonce.sinks.base.content import HASH
from onlyonce.sinks.base.held_values import Lengths
from onlyonce.sinks.base.pinned import PARTITION, RecordBatches
from onlyonce.sinks.base.stored import Mentioned, Rows, Stored
from onlyonce.sinks.postgres import postgres_unit
from onlyonce.sinks.postgres.postgres_table import SinkTable
from onlyonce.sinks.postgres.postgres_unit import PinnedUnits, Put, Work

if TYPE_CHECKING:
    import pandas as pd


def write_rows(work: Work, put: Put = postgres_unit.put_rows) -> Callable[[RecordBatches], RecordBatches]:
    """Return the Arrow function of an at-least-once batch: the rows of one partition → (partition, rows).

    It checks the epoch, writes the rows, notes them and commits. It raises Superseded, and what `put` raises.
    """

    def run_task(batches: RecordBatches) -> RecordBatches:
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


def _commit(work: Work, batches: RecordBatches, put: Put) -> int:
    rows = 0

    def counted() -> RecordBatches:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    with transaction(work.database) as connection:
        Incarnations(connection).check_epoch(work.unit.incarnation, work.epoch)
        put(connection, work, counted())
        Units(connection).note(work.unit, work.epoch, attempt_name(), rows)
        passing("postgres-plain-before-commit")
    passing("postgres-plain-after-commit")
    return rows


class PostgresWriter:
    """Writes one output to its table."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, Postgres)
        self._context, self._query, self._output, self._sink = context, query, output, output.sink
        self._authority = output.sink.connection or "platform"
        self._database = query.driver.session(
            units.database_of(output.sink.connection, output.sink.database_kind),
            context.platform if output.sink.connection else None,
        )
        self._table = SinkTable(self._database, output, output.sink, context.target_suffix())
        self._units = PinnedUnits(self._database, output.name, query.driver.epoch)

    def prepare(self, schema: StructType) -> None:
        """Make schema and table, or add new columns; store the epoch in their database.

        Raise Refused if a type differs.
        """
        if self._authority != "platform":
            units.adopt_authority(self._context.database, self._query.driver, self._authority)
        self._table.prepare(schema)

    def lengths(self) -> Lengths:
        """See `SinkWriter`."""
        return self._table.lengths

    def write(self, batch: Batch, rows: DataFrame | pa.Table, content_of_rows: Content) -> int:
        """Write each pinned partition by one task in one transaction; at least once, each partition of the rows."""
        if batch.at_least_once:
            assert isinstance(rows, DataFrame)
            return self._plainly(batch, rows, content_of_rows.rows)
        if content_of_rows.rows == 0:
            self._units.commit_nothing(batch, content_of_rows)
            return 0
        self._commit(batch, rows, content_of_rows, self._sink.write, None)
        return 0

    def exported(self, batch: Batch, rows: DataFrame) -> DataFrame | None:
        """Return the rows of a batch of one partition, whose task the driver is; else None."""
        if batch.at_least_once or batch.plan.partitions != 1:
            return None
        stored = self._stored(rows)
        return _in_copy(
            stored.withColumn(HASH, base_content.row_hash(stored.schema)).withColumn(PARTITION, F.lit(0)), stored.schema
        )

    def landed(self, plan: Plan) -> bool:
        """Return whether any rows of this batch are noted."""
        return Units(self._database).noted(plan.incarnation, plan.batch_id, self._output.name) > 0

    def replace(self, batch: Batch, rows: DataFrame, content_of_rows: Content, span: Span) -> None:
        """Replace the windows' rows: a batch of a backfill has one partition, so one transaction deletes and writes."""
        self._replace(batch, rows, content_of_rows, "replace", span)

    def replace_open(self, batch: Batch, rows: DataFrame, content_of_rows: Content, span: OpenSpan) -> None:
        """Replace the rows of the open windows. The batch has one partition, as a batch of a backfill has."""
        self._replace(batch, rows, content_of_rows, "replace open", span)

    def _replace(
        self, batch: Batch, rows: DataFrame, content_of_rows: Content, write: str, span: Span | OpenSpan
    ) -> None:
        assert batch.plan.partitions == 1, "a reader must never see half a generation"
        self._commit(batch, rows, content_of_rows, write, tuple(time.isoformat() for time in span.times))

    def _commit(
        self, batch: Batch, rows: DataFrame | pa.Table, content: Content, write: str, windows: tuple[str, ...] | None
    ) -> None:
        exported = rows if isinstance(rows, pa.Table) else self._pinned(batch, self._stored(rows))
        columns = exported.column_names if isinstance(exported, pa.Table) else exported.columns
        self._units.commit(exported, self._work(batch, content, columns, write, windows))

    def _pinned(self, batch: Batch, rows: DataFrame) -> DataFrame:
        keys = [F.col(quoted(key)) for key in self._sink.keys]
        return _in_copy(
            self._units.pinned(batch, rows, F.xxhash64(*keys) if keys else base_content.row_hash(rows.schema)),
            rows.schema,
        )

    def _stored(self, rows: DataFrame) -> DataFrame:
        return rows.select(*[quoted(f.name) for f in self._table.stored(rows.schema).fields])

    def _work(
        self, batch: Batch, content: Content, columns: Sequence[str], write: str, windows: tuple[str, ...] | None
    ) -> postgres_unit.Work:
        unit = UnitId(batch.plan.incarnation, batch.plan.batch_id, self._output.name, 0)
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
            tuple(base_content.names_of(columns).items()),
            sequence_by=self._sink.sequence_by,
            delete_when=self._sink.delete_when,
        )

    def _plainly(self, batch: Batch, rows: DataFrame, count: int) -> int:
        schema = self._table.stored(rows.schema)
        unit = UnitId(batch.plan.incarnation, batch.plan.batch_id, self._output.name, 0)
        work = postgres_unit.Work(
            self._database, unit, self._query.driver.epoch, self._table.schema, self._table.name, self._sink.write,
            self._sink.keys, (), sequence_by=self._sink.sequence_by,
        )  # fmt: skip
        passing("postgres-before-units")
        # Two rows of the same keys must be in one task, which detects them.
        placed = rows.repartition(*[F.col(quoted(key)) for key in self._sink.keys]) if self._sink.keys else rows
        exported = placed.select(*[encoding.in_copy(f) for f in schema.fields])
        worker.mapped(exported, write_rows(work), postgres_unit.RESULT).collect()
        passing("postgres-after-units")
        return Units(self._database).noted(batch.plan.incarnation, batch.plan.batch_id, self._output.name) - count

    def clear(self, has_begun: Callable[[], bool]) -> None:
        """Delete all rows, in one transaction that checks the epoch, unless the calling incarnation has begun a
        batch.
        """
        if has_begun():
            return

        def work(connection: Connection) -> None:
            Incarnations(connection).check_epoch(self._query.incarnation, self._query.driver.epoch)
            self._table.clear(connection)

        run(self._database, work)

    def end(self, scope: Scope, batch: Batch) -> None:
        """Copy another authority's units to the platform's log, and check that no partition is missing."""
        self._units.end(scope, batch, self._authority)


def _in_copy(pinned: DataFrame, schema: StructType) -> DataFrame:
    """Return rows that have their HASH and PARTITION as COPY gets them."""
    return pinned.select(
        *[encoding.in_copy(f) for f in schema.fields], *base_content.carried(schema, schema.names), HASH, PARTITION
    )


# What a table of PostgreSQL stores: its rows, whole TOASTed values, and the column values in the planner's statistics.


AT_ONCE = 10_000
GOES = "delete these rows in your table, then VACUUM (FULL, ANALYZE) it"
STATISTICS_GO = "ANALYZE the table once it has other rows; statistics of an empty table stay until it is dropped"


@dataclass(frozen=True)
class StoredInPostgres(Stored):
    """A table, and its table of deleted keys."""

    platform: Database
    sink: Postgres

    def rows(self, mentions: Mentions) -> Iterator[Rows]:
        """Yield which tables have rows or statistics that mention the condition."""
        for table in self._tables():
            if count := run(self._database(), lambda conn: counted(conn, table, mentions)):  # noqa: B023 - it is called here
                yield Rows(f"table {'.'.join(table)}", count, GOES)
            if count := run(self._database(), lambda conn: in_statistics(conn, table, mentions)):  # noqa: B023
                yield Rows(f"pg_stats of {'.'.join(table)}", count, STATISTICS_GO)

    def clean(self, mentions: Mentions, mentioned: Mentioned) -> None:
        """Make new statistics if the old ones mention the condition."""
        session = Session(self._database())
        try:
            for table in self._tables():
                session.ask(lambda conn: _analyze(conn, table, mentions))  # noqa: B023 - it is called here
        finally:
            session.close()

    def stays(self) -> str:
        """Return which copies of replaced rows stay."""
        return f"replaced rows stay on the pages of the table and of its indexes until VACUUM (FULL) {self.sink.table}"

    def _tables(self) -> list[tuple[str, str]]:
        schema, table = self.sink.table.split(".")
        return [(schema, table), (schema, ownership.POSTGRES.deleted(table))]

    def _database(self) -> Database:
        sink = self.sink
        url = self.platform.url if sink.connection is None else environment.variable(sink.connection)
        return Database(url or "", self.platform.name)


def counted(connection: Connection, table: tuple[str, str], mentions: Mentions, instance: str | None = None) -> int:
    """Return how many rows of a table mention the condition; 0 if there is no such table.

    `instance`: only rows of that pipeline.
    """
    columns = Erasures(connection).searched_columns(*table, [*mentions.condition.values])
    if not columns:
        return 0
    of = [identifiers.Identifier(name) for name in columns]
    limits = [_possible(of, mentions)] if mentions.longest_string else []
    if instance is not None and "instance" in columns:
        limits.append(identifiers.SQL("instance = {}").format(identifiers.Literal(instance)))
    where = identifiers.SQL(" AND ").join(limits) if limits else identifiers.SQL("true")
    chosen = identifiers.SQL(", ").join(identifiers.SQL("{}::text").format(one) for one in of)
    cursor = connection.connection.cursor()
    cursor.execute(identifiers.SQL("SELECT {} FROM {} WHERE {}").format(chosen, identifiers.Identifier(*table), where))
    count = 0
    while rows := cursor.fetchmany(AT_ONCE):
        count += sum(mentions.in_row(dict(zip(columns, row, strict=True))) for row in rows)
    return count


def in_statistics(connection: Connection, table: tuple[str, str], mentions: Mentions) -> int:
    """Return for how many columns of a table the planner's statistics mention the condition."""
    return sum(
        mentions.in_row({f"statistics of {column}": values})
        for column, values in Erasures(connection).statistics(*table)
    )


def _possible(columns: Sequence[identifiers.Identifier], mentions: Mentions) -> identifiers.Composed:
    """Return the condition that some column has the longest value or an escape: other rows stay on the server."""
    whole = identifiers.SQL("concat_ws(' ', {})").format(identifiers.SQL(", ").join(columns))
    each = (
        identifiers.SQL("position({} IN {}) > 0").format(identifiers.Literal(one), whole)
        for one in (mentions.longest_string, *ESCAPES)
    )
    return identifiers.SQL("({})").format(identifiers.SQL(" OR ").join(each))


def _analyze(connection: Connection, table: tuple[str, str], mentions: Mentions) -> None:
    if in_statistics(connection, table, mentions):
        connection.connection.cursor().execute(identifiers.SQL("ANALYZE {}").format(identifiers.Identifier(*table)))


# What `targets` asks of each kind.


writer = PostgresWriter


def stored(database: Database, sink: Postgres, where: str) -> Stored:
    """Return what the table stores."""
    return StoredInPostgres(database, sink)


def types_there(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    """Return the types that the sink stores for the columns, and the types of the existing table; None if there is
    none.

    Raise Refused if the rows can't be written to it.
    """
    assert isinstance(output.sink, Postgres)
    try:
        url = units.url_of(output.sink.connection, kind=output.sink.database_kind)
        table = SinkTable(Database(url), output, output.sink, "")
        table.check(schema)  # first: without the schema's privilege PostgreSQL does not say what is there
        there = table.there()
    except FileNotFoundError:
        return None  # the platform was never started, so it has no table
    wanted = table.wanted(schema)
    return (wanted, table.as_wanted(wanted, there), output.sink.table) if there else None


def frame(pipeline: Pipeline, output: Output, instance: str) -> pd.DataFrame:
    """Return the table's rows in memory. Raise Refused."""
    assert isinstance(output.sink, Postgres)
    where = frames.place_of(pipeline, output, instance).where
    schema, table = where.split(".", 1)
    there = identifiers.Identifier(schema, table)
    url = frames.reader_url() if output.sink.connection is None else environment.variable(output.sink.connection)
    if not url:
        raise Refused(
            f"the environment variable {output.sink.connection} "
            f"{environment.why_missing(output.sink.connection or '')}",
            data=frames.NO_ROWS,
            hint="set it to the database's URL",
        )

    def rows(connection: Connection) -> pd.DataFrame:
        cursor: Any = connection.connection.cursor()
        cursor.execute("SELECT to_regclass(%s) IS NULL", (f'"{schema}"."{table}"',))
        if cursor.fetchone()[0]:
            raise frames.not_yet(pipeline, output, instance, where)
        cursor.execute(identifiers.SQL("SELECT * FROM {}").format(there))
        return frames.as_frame(cursor.fetchall(), [column.name for column in cursor.description])

    return frames.read(url, rows)
