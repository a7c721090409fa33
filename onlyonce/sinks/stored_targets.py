"""The choice of what says what an output's target, or a table that a lookup reads, stores."""

from __future__ import annotations

from onlyonce import settings
from onlyonce.database.connect import Database
from onlyonce.declare.outputs.lookup import Lookup
from onlyonce.declare.pipeline import Delta, FileSink, Iceberg, MySQL, Output, Pipeline, Postgres, target
from onlyonce.sinks.delta.stored_delta import StoredInDelta
from onlyonce.sinks.files.stored_files import StoredInFiles
from onlyonce.sinks.mysql.stored_mysql import StoredInMySQL
from onlyonce.sinks.outbox.stored_outside import StoredOutside
from onlyonce.sinks.postgres.stored_postgres import StoredInPostgres
from onlyonce.sinks.stored import Stored


def of(database: Database, pipeline: Pipeline, output: Output) -> Stored:
    """Return what the target of an output stores."""
    sink, where = output.sink, target(pipeline, output)
    if isinstance(sink, Delta):
        return StoredInDelta(settings.table_location(where.partition(":")[2]))
    if isinstance(sink, FileSink):
        return StoredInFiles(database, sink.place(where, ""))
    if isinstance(sink, Postgres):
        return StoredInPostgres(database, sink)
    if isinstance(sink, MySQL):
        return StoredInMySQL(database, sink)
    if isinstance(sink, Iceberg):
        from onlyonce.sinks.iceberg.stored_iceberg import StoredInIceberg  # with it comes pyiceberg, an extra

        return StoredInIceberg(where)
    return StoredOutside(sink)


def of_lookup(database: Database, lookup: Lookup) -> Stored:
    """Return what the table of a lookup stores. It is only read: nothing of it is cleaned."""
    if isinstance(lookup.table, Postgres):
        return StoredInPostgres(database, lookup.table)
    return StoredInDelta(settings.table_location(str(lookup.table.path)))
