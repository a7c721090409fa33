"""Reads the columns of the tables that outputs write to. Without a JVM.

Errors: DatabaseAway if a sink's database does not answer, Refused if it lets nobody in. Not promised: that the table
stays as it is.
"""

from __future__ import annotations

import json
from pathlib import Path

from deltalake.exceptions import DeltaError
from pyspark.sql.types import StructType

from onlyonce import settings
from onlyonce.commitlog import authorities
from onlyonce.database.connect import Database
from onlyonce.declare.declaration import declared_at
from onlyonce.declare.outputs import newest
from onlyonce.declare.pipeline import Delta, Iceberg, MySQL, Output, Pipeline, Postgres, target
from onlyonce.model.errors import Refused
from onlyonce.model.operate.dropping import Place
from onlyonce.model.sinks import column_types
from onlyonce.sinks.delta import delta_table
from onlyonce.sinks.mysql.mysql_table import MySQLTable
from onlyonce.sinks.mysql.target_database import database_of
from onlyonce.sinks.postgres.postgres_table import SinkTable
from onlyonce.storage import log_entries, opening

Types = tuple[dict[str, str], dict[str, str], str]
"""The types of a function's columns as the sink has them, those of the table that is there, and where that is."""


def check(pipeline: Pipeline, output: Output, schema: StructType) -> None:
    """Raise Refused if the rows of a function can't be written to the table as it is now.

    No-op if there is none, or the sink has none.
    """
    try:
        found = _types(pipeline, output, schema)
    except Refused as error:  # a table that can't take the output, a variable that is not set, a password that is wrong
        at = declared_at(output.sink) if getattr(output.sink, "connection", None) else declared_at(output)
        named = f"output {output.name}: "
        raise Refused(f"{at}{named}{error.what.removeprefix(named)}", data=error.data, hint=error.hint) from error
    if found:
        wanted, there, where = found
        column_types.refuse_other(f"{declared_at(output)}output {output.name}", where, wanted, there, _simple(schema))


def _types(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    if isinstance(output.sink, Delta):
        return _delta(pipeline, output, schema)
    if isinstance(output.sink, Iceberg):
        return _iceberg(pipeline, output, schema)
    if isinstance(output.sink, Postgres | MySQL):
        return _of_database(output, output.sink, schema)
    return None


def _delta(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    path = settings.table_location(target(pipeline, output).split(":", 1)[1])
    if isinstance(path, Path) and path.is_file():
        raise Refused(
            f"{path} is a file, and no Delta table",
            data="nothing was written to it",
            hint="move the file away, or name another path",
        )
    if not log_entries.any_in(path):
        return None
    try:
        table = opening.table(path)
    except DeltaError as error:
        raise Refused(
            f"{path} can't be read as a Delta table: {(str(error).splitlines() or [''])[0][:300]}",
            data="nothing was written to it",
            hint="restore the table's log from a backup, or name another path",
        ) from error
    delta_table.check(table, path, output)
    there = StructType.fromJson(json.loads(table.schema().to_json()))
    told = newest.deletes(output.sink)
    return {name: kind for name, kind in _simple(schema).items() if name != told}, _simple(there), str(path)


def _iceberg(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    from onlyonce.sinks.iceberg import catalogs, columns  # with them comes pyiceberg, an extra

    place = Place(target(pipeline, output))
    wanted = columns.of(output, schema)
    table = catalogs.of_target(place)
    if table is None:
        return None
    columns.refuse(output, table)
    return columns.kinds(wanted), columns.kinds(table.schema()), place.where


def _simple(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def _of_database(output: Output, sink: Postgres | MySQL, schema: StructType) -> Types | None:
    try:
        table = _table(output, sink)
        there = table.there()
        table.check(schema)
    except FileNotFoundError:
        return None  # the platform was never started, so it has no table
    wanted = table.wanted(schema)
    return (wanted, table.as_wanted(wanted, there), sink.table) if there else None


def _table(output: Output, sink: Postgres | MySQL) -> SinkTable | MySQLTable:
    if isinstance(sink, MySQL):
        return MySQLTable(database_of(sink), output, sink, "")
    return SinkTable(Database(authorities.url_of(sink.connection)), output, sink, "")
