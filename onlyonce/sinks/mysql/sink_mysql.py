"""The MySQL sink: rows and unit in one transaction of the sink's own database, in a fixed number of partitions.

docs/specification/unit.md. That database is the authority, with its own epochs and units. The log notes that
(`authorities`), and the end of the batch copies the units to the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from sqlalchemy import Connection

from onlyonce import environment
from onlyonce.api.pipeline import MySQL, Output, Pipeline
from onlyonce.commitlog import units
from onlyonce.commitlog.units import Units
from onlyonce.context import Query, RunContext
from onlyonce.core import ownership
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Batch, Plan
from onlyonce.core.column_types import Types
from onlyonce.core.erasure import Mentions
from onlyonce.core.units import Content, UnitId, compare
from onlyonce.database import mysql
from onlyonce.database.connect import Database, Scope, run
from onlyonce.engine import worker
from onlyonce.engine.session import quoted
from onlyonce.failpoints import passing
from onlyonce.sinks.base import content, frames
from onlyonce.sinks.base.content import HASH
from onlyonce.sinks.base.held_values import Lengths
from onlyonce.sinks.base.pinned import PARTITION
from onlyonce.sinks.base.stored import Rows, Stored
from onlyonce.sinks.mysql import mysql_rows, mysql_table
from onlyonce.sinks.mysql.mysql_table import MySQLTable, database_of
from onlyonce.sinks.postgres import postgres_unit, sink_postgres
from onlyonce.sinks.postgres.postgres_unit import PinnedUnits

if TYPE_CHECKING:
    import pandas as pd


class MySQLWriter:
    """Writes one output to its table."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, MySQL)
        self._context, self._query, self._output, self._sink = context, query, output, output.sink
        self._database = query.driver.session(database_of(output.sink))
        self._units = PinnedUnits(self._database, output.name, query.driver.epoch)
        self._table = MySQLTable(self._database, output, output.sink, context.target_suffix())

    def prepare(self, schema: StructType) -> None:
        """Store the epoch in the database; make the table or add new columns.

        Raise Refused for a table that can't work.
        """
        units.adopt_authority(self._context.database, self._query.driver, self._sink.connection)
        self._table.prepare(schema)

    def lengths(self) -> Lengths:
        """See `SinkWriter`."""
        return self._table.lengths

    def write(self, batch: Batch, rows: DataFrame, content_of_rows: Content) -> int:
        """Write each pinned partition by one task in one transaction; at least once, each partition of the rows."""
        if batch.at_least_once:
            return self._plainly(batch, rows, content_of_rows.rows)
        if content_of_rows.rows == 0:
            self._commit_nothing(batch, content_of_rows)
            return 0
        self._commit(batch, rows, self._sink.write, None)
        return 0

    def landed(self, plan: Plan) -> bool:
        """Return whether any rows of this batch are noted."""
        return Units(self._database).noted(plan.incarnation, plan.batch_id, self._output.name) > 0

    def replace(self, batch: Batch, rows: DataFrame, content_of_rows: Content, span: Span) -> None:
        """Replace the windows' rows: a batch of a backfill has one partition, so one transaction deletes and writes."""
        assert batch.plan.partitions == 1, "a reader must never see half a generation"
        self._commit(batch, rows, "replace", tuple(map(_as_text, span.times)))

    def end(self, scope: Scope, batch: Batch) -> None:
        """Copy the units to the platform's log, and check that all partitions are there."""
        self._units.end(scope, batch, self._sink.connection)

    def _commit(self, batch: Batch, rows: DataFrame, write: str, windows: tuple[str, ...] | None) -> None:
        schema, keys = rows.schema, self._sink.keys
        key = F.xxhash64(*[F.col(quoted(k)) for k in keys]) if keys else content.row_hash(schema)
        found = self._units.pinned(batch, rows, key)
        exported = found.select(
            mysql_table.column_row(schema).alias(mysql_rows.ROW),
            *content.carried(schema),
            HASH,
            PARTITION,
        )
        beside = tuple(content.names_of(exported.columns).items())
        self._units.commit(
            exported, self._work(batch.plan, write, windows, beside), mysql_rows.putting(_loaded(schema))
        )

    def _plainly(self, batch: Batch, rows: DataFrame, count: int) -> int:
        keys = [F.col(quoted(key)) for key in self._sink.keys]
        # Two rows of the same keys must be in one task, which detects them.
        placed = rows.repartition(*keys) if keys else rows
        passing("postgres-before-units")
        task = sink_postgres.write_rows(
            self._work(batch.plan, self._sink.write, None, ()), mysql_rows.putting(_loaded(rows.schema))
        )
        exported = placed.select(mysql_table.column_row(rows.schema).alias(mysql_rows.ROW))
        worker.mapped(exported, task, postgres_unit.RESULT).collect()
        passing("postgres-after-units")
        return Units(self._database).noted(batch.plan.incarnation, batch.plan.batch_id, self._output.name) - count

    def _commit_nothing(self, batch: Batch, nothing: Content) -> None:
        """Commit all units of a batch without rows in one driver transaction: in most batches no window closes."""
        plan, epoch = batch.plan, self._query.driver.epoch

        def work(connection: Connection) -> None:
            for partition in range(plan.partitions):
                unit = UnitId(plan.incarnation, plan.batch_id, self._output.name, partition)
                there = Units(connection).claim(units.Claim(unit, epoch, "driver", "data"))
                if there is None:
                    Units(connection).fill(unit, nothing)
                else:
                    compare(unit, there, nothing)

        passing("postgres-before-units")
        run(self._database, work)
        passing("postgres-after-units")

    def _work(
        self, plan: Plan, write: str, windows: tuple[str, ...] | None, beside: tuple[tuple[str, str], ...]
    ) -> postgres_unit.Work:
        unit = UnitId(plan.incarnation, plan.batch_id, self._output.name, 0)
        return postgres_unit.Work(
            self._database,
            unit,
            self._query.driver.epoch,
            "",
            self._table.name,
            write,
            self._sink.keys,
            (),
            windows,
            beside=beside,
            sequence_by=self._sink.sequence_by,
            delete_when=self._sink.delete_when,
        )


def _loaded(schema: StructType) -> mysql_rows.Loaded:
    return mysql_rows.Loaded(tuple(schema.names), mysql_table.binary_column(schema), mysql_table.text_columns(schema))


def _as_text(time: datetime) -> str:
    """Return a time as the columns store it: UTC, without a zone."""
    return (
        time.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
    )  # strftime does not pad years before 1000


# What an output's table in MySQL or MariaDB stores.


@dataclass(frozen=True)
class StoredInMySQL(Stored):
    """A table, and its table of deleted keys."""

    platform: Database
    sink: MySQL

    def rows(self, mentions: Mentions) -> Iterator[Rows]:
        """Yield each of the two tables with rows that mention the condition."""
        database = Database(environment.variable(self.sink.connection) or "", self.platform.name)
        for table in (self.sink.table, ownership.MYSQL.deleted(self.sink.table)):
            if count := run(database, lambda conn: _count(conn, table, mentions)):  # noqa: B023 - it is called here
                yield Rows(f"table {table}", count, "delete these rows in your table")

    def stays(self) -> str:
        """Return which copies of replaced rows stay."""
        return (
            "InnoDB purges replaced rows by itself; pages, the redo log and the binary log have them until they "
            "are written over (binlog_expire_logs_seconds); "
            "statistics that ANALYZE TABLE keeps of columns (histograms) have values until it makes them again"
        )


def _count(connection: Connection, table: str, mentions: Mentions) -> int:
    if not mysql.tables(connection, table):
        return 0
    rows = connection.exec_driver_sql(f"SELECT * FROM {mysql.quoted(connection, table)}")
    return sum(mentions.in_row(dict(row._mapping)) for row in rows)


# What `targets` asks of each kind.


writer = MySQLWriter


def stored(database: Database, sink: MySQL, where: str) -> Stored:
    """Return what the table stores."""
    return StoredInMySQL(database, sink)


def types_there(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    """Return the types of the columns as the sink has them, and of the existing table; None if there is none.

    Raise Refused if the rows can't be written to it.
    """
    assert isinstance(output.sink, MySQL)
    table = MySQLTable(database_of(output.sink), output, output.sink, "")
    there = table.there()
    table.check(schema)
    wanted = table.wanted(schema)
    return (wanted, table.as_wanted(wanted, there), output.sink.table) if there else None


def frame(pipeline: Pipeline, output: Output, instance: str) -> pd.DataFrame:
    """Return the table's rows in memory. Raise Refused."""
    assert isinstance(output.sink, MySQL)
    where = frames.place_of(pipeline, output, instance).where

    def rows(connection: Connection) -> pd.DataFrame:
        if not mysql.tables(connection, where):
            raise frames.not_yet(pipeline, output, instance, where)
        found = connection.exec_driver_sql(f"SELECT * FROM {mysql.quoted(connection, where)}")
        return frames.made(list(map(tuple, found)), list(found.keys()))

    return frames.read(database_of(output.sink).url, rows)
