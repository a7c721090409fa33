"""Reads the views as plain dictionaries, for reports and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onlyonce.database.connect import ask, snapshot
from onlyonce.database.transactions import Transactions, one_transaction


class Views(Transactions):
    """The views, read as dictionaries."""

    @one_transaction
    def rows(self, query: str, /, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of a named query of `sql/statements/views.sql`."""
        return [dict(row._mapping) for row in ask(self.connection, "views", query, **parameters)]

    @one_transaction
    def at_once(self, queries: Iterable[str]) -> list[list[dict[str, Any]]]:
        """The rows of several, as of one moment: a batch that commits in between would look like a disagreement."""
        snapshot(self.connection)
        return [self.rows(query) for query in queries]

    @one_transaction
    def free(self, statement: str) -> list[dict[str, Any]]:
        """The rows of somebody's own statement; the role that runs it decides what it may see."""
        result = self.connection.execution_options(no_parameters=True).exec_driver_sql(statement)
        if not result.returns_rows:
            return []
        names = _told_apart(list(result.keys()))
        return [dict(zip(names, row, strict=True)) for row in result]


def _told_apart(names: list[str]) -> list[str]:
    """The names of columns, each once: `sum`, `sum_2`. A statement may give two the same, and both are shown."""
    found: list[str] = []
    for name in names:
        number, own = 1, name
        while own in found or (number > 1 and own in names):
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found
