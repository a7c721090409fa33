"""Reads the columns of the tables that outputs write to. Without a JVM.

Who calls it: `onlyonce.check.look`. Errors: DatabaseAway if a sink's database does not answer, Refused if it lets nobody in. Not promised: that the table stays as it is.
"""

from __future__ import annotations

import json

from pyspark.sql.types import StructType

from onlyonce import settings
from onlyonce.commitlog import authorities
from onlyonce.database.connect import Database
from onlyonce.declare.declaration import declared_at
from onlyonce.declare.outputs import newest
from onlyonce.declare.pipeline import Delta, Iceberg, MySQL, Output, Pipeline, Postgres, target
from onlyonce.model.errors import Refused
from onlyonce.model.operate.dropping import Place
from onlyonce.sinks.mysql.mysql_columns import same
from onlyonce.sinks.mysql.mysql_table import MySQLTable
from onlyonce.sinks.mysql.target_database import database_of
from onlyonce.sinks.postgres.postgres_table import SinkTable
from onlyonce.storage import log_entries, opening

Types = tuple[dict[str, str], dict[str, str], str]
"""The types of a function's columns as the sink has them, those of the table that is there, and where that is."""


def types(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    """What is to be compared; None where no table is there, or the sink has none."""
    if isinstance(output.sink, Delta):
        return _delta(pipeline, output, schema)
    if isinstance(output.sink, Iceberg):
        return _iceberg(pipeline, output, schema)
    return _of_database(output, output.sink, schema) if isinstance(output.sink, Postgres | MySQL) else None


def _delta(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    path = settings.table_location(target(pipeline, output).split(":", 1)[1])
    if not log_entries.any_in(path):
        return None
    there = StructType.fromJson(json.loads(opening.table(path).schema().to_json()))
    told = newest.deletes(output.sink)
    return {name: kind for name, kind in _simple(schema).items() if name != told}, _simple(there), str(path)


def _iceberg(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    from onlyonce.sinks.iceberg import catalogs, columns  # with them comes pyiceberg, an extra

    place = Place(target(pipeline, output))
    wanted = columns.of(output, schema)
    with catalogs.opened(str(place.variable)) as found:
        table = catalogs.find(found, place.where)
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
    except Refused as error:  # a variable that is not set, a password that is wrong, a table that can't take the output
        at = declared_at(sink) if sink.connection else ""
        raise Refused(f"{at}{error.what}", data=error.data, hint=error.hint) from error
    wanted = table.wanted(schema)
    if isinstance(table, MySQLTable):  # several of its types hold the same texts
        there = {name: wanted[name] if same(wanted.get(name, ""), kind) else kind for name, kind in there.items()}
    return (wanted, there, sink.table) if there else None


def _table(output: Output, sink: Postgres | MySQL) -> SinkTable | MySQLTable:
    if isinstance(sink, MySQL):
        return MySQLTable(database_of(sink), output, sink, "")
    return SinkTable(Database(authorities.url_of(sink.connection)), output, sink, "")
