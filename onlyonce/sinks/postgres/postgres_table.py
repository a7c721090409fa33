"""Make the table of a Postgres sink, add new columns to it, and refuse a table that does not fit the output."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NoReturn

from psycopg2 import sql
from pyspark.sql.types import DecimalType, StructField, StructType
from sqlalchemy import Connection

from onlyonce.api import sinks
from onlyonce.api.outputs import check_rows
from onlyonce.api.pipeline import Output, Postgres
from onlyonce.commitlog.dropping import Drops
from onlyonce.core import column_types, ownership, stored_names
from onlyonce.core.column_types import Length
from onlyonce.core.errors import Refused
from onlyonce.core.stored_names import OO_WINDOW
from onlyonce.database import locks
from onlyonce.database.connect import Database, ask, run
from onlyonce.sinks.postgres import postgres_rows
from onlyonce.sinks.postgres.postgres_rows import WINDOW

TYPES = {
    "string": "text", "bigint": "bigint", "int": "integer", "smallint": "smallint", "tinyint": "smallint",
    "boolean": "boolean", "double": "double precision", "float": "real", "date": "date", "binary": "bytea",
    "timestamp": "timestamp with time zone", "timestamp_ntz": "timestamp without time zone", "variant": "jsonb",
}  # fmt: skip
STRINGS = re.compile(r"text|character varying(\(\d+\))?")
"""Types that hold a string unchanged: `character(n)` cuts the spaces at its end."""
READER = stored_names.READER_ROLE
SYSTEM = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}
"""The names of PostgreSQL's system columns, which every table has."""
KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
"""Other relations with columns: a unit and its rows can't be committed together there."""

CLEAR = "WITH gone AS (DELETE FROM {0} RETURNING 1) SELECT (SELECT count(*) FROM {0}) - (SELECT count(*) FROM gone)"
"""Both counts are of one moment, so neither includes rows that others add meanwhile."""


class SinkTable:
    """The table that one output writes."""

    def __init__(self, database: Database, output: Output, sink: Postgres, suffix: str) -> None:
        self._database, self._output, self._sink = database, output, sink
        self.schema, table = sink.table.split(".")
        self.name = ownership.POSTGRES.table(table, suffix)
        self.by_window = output.on_backfill == "correct"
        self.lengths: dict[str, Length] = {}
        """The columns of the table that take values up to a length, after `prepare`."""
        self._declared: dict[str, str] = {}

    def prepare(self, schema: StructType) -> None:
        """Make schema and table, or add new columns.

        Raise Refused for a missing key or number, or an unsuitable type.
        """
        schema = self.stored(schema)
        self._check_keys(schema)
        kept = {f.name: _type(f) for f in schema.fields}
        self._declared = {f.name: f.dataType.simpleString() for f in schema.fields}
        columns = {n: t for n, t in kept.items() if n not in self._left_out()}
        beside = ownership.POSTGRES.window_sums(self.name)

        def fit(connection: Connection) -> None:
            """Fit all tables in one transaction, so that a refusal leaves no table or column behind."""
            self._check_beside(connection, beside)
            if self.by_window:
                self._keep(connection, beside, stored_names.BY_WINDOW_NOTE, kept, ())
            if self._sink.delete_when:
                in_order = [
                    *self._sink.keys,
                    *self._sink.sequence_by,
                    *([stored_names.VALID_FROM] if self._versions else []),
                ]
                remembered = {column: columns[column] for column in dict.fromkeys(in_order)}
                self._keep(
                    connection,
                    ownership.POSTGRES.deleted(self.name),
                    stored_names.DELETED_NOTE,
                    remembered,
                    self._sink.row_id,
                )
            self._fit(
                connection, self.name, columns | (postgres_rows.ENDS if self._versions else {}), self._sink.row_id
            )

        run(self._database, fit)

    def _keep(
        self, connection: Connection, name: str, note: str, columns: dict[str, str], keys: tuple[str, ...]
    ) -> None:
        """Make a table that the platform keeps for the output's table. It is recognised by its comment."""
        if self._there(connection, name) and Drops(connection).note_of(self.schema, name) != note:
            raise Refused(
                f"output {self._output.name}: there is a table {self.schema}.{name}, which is not the platform's",
                data="nothing was written; the platform would keep there what it must know of the output's rows",
                hint="rename that table, or name another one for the output",
            )
        self._fit(connection, name, columns, keys)
        statement = sql.SQL("COMMENT ON TABLE {} IS {}").format(sql.Identifier(self.schema, name), sql.Literal(note))
        connection.connection.cursor().execute(statement)

    @property
    def _versions(self) -> bool:
        return self._sink.write == sinks.HISTORY

    def _fit(self, connection: Connection, table: str, columns: dict[str, str], keys: tuple[str, ...]) -> None:
        self._check_table(connection, table, columns, keys)
        there = self.make(connection, table, columns, keys)
        lacking = dict.fromkeys(keys, "missing")  # a key is not added to an existing table
        held = lacking | self.as_wanted(columns, there)
        column_types.refuse_other(
            f"output {self._output.name}", f"{self.schema}.{table}", columns, held, self._declared
        )
        if table == self.name:
            found = {name: column_types.length(there[name], mysql=False) for name in columns}
            self.lengths = {name: length for name, length in found.items() if length}

    def as_wanted(self, wanted: dict[str, str], there: dict[str, str]) -> dict[str, str]:
        """Return the types of the table.

        A type that takes the same values as the wanted one is returned as the wanted one.
        """
        return {
            name: "text" if wanted.get(name) == "text" and STRINGS.fullmatch(kind) else kind
            for name, kind in there.items()
        }

    def check(self, schema: StructType) -> None:
        """Raise Refused if the output can't be written to the present table, or no table be made. Change nothing."""

        def look(connection: Connection) -> None:
            self._check_grants(connection)
            self._check_table(connection, self.name, self.wanted(schema), self._sink.row_id)

        run(self._database, look)

    def _check_grants(self, connection: Connection) -> None:
        if lacking := ask(connection, "sink_tables", "lacking_grants", schema=self.schema):
            missing = " and ".join(one.missing for one in lacking)
            grants = "; ".join(f"GRANT {one.missing} TO {one.role}" for one in lacking)
            self._refuse(
                f"the role {lacking[0].role} has no privilege {missing}, which each run needs to make "
                f"{self.schema}.{self.name} or to find it there",
                f"let the owner run {grants}. Then run the same command again",
            )

    def _check_table(self, connection: Connection, table: str, columns: Iterable[str], keys: tuple[str, ...]) -> None:
        ownership.POSTGRES.refuse_long(self._output.name, columns, "bytes")
        if system := sorted(SYSTEM.intersection(columns)):
            self._refuse(
                f"PostgreSQL has a column {system[0]} of its own in each table",
                "give the column another name in the output's function",
            )
        place = f'"{self.schema}"."{table}"'
        if table == self.name and Drops(connection).note_of(self.schema, table) in ownership.NOTES:
            self._refuse(
                f"{self.schema}.{table} is a table that the platform keeps for another output's table",
                "name another table",
            )
        if (found := ask(connection, "sink_tables", "kind", table=place)) and found[0].kind in KINDS:
            self._refuse(
                f"{self.schema}.{table} is {KINDS[found[0].kind]}: a unit and its rows can't be committed together "
                "there",
                "name an ordinary table",
            )
        for column in ask(connection, "sink_tables", "computed_columns", table=place):
            # COPY may set an identity that is GENERATED ALWAYS; an INSERT may not.
            if column.name in columns and (column.kind == "s" or keys):
                self._refuse(
                    f"column {column.name} of {self.schema}.{table} is GENERATED ALWAYS, so only PostgreSQL gives "
                    "its values",
                    "leave the column out of the function's result, or declare it GENERATED BY DEFAULT",
                )
        required = [one.name for one in ask(connection, "sink_tables", "required_columns", table=place)]
        column_types.refuse_required(f"output {self._output.name}", f"{self.schema}.{table}", columns, required)
        if keys and found:
            self._check_unique(connection, table, place, keys)

    def _check_unique(self, connection: Connection, table: str, place: str, keys: tuple[str, ...]) -> None:
        """Raise Refused unless a unique index over exactly the keys can serve ON CONFLICT.

        It must not be deferrable, needs deterministic collations, and NULLS NOT DISTINCT if a key may be null.
        """
        listed = ", ".join(keys)
        over = [
            index
            for index in ask(connection, "sink_tables", "unique_indexes", table=place)
            if {*index.columns} == {*keys}
        ]
        add = f"ALTER TABLE {self.schema}.{table} ADD UNIQUE NULLS NOT DISTINCT ({listed}), or name another table"
        if not over:
            self._refuse(
                f"{self.schema}.{table} has no unique index over the keys ({listed}), so no row of a key is found "
                "again",
                add,
            )
        if deferred := [index.name for index in over if not index.at_once]:
            self._refuse(
                f"the unique constraint {deferred[0]} of {self.schema}.{table} is DEFERRABLE, and ON CONFLICT "
                "needs one that is not",
                f"drop it; then {add}",
            )
        if merging := [index.name for index in over if index.strings_merge]:
            self._refuse(
                f"the unique index {merging[0]} of {self.schema}.{table} has a collation that is not "
                "deterministic, in which different strings are one key",
                f'give the keys a deterministic collation (COLLATE "C"); then {add}',
            )
        # A key that may be deleted, or has versions, is never null: its units are refused
        # (`postgres_rows.stage_newest`).
        if not (self._sink.delete_when or self._versions) and all(index.nulls_differ for index in over):
            self._refuse(
                f"the unique index {over[0].name} of {self.schema}.{table} takes two nulls for two keys, so rows "
                "with a null key would double",
                f"declare the keys NOT NULL; or {add}",
            )

    def _refuse(self, what: str, hint: str) -> NoReturn:
        raise Refused(f"output {self._output.name}: {what}", data="nothing was written", hint=hint)

    def wanted(self, schema: StructType) -> dict[str, str]:
        """Return the columns that the table must have for an output's rows, with PostgreSQL's types."""
        return {f.name: _type(f) for f in self.stored(schema).fields if f.name not in self._left_out()}

    def there(self) -> dict[str, str]:
        """Return the columns that the table has now, none if there is no table. Change nothing."""
        return run(self._database, lambda connection: self._there(connection, self.name))

    def stored(self, schema: StructType) -> StructType:
        """Return the columns of an output's rows that are sent to the database."""
        left_out = set() if self.by_window or self._sink.delete_when else self._left_out()
        return StructType([f for f in schema.fields if f.name not in left_out])

    def _left_out(self) -> set[str]:
        if self._sink.delete_when:
            return {self._sink.delete_when}
        # A window adds to the row of its keys; its time is not part of the sum, unless it is a key.
        return set(WINDOW) - set(self._sink.keys) if self._sink.write == "increment" else set()

    def _check_beside(self, connection: Connection, beside: str) -> None:
        """Raise Refused unless each window's additions were kept from the first row: else sums can't be corrected."""
        there, kept = (
            bool(self._there(connection, self.name)),
            Drops(connection).note_of(self.schema, beside) == stored_names.BY_WINDOW_NOTE,
        )
        if there and kept != self.by_window:
            raise Refused(
                f"output {self._output.name}: {self.schema}.{self.name} was begun "
                + ("with on_backfill='correct'" if kept else "without on_backfill='correct'"),
                data="nothing was written; what each window has added must be kept from the first row on, or not "
                "at all",
                hint="put on_backfill back, or name another table for the output",
            )

    def _check_keys(self, schema: StructType) -> None:
        if missing := [key for key in self._sink.keys if key not in schema.names]:
            raise Refused(
                f"output {self._output.name}: keys {missing} are not among its columns",
                hint=f"it has: {', '.join(schema.names)} ({OO_WINDOW} gives window_start and window_end)",
            )
        check_rows(self._output, {f.name: f.dataType.simpleString() for f in schema.fields})
        numbers = ("bigint", "int", "smallint", "tinyint", "double", "float", "decimal")
        added = [f for f in schema.fields if f.name not in self._sink.keys and f.name not in self._left_out()]
        if self._sink.write == "increment" and not added:
            raise Refused(
                f"output {self._output.name}: apart from its keys it has no number to add",
                hint="increment adds numbers to the row of their keys; for rows without any use write='upsert'",
            )
        if self._sink.write == "increment" and (
            wrong := [f.name for f in added if not f.dataType.simpleString().startswith(numbers)]
        ):
            raise Refused(
                f"output {self._output.name}: {', '.join(wrong)} can't be added up",
                hint="increment adds numbers; put columns that are not numbers among the keys, or use write='upsert'",
            )

    def make(
        self, connection: Connection, table: str, columns: dict[str, str], keys: tuple[str, ...]
    ) -> dict[str, str]:
        """Make what is missing. Return the columns that the table then has."""
        cursor = connection.connection.cursor()
        name = sql.Identifier(self.schema, table)
        parts = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(t)) for n, t in columns.items()]
        if keys:
            # Not a primary key: a key of the user's may be null, and null is one value.
            unique = sql.SQL(", ").join(map(sql.Identifier, keys))
            parts.append(sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(unique))
        schema = sql.Identifier(self.schema)
        # A lock of the schema, not of the table: if two transactions grant on one schema at once, PostgreSQL fails one.
        locks.wait(connection, stored_names.schema_lock(self.schema))
        cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
        made = not self._there(connection, table)
        cursor.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(name, sql.SQL(", ").join(parts)))
        if made and WINDOW[0] in columns and keys[:1] != WINDOW[:1]:
            # While it is empty: on a large table it would hold up writers. People and backfills search rows by their
            # window.
            cursor.execute(sql.SQL("CREATE INDEX ON {} ({})").format(name, sql.Identifier(WINDOW[0])))
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

    def clear(self, connection: Connection) -> None:
        """Delete all rows.

        Raise Refused if a trigger of the table keeps some: they would stay next to the rows that are computed again.
        """
        cursor: Any = connection.connection.cursor()
        cursor.execute(sql.SQL(CLEAR).format(sql.Identifier(self.schema, self.name)))
        [(kept,)] = cursor.fetchall()
        if kept:
            self._refuse(
                f"a trigger of {self.schema}.{self.name} keeps {kept:,} rows that are to be deleted, since all are "
                "computed again",
                "let the trigger delete every row, or name another table",
            )

    def _there(self, connection: Connection, table: str) -> dict[str, str]:
        cursor: Any = connection.connection.cursor()
        cursor.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (f'"{self.schema}"."{table}"',),
        )
        return dict(cursor.fetchall())


def _type(field: StructField) -> str:
    kind = field.dataType
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    return TYPES.get(kind.simpleString(), "jsonb")
