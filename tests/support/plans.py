"""How PostgreSQL would carry out each named query, whatever it is asked with: which of the tables that grow it would
read as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg2.extensions
from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import asyncpg

from onlyonce.database.connect import Database, run
from onlyonce.database.statements import FOLDER, queries

GROW = (
    "batches",
    "units",
    "watermark_markers",
    "panes",
    "window_counts",
    "window_sums",
    "files",
    "outbox",
    "driver_runs",
)
"""What has rows for each batch."""
NO_PLAN = ("COPY", "LOCK", "SET", "VACUUM", "DO")
"""Statements that PostgreSQL does not plan."""


def named() -> list[tuple[str, str]]:
    """(file, name) of every named query that is planned. Views are planned with the queries that read them."""
    files = sorted(
        path.name.removesuffix(".sql") for path in (FOLDER / "statements").iterdir() if path.name.endswith(".sql")
    )
    return [(file, name) for file in files for name in queries(file) if _is_planned(file, name)]


def read_whole(cursor: psycopg2.extensions.cursor, file: str, name: str) -> set[str]:
    """The growing tables that the generic plan of a query reads from end to end: by no index, or through all of one."""
    dialect = asyncpg.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
    cursor.execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {text(queries(file)[name]).compile(dialect=dialect)}")
    [[[told]]] = cursor.fetchall()
    return set(_whole(told["Plan"], few=False))


def visited(plan: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """(how, of which table or index, how many rows) of each scan of a plan that was carried out."""
    name = plan.get("Relation Name") or plan.get("Index Name")
    if name:
        seen = sum(
            plan.get(key, 0) for key in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
        )
        yield plan["Node Type"], name, seen * plan["Actual Loops"]
    for below in plan.get("Plans", []):
        yield from visited(below)


def carried_out(database: Database, statement: str, values: dict[str, Any]) -> dict[str, Any]:
    """The plan of a statement with what it took; what it changed is undone."""
    wanted = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
    chosen = {name: values[name] for name in wanted.compile().params}
    found: list[dict[str, Any]] = []

    def work(connection: Connection) -> None:
        [[plan]] = connection.execute(wanted, chosen).all()
        found.append(plan[0]["Plan"])
        raise KeyError("undo")

    with suppress(KeyError):
        run(database, work)
    return found[0]


def _is_planned(file: str, name: str) -> bool:
    words = [line for line in queries(file)[name].splitlines() if not line.startswith("--")]
    return not words[0].startswith(NO_PLAN)


def _whole(plan: dict[str, Any], *, few: bool) -> Iterator[str]:
    """`few`: what is above takes the first rows only.

    A partial index is what it is for: it has only what is asked for.
    """
    table = plan.get("Relation Name")
    if table in GROW:
        by_no_key = (
            "Index Name" in plan and "Index Cond" not in plan and not _is_partial(plan["Index Name"]) and not few
        )
        if plan["Node Type"] == "Seq Scan" or by_no_key:
            yield table
    few = few or plan["Node Type"] == "Limit"
    for below in plan.get("Plans", []):
        yield from _whole(below, few=few and plan["Node Type"] not in {"Sort", "Aggregate", "Hash"})


PARTIAL = {
    "batches_begun", "batches_with_units", "watermark_markers_begun", "panes_open", "files_to_finalize", "outbox_open", "outbox_open_by_key",
    "outbox_due", "outbox_given_up", "outbox_uncertain", "outbox_held", "batches_without_ids", "window_counts_late",
}  # fmt: skip


def _is_partial(index: str) -> bool:
    return index in PARTIAL
