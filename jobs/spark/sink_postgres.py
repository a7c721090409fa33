"""The Postgres sink: rows and unit in one transaction, in a pinned number of partitions (protocol step 3).

Where the table is in another database than the log, that database is the authority: it has an epoch row
and units of its own, and the end of the batch copies the units to the platform's log.
"""

from __future__ import annotations

import json
from typing import Any

from psycopg2 import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, DecimalType, MapType, StructField, StructType
from sqlalchemy import Connection

from jobs.commitlog import lineages, units
from jobs.commitlog.connect import Database, do, run
from jobs.commitlog.migrate import migrate_authority
from jobs.failpoints import passing
from jobs.model.backfill import Span
from jobs.model.batch import Batch, Plan
from jobs.model.declare import Output, Postgres
from jobs.model.errors import Refused
from jobs.model.units import Content, UnitId, compare
from jobs.spark import content, postgres_plain, postgres_sums, postgres_unit
from jobs.spark.query import Query
from jobs.spark.run_context import RunContext, connection_url

TYPES = {
    "string": "text", "bigint": "bigint", "int": "integer", "smallint": "smallint", "tinyint": "smallint",
    "boolean": "boolean", "double": "double precision", "float": "real", "date": "date", "binary": "bytea",
    "timestamp": "timestamp with time zone", "timestamp_ntz": "timestamp without time zone", "variant": "jsonb",
}  # fmt: skip
READER = "onlyonce_reader"


class PostgresWriter:
    """Writes one output to its table."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, Postgres)
        self._context, self._query, self._output, self._sink = context, query, output, output.sink
        url = connection_url(output.sink.connection)
        self._authority = output.sink.connection or "platform"
        self._database = query.driver.session(Database(url))
        self._schema, table = output.sink.table.split(".")
        self._table = table + context.target_suffix()
        self._by_window = output.on_backfill == "correct"

    def prepare(self, schema: StructType) -> None:
        """Make schema and table, add new columns, tell their database the epoch; refuse a column of another type."""
        schema = self._stored(schema)
        self._check_keys(schema)
        if self._authority != "platform":
            migrate_authority(self._database.url)
            run(Database(self._database.url), lambda conn: lineages.adopt(conn, self._query.driver))
        kept = {f.name: _type(f) for f in schema.fields}
        columns = {n: t for n, t in kept.items() if n not in self._left_out()}
        beside = postgres_sums.beside(self._table)
        run(self._database, lambda conn: self._check_beside(conn, beside))
        if self._by_window:
            self._fit(beside, kept, ())  # first: a kill between the two must not leave sums without it
        self._fit(self._table, columns, self._sink.keys)

    def _fit(self, table: str, columns: dict[str, str], keys: tuple[str, ...]) -> None:
        there = run(self._database, lambda conn: self._make(conn, table, columns, keys))
        if different := {n: (t, there.get(n)) for n, t in columns.items() if not _same(t, there.get(n))}:
            name, (wanted, found) = next(iter(different.items()))
            raise Refused(
                f"output {self._output.name}: column {name} is {wanted}, but in {self._schema}.{table} it is "
                f"{found or 'missing'}",
                data="nothing was written",
                hint="a changed type needs another name or another table; a new key another table",
            )

    def write(self, batch: Batch, rows: DataFrame, content_of_rows: Content) -> int:
        """One task and one transaction for each pinned partition; at least once, for each that the rows have."""
        if batch.at_least_once:
            return self._plainly(batch, rows, content_of_rows.rows)
        self._commit(batch, rows, self._sink.write, None)
        return 0

    def landed(self, plan: Plan) -> bool:
        """Whether any rows of this batch are noted."""
        return self._noted(plan) > 0

    def replace(self, batch: Batch, rows: DataFrame, content_of_rows: Content, span: Span) -> None:
        """The same where a batch of a backfill has one partition: one transaction deletes and writes."""
        assert batch.plan.partitions == 1, "a reader must never see half a generation"
        self._commit(batch, rows, "replace", tuple(time.isoformat() for time in span.times))

    def _commit(self, batch: Batch, rows: DataFrame, write: str, windows: tuple[str, ...] | None) -> None:
        rows = rows.select(*[f"`{f.name}`" for f in self._stored(rows.schema).fields])
        plan, schema = batch.plan, rows.schema
        key = F.xxhash64(*[F.col(f"`{k}`") for k in self._sink.keys]) if self._sink.keys else content.row_hash(schema)
        hashed = rows.withColumn(postgres_unit.HASH, content.row_hash(schema))
        target = F.pmod(key, F.lit(plan.partitions)).cast("int")
        pinned = hashed.withColumn(postgres_unit.PARTITION, target).repartitionById(
            plan.partitions, F.col(postgres_unit.PARTITION)
        )
        self._check_replay(batch, pinned, schema)
        exported = pinned.select(*[_export(f) for f in schema.fields], postgres_unit.HASH, postgres_unit.PARTITION)
        floats = tuple(f.name for f in content.float_fields(schema))
        unit = UnitId(plan.lineage, plan.batch_id, self._output.name, 0)
        work = postgres_unit.Work(
            self._database, unit, self._query.driver.epoch, self._schema, self._table, write, self._sink.keys, floats,
            windows, self._by_window,
        )  # fmt: skip
        passing("postgres-before-units")
        exported.mapInArrow(postgres_unit.write_unit(work), postgres_unit.RESULT).collect()
        passing("postgres-after-units")

    def _check_replay(self, batch: Batch, pinned: DataFrame, schema: StructType) -> None:
        """Stop a replay that means other data before any of its tasks writes: each sees its own partition only."""
        if not batch.replayed:
            return
        plan = batch.plan
        there = run(self._database, lambda conn: units.contents(conn, plan.lineage, plan.batch_id, self._output.name))
        if not there:
            return
        groups = pinned.groupBy(postgres_unit.PARTITION).agg(*content.aggregates(schema)).collect()
        for unit, found in there.items():
            mine = [group for group in groups if group[postgres_unit.PARTITION] == unit.partition]
            compare(unit, found, content.of_groups(schema, mine))

    def _plainly(self, batch: Batch, rows: DataFrame, count: int) -> int:
        schema = self._stored(rows.schema)
        unit = UnitId(batch.plan.lineage, batch.plan.batch_id, self._output.name, 0)
        work = postgres_unit.Work(
            self._database, unit, self._query.driver.epoch, self._schema, self._table, self._sink.write, self._sink.keys, ()
        )  # fmt: skip
        passing("postgres-before-units")
        # Two rows of the same keys must meet in one task, or nobody would tell.
        placed = rows.repartition(*[F.col(f"`{key}`") for key in self._sink.keys]) if self._sink.keys else rows
        exported = placed.select(*[_export(f) for f in schema.fields])
        exported.mapInArrow(postgres_plain.write_rows(work), postgres_unit.RESULT).collect()
        passing("postgres-after-units")
        return self._noted(batch.plan) - count

    def _noted(self, plan: Plan) -> int:
        name = self._output.name
        return run(self._database, lambda conn: units.noted(conn, plan.lineage, plan.batch_id, name))

    def end(self, connection: Connection, batch: Batch) -> None:
        """Copy the units of another authority to the platform's log; see that all partitions are there."""
        plan = batch.plan
        if self._authority != "platform":
            there = run(self._database, lambda conn: units.of_batch(conn, plan.lineage, plan.batch_id))
            for row in there:
                values = row._asdict() | {"lineage": plan.lineage, "batch_id": plan.batch_id}
                values |= {"float_sums": json.dumps(row.float_sums), "authority": self._authority}
                do(connection, "units", "copy_to_log", **values)
        if batch.at_least_once:
            return
        logged = units.of_batch(connection, plan.lineage, plan.batch_id)
        units.expect(logged, self._output.name, plan.partitions, plan.lineage, plan.batch_id)

    def _stored(self, schema: StructType) -> StructType:
        left_out = set() if self._by_window else self._left_out()
        return StructType([f for f in schema.fields if f.name not in left_out])

    def _left_out(self) -> set[str]:
        # A window adds to the row of its keys; when it happened is no part of the sum, unless it is a key.
        return set(postgres_sums.WINDOW) - set(self._sink.keys) if self._sink.write == "increment" else set()

    def _check_beside(self, connection: Connection, beside: str) -> None:
        """Sums can be corrected only if what each window added was kept from the first row on, without a gap."""
        there, kept = (bool(self._there(connection, name)) for name in (self._table, beside))
        if there and kept != self._by_window:
            raise Refused(
                f"output {self._output.name}: {self._schema}.{self._table} was begun "
                + ("with on_backfill='correct'" if kept else "without on_backfill='correct'"),
                data="nothing was written; what each window has added must be kept from the first row on, or not at all",
                hint="put on_backfill back, or name another table for the output",
            )

    def _check_keys(self, schema: StructType) -> None:
        if missing := [key for key in self._sink.keys if key not in schema.names]:
            raise Refused(
                f"output {self._output.name}: keys {missing} are not among its columns",
                hint=f"it has: {', '.join(schema.names)} (oo_window gives window_start and window_end)",
            )
        numbers = ("bigint", "int", "smallint", "tinyint", "double", "float", "decimal")
        added = [f for f in schema.fields if f.name not in self._sink.keys and f.name not in self._left_out()]
        if self._sink.write == "increment" and (
            wrong := [f.name for f in added if not f.dataType.simpleString().startswith(numbers)]
        ):
            raise Refused(
                f"output {self._output.name}: {', '.join(wrong)} can't be added up",
                hint="increment adds numbers; what is no number belongs into the keys, or use write='upsert'",
            )

    def _make(
        self, connection: Connection, table: str, columns: dict[str, str], keys: tuple[str, ...]
    ) -> dict[str, str]:
        """Make what is missing; gives the columns that are there then."""
        cursor = connection.connection.cursor()
        name = sql.Identifier(self._schema, table)
        parts = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(t)) for n, t in columns.items()]
        if keys:
            # Not a primary key: a key of the user's may be null, and null is one value.
            unique = sql.SQL(", ").join(map(sql.Identifier, keys))
            parts.append(sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(unique))
        schema = sql.Identifier(self._schema)
        # One at a time in a schema, not in a table: of two that grant on the schema at once PostgreSQL fails one.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self._schema,))
        cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
        cursor.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(name, sql.SQL(", ").join(parts)))
        new = [n for n in columns if n not in self._there(connection, table) and n not in keys]
        for column in new:  # not a key: the table's unique constraint was made without it
            part = sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(columns[column]))
            cursor.execute(sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {}").format(name, part))
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (READER,))
        if cursor.fetchone():
            role = sql.Identifier(READER)
            cursor.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, role))
            cursor.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(name, role))
        return self._there(connection, table)

    def _there(self, connection: Connection, table: str) -> dict[str, str]:
        cursor: Any = connection.connection.cursor()
        cursor.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (f'"{self._schema}"."{table}"',),
        )
        return dict(cursor.fetchall())


def _type(field: StructField) -> str:
    kind = field.dataType
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    return TYPES.get(kind.simpleString(), "jsonb")


def _same(wanted: str, found: str | None) -> bool:
    return found is not None and wanted.replace(" ", "") == found.replace(" ", "")


def _export(field: StructField) -> Column:
    """A column in the form that CSV can carry: nested values as JSON, bytes in hexadecimal."""
    column, kind = F.col(f"`{field.name}`"), field.dataType
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\\x"), F.hex(column)).alias(field.name)
    return F.to_json(column).alias(field.name) if _nested(kind) else column


def _nested(kind: DataType) -> bool:
    return isinstance(kind, StructType | ArrayType | MapType) or kind.simpleString() == "variant"
