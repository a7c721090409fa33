"""What people ask: the views, read as plain dictionaries for reports and tables."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from jobs.commitlog.connect import ask


def rows(connection: Connection, query: str, /, **parameters: Any) -> list[dict[str, Any]]:
    """The rows of a named query of `sql/views.sql`."""
    return [dict(row._mapping) for row in ask(connection, "views", query, **parameters)]


def free(connection: Connection, statement: str) -> list[dict[str, Any]]:
    """The rows of somebody's own statement; the role that runs it decides what it may see."""
    result = connection.execution_options(no_parameters=True).exec_driver_sql(statement)
    return [dict(row._mapping) for row in result] if result.returns_rows else []
