"""Reads the columns of the tables that outputs write to. Without a JVM.

Who calls it: `onlyonce.check.look`. Errors: DatabaseAway if a sink's database does not answer, Refused if it lets nobody in. Not promised: that the table stays as it is.
"""

from __future__ import annotations

import json

from deltalake import DeltaTable
from pyspark.sql.types import StructType

from onlyonce import settings
from onlyonce.commitlog import authorities
from onlyonce.database.connect import Database
from onlyonce.declare.declaration import declared_at
from onlyonce.declare.pipeline import Delta, Output, Pipeline, Postgres, target
from onlyonce.model.errors import Refused
from onlyonce.sinks.postgres.postgres_table import SinkTable
from onlyonce.storage import opening

Types = tuple[dict[str, str], dict[str, str], str]
"""The types of a function's columns as the sink has them, those of the table that is there, and where that is."""


def types(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    """What is to be compared; None where no table is there, or the sink has none."""
    if isinstance(output.sink, Delta):
        return _delta(pipeline, output, schema)
    return _postgres(output, output.sink, schema) if isinstance(output.sink, Postgres) else None


def _delta(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    path = settings.tables_dir() / target(pipeline, output).split(":", 1)[1]
    if not DeltaTable.is_deltatable(str(path)):
        return None
    there = StructType.fromJson(json.loads(opening.table(path).schema().to_json()))
    return _simple(schema), _simple(there), str(path)


def _simple(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def _postgres(output: Output, sink: Postgres, schema: StructType) -> Types | None:
    try:
        table = SinkTable(Database(authorities.url_of(sink.connection)), output, sink, "")
        there = table.there()
    except FileNotFoundError:
        return None  # the platform was never started, so it has no table
    except Refused as error:  # a variable that is not set, a password that is wrong
        at = declared_at(sink) if sink.connection else ""
        raise Refused(f"{at}{error.what}", data=error.data, hint=error.hint) from error
    return (table.wanted(schema), there, sink.table) if there else None
