"""Makes the table of a MySQL sink, adds new columns to it, and refuses a table that can't keep the sink's promise.

Each CREATE and ALTER commits by itself there, so they are never in a unit's transaction: the table is made before the first batch, what
is refused is refused before the first of them, and each may run again.

Who calls it: `sink_mysql`, `onlyonce.check.tables`. Errors: Refused. Not promised: that nobody changes the table during a run.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import StructType
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from onlyonce.database import mysql
from onlyonce.database.connect import Database, run
from onlyonce.declare.pipeline import MySQL, Output
from onlyonce.model.errors import Refused
from onlyonce.sinks.mysql import mysql_columns

EXACT = {"utf8mb4_nopad_bin", "utf8mb4_0900_bin", "uca1400_nopad_bin"}
"""The collations in which two texts are the same only if all their signs are: elsewhere 'Shop' is 'shop', or 'a' is 'a '."""
ALREADY_THERE = 1060
WINDOW = "window_start"


class MySQLTable:
    """The table that one output writes."""

    def __init__(self, database: Database, output: Output, sink: MySQL, suffix: str) -> None:
        self._database, self._output, self._sink = database, output, sink
        self.name = sink.table + suffix

    def prepare(self, schema: StructType) -> None:
        """Make the table, add new columns. Raises Refused for a key that is not there, a type, an engine or an index that can't work."""
        if missing := [key for key in self._sink.keys if key not in schema.names]:
            raise Refused(
                f"output {self._output.name}: keys {missing} are not among its columns",
                hint=f"it has: {', '.join(schema.names)} (oo_window gives window_start and window_end)",
            )
        run(self._database, lambda connection: self._fit(connection, self.wanted(schema)))

    def wanted(self, schema: StructType) -> dict[str, str]:
        """The columns that the table must have for an output's rows, with MySQL's types."""
        return {field.name: mysql_columns.type_of(field, self._sink.keys, schema) for field in schema.fields}

    def there(self) -> dict[str, str]:
        """The columns that the table has now; none where there is no table. Changes nothing."""
        return run(self._database, lambda connection: {c.name: mysql_columns.plain(c.type) for c in self._columns(connection)})

    def _fit(self, connection: Connection, wanted: dict[str, str]) -> None:
        there = {column.name: column for column in self._columns(connection)}
        if there:
            self._check(connection, wanted, there)
        else:
            self._make(connection, wanted)
        for name in wanted if there else ():
            if name not in there:
                self._add(connection, name, wanted[name])

    def _add(self, connection: Connection, name: str, kind: str) -> None:
        table, column = (self._quoted(connection, of) for of in (self.name, name))
        try:
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column} {kind} NULL")
        except OperationalError as error:
            if mysql.code_of(error) != ALREADY_THERE:  # another driver has added it meanwhile
                raise

    def _make(self, connection: Connection, wanted: dict[str, str]) -> None:
        dialect: Any = connection.dialect
        collation = "utf8mb4_nopad_bin" if dialect.is_mariadb else "utf8mb4_0900_bin"
        keys = self._sink.keys
        parts = [
            f"{self._quoted(connection, name)} {kind} {'NOT NULL' if name in keys else 'NULL'}"
            for name, kind in wanted.items()
        ]
        if keys:
            parts.append(f"PRIMARY KEY ({', '.join(self._quoted(connection, key) for key in keys)})")
        if WINDOW in wanted and keys[:1] != (WINDOW,):
            parts.append(f"INDEX ({self._quoted(connection, WINDOW)})")  # people and backfills look for rows by their window
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {self._quoted(connection, self.name)} ({', '.join(parts)}) "
            f"ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {collation}"
        )

    def _check(self, connection: Connection, wanted: dict[str, str], there: dict[str, Any]) -> None:
        table = mysql.tables(connection, self.name)[0]
        if table.kind != "BASE TABLE" or table.engine != "InnoDB":
            self._refuse(
                f"{self.name} is a {table.kind.lower() if table.engine is None else f'table of {table.engine}'}: a unit and its rows "
                "can't be committed together there, and nothing rolls back what a killed task has written",
                f"ALTER TABLE {self.name} ENGINE = InnoDB, or name another table",
            )
        types = {name: column.type for name, column in there.items()}
        for name, kind in wanted.items():
            if (name in there or name in self._sink.keys) and not mysql_columns.same(kind, types.get(name)):
                self._refuse(
                    f"column {name} is {kind}, but in {self.name} it is {types.get(name, 'missing')}",
                    "a changed type needs another name or another table; a new key another table",
                )
        if self._sink.keys:
            self._check_keys(connection, there)

    def _check_keys(self, connection: Connection, there: dict[str, Any]) -> None:
        keys = self._sink.keys
        unique = self._unique(connection)
        if {*keys} not in unique.values():
            self._refuse(
                f"{self.name} has no primary key or unique index over its keys ({', '.join(keys)})",
                f"ALTER TABLE {self.name} ADD PRIMARY KEY ({', '.join(keys)}), or name another table",
            )
        if others := sorted(name for name, columns in unique.items() if columns != {*keys}):
            self._refuse(
                f"{self.name} has another unique index ({', '.join(others)}): an upsert would replace a row of other keys that meets it",
                "write the output to a table without it",
            )
        for key in keys:
            column = there[key]
            if column.nullable == "YES":
                self._refuse(f"key {key} of {self.name} may be null, and a null is never found again", "declare it NOT NULL")
            if column.collation is not None and column.collation not in EXACT:
                self._refuse(
                    f"key {key} of {self.name} has the collation {column.collation}, in which different texts are the same key",
                    f"give it one of {', '.join(sorted(EXACT))}, or let the platform make the table",
                )

    def _refuse(self, what: str, hint: str) -> None:
        raise Refused(f"output {self._output.name}: {what}", data="nothing was written", hint=hint)

    def _unique(self, connection: Connection) -> dict[str, set[str]]:
        found = connection.exec_driver_sql(
            "SELECT index_name AS name, column_name AS col FROM information_schema.statistics "
            "WHERE table_schema = DATABASE() AND table_name = %s AND non_unique = 0 AND sub_part IS NULL",
            (self.name,),
        )
        unique: dict[str, set[str]] = {}
        for row in found:
            unique.setdefault(row.name, set()).add(row.col)
        return unique

    def _columns(self, connection: Connection) -> list[Any]:
        return list(
            connection.exec_driver_sql(
                "SELECT column_name AS name, column_type AS type, is_nullable AS nullable, collation_name AS collation "
                "FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s ORDER BY ordinal_position",
                (self.name,),
            )
        )

    @staticmethod
    def _quoted(connection: Connection, name: str) -> str:
        return mysql.quoted(connection, name)
