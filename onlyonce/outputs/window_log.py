"""Tells the log about an output's windows with each batch: how many (record, window) pairs it met, and what it has written of each window.

Who calls it: `outputs`, at the end of a batch. No errors of its own.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F
from sqlalchemy import Connection

from onlyonce.commitlog import batches
from onlyonce.commitlog.outputs import panes
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model.batch import Batch, to_micros, to_time
from onlyonce.outputs import raw_windows, results, windowing
from onlyonce.outputs.replayed import Versions
from onlyonce.receive import events, past_rows
from onlyonce.session import schemas

TIMES = (*results.WINDOW, "late_from", "late_to")


def counted(context: RunContext, query: Query, root: Output, received: list[Any]) -> list[dict[str, Any]]:
    """How many (record, window) pairs of these receive batches are in time and late, by window."""
    return [_of_life(query, row) for row in _counts(context, root, received)]


def written(
    conn: Connection,
    context: RunContext,
    chain: list[Output],
    batch: Batch,
    versions: Versions,
    windows: list[dict[str, Any]],
) -> None:
    """What is known of the windows from this batch on. One is final when it has closed: where the batch writes it then, at
    once, and else when `events` is read so far that nothing in time can come for it. Of a join it is so by what the batches before have read:
    its rows without a partner come a batch later."""
    root = chain[0]
    as_they_come = raw_windows.as_they_come(root, stateless=bool(batch.plan.facts.get("stateless"))) and not context.bounded
    whole = root.panes == "on_time" and not as_they_come
    if as_they_come:
        panes.add_rows(conn, batch, windows)
    else:
        batches.add_panes(conn, batch, [window | {"final": whole} for window in windows])
    if not whole:
        panes.close(conn, context.instance, root, [output.name for output in chain], versions.after if root.join else versions.upto)


def _counts(context: RunContext, root: Output, received: list[Any]) -> list[dict[str, Any]]:
    moved = any(one.compacted for one in received)
    files = [] if moved else events.kept_files(context.events, received)
    if not files and not moved:
        return []
    if root.window is None and not moved:
        return [_never_late(events.count(files))]
    kept = past_rows.kept(context.spark, context.events, schemas.of(events.PLACED_BY), received)
    if root.window is None:
        return [_never_late(kept.count())]
    rows = windowing.counted(kept, root.window, root.lateness)
    numbers = [F.unix_micros(f"oo_window.{name.removeprefix('window_')}").alias(name) for name in results.WINDOW]
    return [
        {**{name: to_time(row[name]) for name in TIMES}, "in_time": row.in_time, "late": row.late}
        for row in rows.select(*numbers, "in_time", "late", "late_from", "late_to").collect()
    ]


def _never_late(rows: int) -> dict[str, Any]:
    """Of an output that never closes."""
    return dict.fromkeys(TIMES) | {"in_time": rows, "late": 0}


def _of_life(query: Query, row: dict[str, Any]) -> dict[str, Any]:
    """A window that is closed to this life, since another declaration has made it, takes rows by backfill only."""
    start = to_micros(row[results.WINDOW[0]])
    if query.first_window is None or start is None or start >= query.first_window:
        return row
    return row | {"in_time": 0, "late": row["in_time"] + row["late"]}
