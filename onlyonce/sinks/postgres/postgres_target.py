"""A PostgreSQL table as a target: whether it exists, who owns it, how many rows it has, its removal. No Spark."""

from __future__ import annotations

from collections import Counter

from psycopg2 import sql as identifiers
from sqlalchemy import Connection

from onlyonce.commitlog.dropping import Drops
from onlyonce.core.ownership import Place
from onlyonce.database.connect import run
from onlyonce.sinks import target_kinds
from onlyonce.sinks.target_kinds import WINDOW, Windows


def is_there(place: Place) -> bool:
    """Return whether there is a table or view of that name."""

    def look(connection: Connection) -> bool:
        cursor = connection.connection.cursor()
        cursor.execute("SELECT to_regclass(format('%%I.%%I', %s, %s)) IS NOT NULL", _name(place))
        [(there,)] = cursor.fetchall()
        return bool(there)

    return run(target_kinds.database_of(place), look)


def table_id(place: Place) -> str | None:
    """Return None: a rewrite or restore changes a table's oid. Its units are in the same database, and never change."""
    return None


def note(place: Place) -> str | None:
    """Return the table's comment."""
    return Drops(target_kinds.database_of(place)).note_of(*_name(place))


def put_note(place: Place, note: str) -> None:
    """Set the table's comment."""
    Drops(target_kinds.database_of(place)).put_note(*_name(place), note)


def rows_by_window(place: Place, windowed: bool) -> Windows:
    """Return the rows by window, which the server counts."""

    def count(connection: Connection) -> Windows:
        if not (columns := _columns(connection, place)):
            return Counter()
        if windowed:
            target_kinds.check_windows(columns, place.where)
        by = (
            identifiers.SQL(", ").join(map(identifiers.Identifier, WINDOW))
            if windowed
            else identifiers.SQL("NULL, NULL")
        )
        rows = identifiers.SQL("SELECT {by}, count(*) FROM {table} GROUP BY 1, 2")
        cursor = connection.connection.cursor()
        cursor.execute(rows.format(by=by, table=identifiers.Identifier(*_name(place))))
        return Counter(
            {(target_kinds.in_utc(start), target_kinds.in_utc(end)): number for start, end, number in cursor.fetchall()}
        )

    return run(target_kinds.database_of(place), count)


def drop(place: Place) -> None:
    """Remove the table with the tables derived from it."""
    Drops(target_kinds.database_of(place)).drop_table(place.where)


def _columns(connection: Connection, place: Place) -> list[str]:
    cursor = connection.connection.cursor()
    cursor.execute(
        "SELECT a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = "
        "to_regnamespace(quote_ident(%s)) AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped",
        _name(place),
    )
    return [column for (column,) in cursor.fetchall()]


def _name(place: Place) -> tuple[str, str]:
    schema, table = place.where.split(".", 1)
    return schema, table
