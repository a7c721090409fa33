"""A table of MySQL or MariaDB as a target: whether it exists, who owns it, how many rows, its removal. No Spark."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection

from onlyonce.core.ownership import Place
from onlyonce.database import mysql
from onlyonce.database.connect import run
from onlyonce.sinks import target_kinds
from onlyonce.sinks.target_kinds import Windows


def is_there(place: Place) -> bool:
    """Return whether there is a table or view of that name."""
    return run(target_kinds.database_of(place), lambda connection: bool(mysql.tables(connection, place.where)))


def table_id(place: Place) -> str | None:
    """Return None: a table here has no lasting id. Its units are in the same database and never written again."""
    return None


def note(place: Place) -> str | None:
    """Return the table's comment."""
    there = run(target_kinds.database_of(place), lambda connection: mysql.tables(connection, place.where))
    return there[0].note if there else None


def put_note(place: Place, note: str) -> None:
    """Set the table's comment."""
    run(target_kinds.database_of(place), lambda connection: mysql.put_note(connection, place.where, note))


def rows_by_window(place: Place, windowed: bool) -> Windows:
    """Return the rows by window; the table's times are in UTC."""

    def count(connection: Connection) -> Windows:
        if not mysql.tables(connection, place.where):
            return Counter()
        table = mysql.quoted(connection, place.where)
        if windowed:
            target_kinds.check_windows(connection.exec_driver_sql(f"SELECT * FROM {table} LIMIT 0").keys(), place.where)
        by = ", ".join(target_kinds.WINDOW) if windowed else "NULL, NULL"
        rows = connection.exec_driver_sql(f"SELECT {by}, COUNT(*) FROM {table} GROUP BY 1, 2")
        return Counter({(target_kinds.in_utc(start), target_kinds.in_utc(end)): number for start, end, number in rows})

    return run(target_kinds.database_of(place), count)


def drop(place: Place) -> None:
    """Remove the table and the table of its deleted keys."""
    run(target_kinds.database_of(place), lambda connection: mysql.drop_table(connection, place.where))
