"""The MySQL sink: rows and unit in one transaction of the sink's own database, in a fixed number of partitions.

docs/specification/unit.md. That database is the authority, with its own epochs and units. The log notes that
(`authorities`), and the end of the batch copies the units to the log.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DecimalType, StringType, StructField, StructType
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from onlyonce import environment
from onlyonce.api import sinks
from onlyonce.api.outputs import check_rows
from onlyonce.api.pipeline import MySQL, Output, Pipeline
from onlyonce.commitlog import units
from onlyonce.commitlog.units import Units
from onlyonce.context import Query, RunContext
from onlyonce.core import column_types, ownership, stored_names
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Batch, Plan
from onlyonce.core.column_types import Length, Types
from onlyonce.core.erasure import Mentions
from onlyonce.core.errors import Refused
from onlyonce.core.stored_names import OO_WINDOW, WINDOW_START
from onlyonce.core.units import Content, UnitId, compare
from onlyonce.database import mysql
from onlyonce.database.connect import Database, Scope, run
from onlyonce.engine import encoding, worker
from onlyonce.engine.session import quoted
from onlyonce.failpoints import passing
from onlyonce.sinks.base import content, frames
from onlyonce.sinks.base.content import HASH
from onlyonce.sinks.base.held_values import Lengths
from onlyonce.sinks.base.pinned import PARTITION
from onlyonce.sinks.base.stored import Rows, Stored
from onlyonce.sinks.mysql import mysql_rows
from onlyonce.sinks.postgres import postgres_unit, sink_postgres
from onlyonce.sinks.postgres.postgres_unit import PinnedUnits

if TYPE_CHECKING:
    import pandas as pd


class MySQLWriter:
    """Writes one output to its table."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, MySQL)
        self._context, self._query, self._output, self._sink = context, query, output, output.sink
        self._database = query.driver.session(database_of(output.sink), context.platform)
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
        """Copy the units to the platform's log, and check that no partition is missing."""
        self._units.end(scope, batch, self._sink.connection)

    def _commit(self, batch: Batch, rows: DataFrame, write: str, windows: tuple[str, ...] | None) -> None:
        schema, keys = rows.schema, self._sink.keys
        key = F.xxhash64(*[F.col(quoted(k)) for k in keys]) if keys else content.row_hash(schema)
        found = self._units.pinned(batch, rows, key)
        exported = found.select(
            column_row(schema).alias(mysql_rows.ROW),
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
        exported = placed.select(column_row(rows.schema).alias(mysql_rows.ROW))
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
    return mysql_rows.Loaded(tuple(schema.names), binary_column(schema), text_columns(schema))


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
    """Return the types that the sink stores for the columns, and the types of the existing table; None if there is
    none.

    Raise Refused if the rows can't be written to it.
    """
    assert isinstance(output.sink, MySQL)
    table = MySQLTable(database_of(output.sink), output, output.sink, "")
    wanted = table.wanted(schema)
    there = table.there(wanted)
    table.check(schema)
    return (wanted, table.as_wanted(wanted, there), output.sink.table) if there else None


def frame(pipeline: Pipeline, output: Output, instance: str) -> pd.DataFrame:
    """Return the table's rows in memory. Raise Refused."""
    assert isinstance(output.sink, MySQL)
    where = frames.place_of(pipeline, output, instance).where

    def rows(connection: Connection) -> pd.DataFrame:
        if not mysql.tables(connection, where):
            raise frames.not_yet(pipeline, output, instance, where)
        found = connection.exec_driver_sql(f"SELECT * FROM {mysql.quoted(connection, where)}")
        return frames.as_frame(list(map(tuple, found)), list(found.keys()))

    return frames.read(database_of(output.sink).url, rows)


# The table of a MySQL sink: its database, the types of its columns, and its creation. No Spark session is needed.


def database_of(sink: MySQL) -> Database:
    """Return the database of the sink. Raise Refused if the variable is not set, or if it names another database."""
    return units.database_of(sink.connection, sink.database_kind)


# The columns of a MySQL sink: their types in MySQL, and the JSON string that carries a row.
#
# A row is a JSON array of strings, made by Spark, so that JSON_TABLE loads many rows by one statement with one
# parameter. MySQL reads each string exactly as a value of the column's type: a number in full, a time in UTC, bytes in
# hexadecimal.


TYPES = {
    "string": "longtext",
    "bigint": "bigint",
    "int": "int",
    "smallint": "smallint",
    "tinyint": "tinyint",
    "boolean": "tinyint",
    "double": "double",
    "float": "float",
    "date": "date",
    "binary": "longblob",
    "timestamp": "datetime(6)",
    "timestamp_ntz": "datetime(6)",
    "variant": "longtext",
}
STRINGS, BYTES = (
    re.compile(rf"(long|medium|tiny)?{kind}|var{short}\(\d+\)")
    for kind, short in (("text", "char"), ("blob", "binary"))
)
"""Types that hold strings or bytes unchanged. A CHAR would cut the spaces at its end, and a BINARY adds zeros."""
KEY_BYTES = 2800
"""The bytes that string and binary keys may take of the 3,072 in an InnoDB index. Other keys take the rest."""
MOST_SCALE = 30


def type_of(field: StructField, keys: tuple[str, ...], schema: StructType) -> str:
    """Return the type of a column in MySQL. Raise Refused if a DECIMAL has too many digits.

    A string key is a VARCHAR, since an index takes no longer types.
    """
    kind = field.dataType
    if isinstance(kind, DecimalType):
        if kind.scale > MOST_SCALE:
            raise Refused(
                f"column {field.name} is {kind.simpleString()}; MySQL's DECIMAL has at most {MOST_SCALE} digits "
                "after the point",
                hint="cast it in the transform",
            )
        return f"decimal({kind.precision},{kind.scale})"
    found = TYPES.get(kind.simpleString(), "longtext")
    if field.name in keys and found in ("longtext", "longblob"):
        indexed = [
            f
            for f in schema.fields
            if f.name in keys and TYPES.get(f.dataType.simpleString(), "longtext")[:4] == "long"
        ]
        most = min(255, KEY_BYTES // (4 * len(indexed)))
        return f"varchar({most})" if found == "longtext" else f"varbinary({most})"
    return found


def same_column(wanted: str, found: str) -> bool:
    """Return whether a column of a table holds the wanted values, up to its length.

    Servers write the same type in several ways.
    """
    there = plain(found)
    for kinds in (STRINGS, BYTES):
        if kinds.fullmatch(wanted):  # a key is of a type that an index takes
            return kinds.fullmatch(there) is not None and (wanted.startswith("long") or there.startswith("var"))
    return there == wanted


def plain(found: str) -> str:
    """Return a type as the server writes it, without the display width that some servers add."""
    return re.sub(r"^(tiny|small|medium|big)?int\(\d+\)", r"\1int", found.lower())


def column_row(schema: StructType) -> Column:
    """Return a row as a JSON array of strings, in the order of its columns. `JSON_TABLE` reads it back."""
    return encoding.strings(encoding.in_mysql(field) for field in schema.fields)


def binary_column(schema: StructType) -> tuple[bool, ...]:
    """Return which columns are sent in hexadecimal."""
    return tuple(isinstance(field.dataType, BinaryType) for field in schema.fields)


def text_columns(schema: StructType) -> tuple[str, ...]:
    """Return the string columns, which are ordered by their bytes."""
    return tuple(field.name for field in schema.fields if isinstance(field.dataType, StringType))


# Make the table of a MySQL sink, add new columns to it, and refuse a table that can't keep the sink's promise.
#
# Each CREATE and ALTER commits by itself in MySQL, so these are never in a unit's transaction. They run before the
# first batch, together with all checks, and each may run again. A change that a person makes to the table during a run
# may go unnoticed.


EXACT = {"utf8mb4_nopad_bin", "utf8mb4_0900_bin", "uca1400_nopad_bin"}
"""Collations in which two strings are equal only if all their characters are.

In others 'Shop' equals 'shop', or trailing spaces don't count.
"""
ALREADY_THERE = 1060
WINDOW = WINDOW_START


class MySQLTable:
    """The table that one output writes."""

    def __init__(self, database: Database, output: Output, sink: MySQL, suffix: str) -> None:
        self._database, self._output, self._sink = database, output, sink
        self.name = ownership.MYSQL.table(sink.table, suffix)
        self.lengths: dict[str, Length] = {}
        """The columns of the table that take values up to a length, after `prepare`."""
        self._declared: dict[str, str] = {}

    def prepare(self, schema: StructType) -> None:
        """Make the table, or add new columns.

        Raise Refused for a missing key, or for a type, an engine or an index that can't work.
        """
        check_rows(self._output, {f.name: f.dataType.simpleString() for f in schema.fields})
        if missing := [key for key in self._sink.keys if key not in schema.names]:
            raise Refused(
                f"output {self._output.name}: keys {missing} are not among its columns",
                hint=f"it has: {', '.join(schema.names)} ({OO_WINDOW} gives window_start and window_end)",
            )
        columns = self.wanted(schema)
        ownership.MYSQL.refuse_long(self._output.name, columns, "characters")
        self._declared = {f.name: f.dataType.simpleString() for f in schema.fields}
        if self._sink.delete_when:
            run(self._database, lambda connection: self._remember(connection, columns))
        run(
            self._database,
            lambda connection: self._fit(connection, self.name, columns | (mysql_rows.ENDS if self._versions else {})),
        )
        found = {
            name: column_types.length(kind, mysql=True) for name, kind in self.there(columns).items() if name in columns
        }
        self.lengths = {name: length for name, length in found.items() if length}

    def wanted(self, schema: StructType) -> dict[str, str]:
        """Return the columns that the table must have for an output's rows, with MySQL's types."""
        return {
            f.name: type_of(f, self._sink.row_id, schema) for f in schema.fields if f.name != self._sink.delete_when
        }

    def there(self, wanted: Collection[str]) -> dict[str, str]:
        """Return the columns that the table has now, spelled like the wanted ones, none if there is no table. Change
        nothing.
        """
        found = run(self._database, lambda connection: self._columns(connection, self.name, wanted))
        return {name: plain(column.type) for name, column in found.items()}

    def as_wanted(self, wanted: dict[str, str], there: dict[str, str]) -> dict[str, str]:
        """Return the types of the table.

        A type that takes the same values as the wanted one is returned as the wanted one.
        """
        return {
            name: wanted[name] if name in wanted and same_column(wanted[name], kind) else kind
            for name, kind in there.items()
        }

    @property
    def _versions(self) -> bool:
        return self._sink.write == sinks.HISTORY

    def _remember(self, connection: Connection, columns: dict[str, str]) -> None:
        """Make the table of deleted keys. It is recognised by its comment."""
        name = ownership.MYSQL.deleted(self.name)
        if (there := mysql.tables(connection, name)) and there[0].note != stored_names.DELETED_NOTE:
            self._refuse(
                f"there is a table {name}, which is not the platform's",
                "rename that table, or name another one for the output: what is deleted is kept there",
            )
        kept = (*self._sink.keys, *self._sink.sequence_by, *([stored_names.VALID_FROM] if self._versions else []))
        self._fit(connection, name, {column: columns[column] for column in kept}, stored_names.DELETED_NOTE)

    def _fit(self, connection: Connection, table: str, wanted: dict[str, str], note: str = "") -> None:
        there = self._columns(connection, table, wanted)
        if there:
            self._check(connection, table, wanted, there)
        else:
            self._make(connection, table, wanted, note)
        for name in wanted if there else ():
            if name not in there:
                self._add(connection, table, name, wanted[name])

    def _add(self, connection: Connection, to: str, name: str, kind: str) -> None:
        table, column = (self._quoted(connection, of) for of in (to, name))
        try:
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column} {kind} NULL")
        except OperationalError as error:
            if mysql.code_of(error) != ALREADY_THERE:  # another driver has added it meanwhile
                raise

    def _make(self, connection: Connection, table: str, wanted: dict[str, str], note: str) -> None:
        dialect: Any = connection.dialect
        collation = "utf8mb4_nopad_bin" if dialect.is_mariadb else "utf8mb4_0900_bin"
        keys = self._sink.row_id
        parts = [
            f"{self._quoted(connection, name)} {kind} {'NOT NULL' if name in keys else 'NULL'}"
            for name, kind in wanted.items()
        ]
        if keys:
            parts.append(f"PRIMARY KEY ({', '.join(self._quoted(connection, key) for key in keys)})")
        if WINDOW in wanted and keys[:1] != (WINDOW,):
            parts.append(
                f"INDEX ({self._quoted(connection, WINDOW)})"
            )  # people and backfills search rows by their window
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {self._quoted(connection, table)} ({', '.join(parts)}) "
            f"ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {collation} COMMENT = '{note}'"
        )

    def check(self, schema: StructType) -> None:
        """Raise Refused if the output can't be written to the present table, whatever its columns' types.

        Change nothing.
        """

        def look(connection: Connection) -> None:
            wanted = self.wanted(schema)
            ownership.MYSQL.refuse_long(self._output.name, wanted, "characters")
            if there := self._columns(connection, self.name, wanted):
                self._check(connection, self.name, wanted, there, types=False)

        run(self._database, look)

    def _check(
        self, connection: Connection, name: str, wanted: dict[str, str], there: dict[str, Any], *, types: bool = True
    ) -> None:
        table = mysql.tables(connection, name)[0]
        if name == self.name and table.note in ownership.NOTES:
            self._refuse(f"{name} is a table that the platform keeps for another output's table", "name another table")
        if table.kind != "BASE TABLE" or table.engine != "InnoDB":
            self._refuse(
                f"{name} is a {table.kind.lower() if table.engine is None else f'table of {table.engine}'}: a unit "
                "and its rows "
                "can't be committed together there, and nothing rolls back what a killed task has written",
                f"ALTER TABLE {name} ENGINE = InnoDB, or name another table",
            )
        if types:
            lacking = dict.fromkeys(self._sink.row_id, "missing")  # a key is not added to an existing table
            found = lacking | self.as_wanted(wanted, {column: plain(one.type) for column, one in there.items()})
            column_types.refuse_other(f"output {self._output.name}", name, wanted, found, self._declared)
        for column in wanted:
            if column in there and "GENERATED" in there[column].extra.upper().replace("DEFAULT_GENERATED", ""):
                self._refuse(
                    f"column {column} of {name} is GENERATED ALWAYS, so only the server gives its values",
                    "leave the column out of the function's result",
                )
        required = [column for column, one in there.items() if one.required]
        column_types.refuse_required(f"output {self._output.name}", name, wanted, required)
        if self._sink.row_id and {*self._sink.row_id} <= there.keys():
            self._check_keys(connection, name, there)

    def _check_keys(self, connection: Connection, table: str, there: dict[str, Any]) -> None:
        keys = self._sink.row_id
        unique, folded = self._unique(connection, table), {key.lower() for key in keys}
        if folded not in unique.values():
            self._refuse(
                f"{table} has no primary key or unique index over its keys ({', '.join(keys)})",
                f"ALTER TABLE {table} ADD PRIMARY KEY ({', '.join(keys)}), or name another table",
            )
        if others := sorted(index for index, columns in unique.items() if columns != folded):
            self._refuse(
                f"{table} has another unique index ({', '.join(others)}): an upsert would replace a row of other "
                "keys that meets it",
                "write the output to a table without it",
            )
        for key in keys:
            column = there[key]
            if column.nullable == "YES":
                self._refuse(
                    f"key {key} of {table} may be null, and a null is never found again", "declare it NOT NULL"
                )
            if column.collation is not None and column.collation not in EXACT:
                self._refuse(
                    f"key {key} of {table} has the collation {column.collation}, in which different texts are the "
                    "same key",
                    f"give it one of {', '.join(sorted(EXACT))}, or let the platform make the table",
                )

    def _refuse(self, what: str, hint: str) -> None:
        raise Refused(f"output {self._output.name}: {what}", data="nothing was written", hint=hint)

    def _unique(self, connection: Connection, table: str) -> dict[str, set[str]]:
        found = connection.exec_driver_sql(
            "SELECT index_name AS name, column_name AS col, sub_part AS part FROM information_schema.statistics "
            "WHERE table_schema = DATABASE() AND table_name = %s AND non_unique = 0",
            (table,),
        )
        unique: dict[str, set[str]] = {}
        for row in found:  # a prefix of a column, or an expression, does not count as the column
            column = str(row.col).lower()
            unique.setdefault(row.name, set()).add(column if row.part is None else f"{column}({row.part})")
        return unique

    def _columns(self, connection: Connection, table: str, wanted: Collection[str]) -> dict[str, Any]:
        """Return the columns by name. A required one takes no null and gets no value from the table or a trigger.

        In MySQL names that differ in case are one column: it is spelled as it is wanted.
        """
        spelled = {name.lower(): name for name in wanted}
        return {
            spelled.get(column.name.lower(), column.name): column
            for column in connection.exec_driver_sql(
                "SELECT column_name AS name, column_type AS type, is_nullable AS nullable, collation_name AS "
                "collation, extra AS extra, is_nullable = 'NO' AND column_default IS NULL AND extra NOT REGEXP "
                "'auto_increment|GENERATED' AND NOT EXISTS (SELECT 1 FROM information_schema.triggers WHERE "
                "event_object_schema = table_schema AND event_object_table = table_name AND action_timing = 'BEFORE' "
                "AND event_manipulation = 'INSERT') AS required FROM information_schema.columns WHERE table_schema = "
                "DATABASE() AND table_name = %s ORDER BY ordinal_position",
                (table,),
            )
        }

    @staticmethod
    def _quoted(connection: Connection, name: str) -> str:
        return mysql.quoted(connection, name)
