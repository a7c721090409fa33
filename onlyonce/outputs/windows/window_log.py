"""Tells the log about an output's windows with each batch: how many (record, window) pairs it met, which of them it has rejected, and what it has written of each window.

Who calls it: `outputs`, at the end of a batch. No errors of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F
from sqlalchemy import Connection

from onlyonce.commitlog import batches
from onlyonce.commitlog.outputs import panes
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.database.connect import run
from onlyonce.declare.pipeline import Output
from onlyonce.model.batch import Batch, to_micros, to_time
from onlyonce.outputs import results
from onlyonce.outputs.events.replayed import Versions
from onlyonce.outputs.function import rejecting
from onlyonce.outputs.windows import counting, raw_windows, windowing
from onlyonce.receive import events, past_rows
from onlyonce.session import schemas

TIMES = (*results.WINDOW, "late_from", "late_to")
FATES = ("in_time", "late", "rejected")
Row = dict[str, Any]


@dataclass(frozen=True)
class Met:
    """What an output has met with some receive batches, in (record, window) pairs.

    windows    how many are in time, late and rejected, by window
    rejected   each that is rejected, as the log has it
    """

    windows: list[Row]
    rejected: list[Row]

    def count(self, fate: str) -> int:
        """How many there are, in all windows."""
        return sum(row[fate] for row in self.windows)


def received(context: RunContext, query: Query, versions: Versions) -> list[Any]:
    """The receive batches that a batch counts: a new life meets rows again that an earlier one has counted, in as many batches as it takes."""
    after = max(versions.after, int(query.start_from.get("counted_upto", -1)))
    return run(query.database, lambda conn: batches.received(conn, context.instance, after, versions.upto))


def counted(context: RunContext, query: Query, root: Output, received: list[Any]) -> Met:
    """What an output has met with these receive batches."""
    if root.reject:
        return _judged(context, query, root, received)
    return Met([_of_life(query, row | {"rejected": 0}) for row in _counts(context, root, received)], [])


def _judged(context: RunContext, query: Query, root: Output, received: list[Any]) -> Met:
    """The same by the output's function that rejects, in one look at the records."""
    if not received:
        return Met([], [])
    kept = past_rows.kept(context.spark, context.events, events.schema(context.pipeline), received)
    windows: dict[Any, Row] = {}
    rejected = []
    for found in rejecting.met(context.pipeline, root, kept):
        row = _of_life(query, found | {name: to_time(found[name]) for name in TIMES})
        if row["rejected"]:
            rejected.append(rejecting.row_of(context.instance, root, found))
        known = windows.setdefault((row["window_start"], row["window_end"]), dict.fromkeys(TIMES) | dict.fromkeys(FATES, 0))
        known |= {name: row[name] for name in TIMES if row[name] is not None} | {fate: known[fate] + row[fate] for fate in FATES}
    return Met(list(windows.values()), rejected)


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
    its rows without a partner come a batch later; of a processor too, for the rows of its timers."""
    root = chain[0]
    as_they_come = raw_windows.as_they_come(root, stateless=bool(batch.plan.facts.get("stateless"))) and not context.bounded
    whole = not root.is_early and not as_they_come
    if as_they_come:
        panes.add_rows(conn, batch, windows)
    else:
        batches.add_panes(conn, batch, [window | {"final": whole} for window in windows])
    if not whole:
        panes.close(conn, context.instance, root, [output.name for output in chain], versions.after if root.gives_as_it_comes else versions.upto)


def _counts(context: RunContext, root: Output, received: list[Any]) -> list[dict[str, Any]]:
    moved = any(one.compacted for one in received)
    files = [] if moved else events.kept_files(context.events, received)
    if not files and not moved:
        return []
    if root.window is None and not moved:
        return [_never_late(events.count(files))]
    if root.window is not None and not moved and sum(one.kept for one in received) <= counting.MOST:
        found = counting.counted(files, root.window, root.lateness)
        return [row | {name: to_time(row[name]) for name in TIMES} for row in found]
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
    return row | {"in_time": 0, "late": row["in_time"] + row["late"] + row["rejected"], "rejected": 0}
