"""Counts the rows of each window in a sink's table. Without a JVM.

Who calls it: `onlyonce.operate.audit_data`. Errors: Refused if the table can't be counted by window, Retryable while
its database is away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from psycopg2 import sql as identifiers
from sqlalchemy import Connection

from onlyonce import environment, settings
from onlyonce.database import mysql
from onlyonce.database.connect import Database, run
from onlyonce.model.errors import Refused
from onlyonce.model.operate.dropping import Place
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import WINDOW_END, WINDOW_START
from onlyonce.storage import log_entries, opening, table_features

WINDOW = [WINDOW_START, WINDOW_END]
Windows = Counter[tuple[datetime | None, datetime | None]]


def in_delta(path: Location, windowed: bool) -> Windows:
    """Those of a Delta table, file by file; none of one that is not there."""
    found: Windows = Counter()
    if not log_entries.any_in(path):
        return found
    table = opening.table(path)
    if on := table_features.unreadable(table):
        raise Refused(
            f"{path} has {', '.join(on)}: only Spark can count its rows; "
            f"compare by hand with onlyonce.windows, or switch it off there"
        )
    rows = table.to_pyarrow_dataset()
    if not windowed:
        found[None, None] = rows.count_rows()
        return found
    _check(rows.schema.names, str(path))
    return _by_window(rows.to_batches(columns=WINDOW))


def in_iceberg(place: Place, windowed: bool) -> Windows:
    """Those of a table of an Iceberg catalog, file by file; none of one that is not there."""
    from onlyonce.sinks.iceberg import catalogs  # with it comes pyiceberg, an extra

    with catalogs.opened(str(place.variable)) as found, catalogs.answering(place.where):
        table = catalogs.find(found, place.where)
        if table is None:
            return Counter()
        if not windowed:
            return Counter({(None, None): table.scan().count()})
        _check(table.schema().column_names, place.where)
        return _by_window(table.scan(selected_fields=(*WINDOW,)).to_arrow_batch_reader())


def _by_window(parts: Iterable[pa.RecordBatch]) -> Windows:
    found: Windows = Counter()
    for part in parts:
        for group in pa.Table.from_batches([part]).group_by(WINDOW).aggregate([([], "count_all")]).to_pylist():
            found[_utc(group[WINDOW_START]), _utc(group[WINDOW_END])] += group["count_all"]
    return found


def in_postgres(place: Place, windowed: bool) -> Windows:
    """Those of a PostgreSQL table; none of one that is not there."""
    return run(Database(_url(place), "onlyonce-audit"), lambda conn: _counted(conn, place.where, windowed))


def in_mysql(place: Place, windowed: bool) -> Windows:
    """Those of a MySQL table; none of one that is not there. Its times are in UTC."""

    def count(connection: Connection) -> Windows:
        if not mysql.tables(connection, place.where):
            return Counter()
        table = mysql.quoted(connection, place.where)
        if windowed:
            _check(list(connection.exec_driver_sql(f"SELECT * FROM {table} LIMIT 0").keys()), place.where)
        by = ", ".join(WINDOW) if windowed else "NULL, NULL"
        rows = connection.exec_driver_sql(f"SELECT {by}, COUNT(*) FROM {table} GROUP BY 1, 2")
        return Counter({(_in_utc(start), _in_utc(end)): number for start, end, number in rows})

    return run(Database(_url(place), "onlyonce-audit"), count)


def _url(place: Place) -> str:
    url = settings.database_url() if place.variable is None else environment.variable(place.variable)
    if not url:
        raise Refused(f"the environment variable {place.variable} is not set")
    return url


def _counted(connection: Connection, table: str, windowed: bool) -> Windows:
    schema, name = table.split(".")
    cursor = connection.connection.cursor()
    cursor.execute(
        "SELECT a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND c.relname = %s AND a.attnum > 0 AND NOT "
        "a.attisdropped",
        (schema, name),
    )
    if not (columns := [column for (column,) in cursor.fetchall()]):
        return Counter()
    if windowed:
        _check(columns, table)
    by = identifiers.SQL(", ").join(map(identifiers.Identifier, WINDOW)) if windowed else identifiers.SQL("NULL, NULL")
    count = identifiers.SQL("SELECT {by}, count(*) FROM {table} GROUP BY 1, 2")
    cursor.execute(count.format(by=by, table=identifiers.Identifier(schema, name)))
    return Counter({(_utc(start), _utc(end)): rows for start, end, rows in cursor.fetchall()})


def _check(columns: list[str], table: str) -> None:
    if missing := [name for name in WINDOW if name not in columns]:
        raise Refused(f"{table} has no column {missing[0]}")


def _utc(time: Any) -> datetime | None:
    return time.astimezone(UTC) if time is not None else None


def _in_utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None else None
