"""Collect the data about an output's windows that the log stores with each batch.

It stores how many (record, window) pairs the batch met, which pairs were rejected, and what was written of each window.
A trigger decides from it which panes a batch writes.

The driver counts pairs from two columns of the batch's data files. That is cheaper than a Spark job: a million records
take about 0.1 s of a core. Spark's executors count a large batch (`windows.counted`), and rows whose files are
compacted, which only the table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Output
from onlyonce.commitlog import backfills
from onlyonce.commitlog.backfills import Panes
from onlyonce.commitlog.batches import COUNTED, Batches, Received
from onlyonce.commitlog.ends import Windows
from onlyonce.commitlog.removals import REJECTED
from onlyonce.context import Query, RunContext
from onlyonce.core import stored_names, triggers
from onlyonce.core.backfill import FIRST, LAST, OpenSpan
from onlyonce.core.batch import Batch, to_micros
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import COUNTED_UPTO, OO_EVENT_TIME, OO_FRONTIER, WINDOW_END, WINDOW_START
from onlyonce.core.triggers import Held, LastPane
from onlyonce.core.windows import Bounds, Fixed, Session, Window, micros
from onlyonce.engine import session
from onlyonce.outputs import at_close, function, open_sessions, pane_numbers, results, windows
from onlyonce.outputs import events as outputs_events
from onlyonce.outputs.results import Versions
from onlyonce.receive import events
from onlyonce.records import left_out
from onlyonce.tables import arrow_files

T = TypeVar("T")
MOST = 10_000_000
"""The most records that the driver counts, which takes it a second. Executors count more."""
HOUR = Fixed(timedelta(hours=1))
"""Sessions merge, so a lone record has no window of its own yet. It is counted by the hour of its event."""
ADDED = {"in_time": "sum", "late": "sum", "rejected": "sum", "late_from": "min", "late_to": "max"}


def counted_windows(files: Sequence[Location], window: Window, watermark_delay: timedelta) -> pa.Table:
    """Return the (record, window) pairs in time and late by window (`COUNTED`), like `windows.counted`.

    Sessions have late_from and late_to too.
    """
    each = [_of_part(part, window, micros(watermark_delay)) for file in files for part in _parts(file)]
    return add_up_windows(pa.concat_tables([COUNTED.empty_table(), *each]))


def add_up_windows(counts: pa.Table) -> pa.Table:
    """Add up counts of the same window."""
    totals = counts.group_by([WINDOW_START, WINDOW_END], use_threads=False).aggregate(list(ADDED.items()))
    return totals.rename_columns({f"{name}_{how}": name for name, how in ADDED.items()}).select(COUNTED.names)


def _parts(file: Location) -> Iterator[pa.RecordBatch]:
    with arrow_files.opened(file) as opened:
        yield from opened.iter_batches(1 << 17, columns=[OO_EVENT_TIME, OO_FRONTIER])


def _of_part(part: pa.RecordBatch, window: Window, watermark_delay: int) -> pa.Table:
    times = left_out.whole_micros(part.column(OO_EVENT_TIME))
    pairs = []
    for starts, ends, late in left_out.judged_rows(part, window, watermark_delay):
        if isinstance(window, Session):
            [(starts, ends)] = left_out.windows_of_rows(HOUR, times)
        met = pa.array(times, mask=~(late & isinstance(window, Session)))
        counts = [starts, ends, ~late, late, np.zeros_like(late), met, met]
        pairs.append(pa.table(counts, COUNTED.names).cast(COUNTED))
    return add_up_windows(pa.concat_tables(pairs))


FATES = ("in_time", "late", "rejected")


@dataclass(frozen=True)
class Met:
    """The (record, window) pairs that an output has met with some receive batches.

    windows    how many are in time, late and rejected, by window (`COUNTED`)
    rejected   each rejected pair, as the log stores it
    """

    windows: pa.Table
    rejected: pa.Table

    def count(self, fate: str) -> int:
        """Return the number of pairs with a fate, in all windows."""
        return pc.sum(self.windows.column(fate)).as_py() or 0


def received(context: RunContext, query: Query, versions: Versions) -> list[Received]:
    """Return the receive batches that a batch counts.

    A new incarnation meets rows again that an earlier incarnation has counted, over as many batches as it takes.
    """
    after = max(versions.after, int(query.start_from.get(COUNTED_UPTO, -1)))
    return Batches(query.database).received(context.instance, after, versions.upto)


def counted_batch(context: RunContext, query: Query, root: Output, received: list[Received]) -> Met:
    """Return what an output has met with these receive batches."""
    if root.reject:
        return _judged(context, query, root, received)
    return Met(_of_incarnation(query, _counts(context, root, received)), REJECTED.empty_table())


def _judged(context: RunContext, query: Query, root: Output, received: list[Received]) -> Met:
    """Count with the output's `reject` function, in one query over the records."""
    if not received:
        return Met(COUNTED.empty_table(), REJECTED.empty_table())
    kept = events.rows_kept(context.spark, context.events, events.schema(context.pipeline), received)
    found = function.rejections_met(context.pipeline, root, kept)
    counts = _of_incarnation(query, found.select(COUNTED.names).cast(COUNTED))
    rejected = found.filter(pc.greater(counts.column("rejected"), 0))
    return Met(add_up_windows(counts), function.rejected_rows_of(root, rejected))


def written(
    context: RunContext,
    chain: list[Output],
    batch: Batch,
    versions: Versions,
    windows: Mapping[str, pa.Table],
    fired: Fired | None,
) -> Windows:
    """Return what is known of the windows from this batch on, by output.

    A window is final when it has closed. If the batch writes closing windows, it does so immediately. Else it is final
    once `events` is read so far that no record in time can follow. For a join, what the batches before have read
    decides, since rows without a partner come a batch later. The same holds for a processor, because of its timers'
    rows.

    fired   the panes that the batch has written, if the output has a trigger
    """
    root = chain[0]
    last = fired.last if fired else {}
    plain = bool(batch.plan.facts.get(stored_names.STATELESS))
    as_they_come = at_close.as_they_come(root, stateless=plain) and not context.bounded
    final = not root.is_early and not as_they_come
    # Spark returns the rows of a window in the first batch that begins after the window has closed.
    by_spark = final and not at_close.are_of(context.pipeline, root, stateless=plain)
    version = versions.after if root.gives_as_it_comes or by_spark else versions.upto
    return Windows(
        windows,
        [output.name for output in chain],
        added=as_they_come,
        final=final,
        version=None if context.bounded else version,
        numbered=pane_numbers.of_written(windows[root.name], last) if root.pane_column else None,
        all_open=fired is not None and fired.replaced is not None,
    )


def _counts(context: RunContext, root: Output, received: list[Received]) -> pa.Table:
    moved = any(one.compacted for one in received)
    files = [] if moved else events.kept_files(context.events, received)
    if not files and not moved:
        return COUNTED.empty_table()
    if root.window is None and not moved:
        return _never_late(events.count(files))
    if root.window is not None and not moved and sum(one.kept for one in received) <= MOST:
        return counted_windows(files, root.window, root.watermark_delay)
    kept = events.rows_kept(context.spark, context.events, session.schema_of(events.PLACED_BY), received)
    if root.window is None:
        return _never_late(kept.count())
    rows = windows.counted(kept, root.window, root.watermark_delay).withColumns(
        {**windows.bounds(), "rejected": F.lit(0)}
    )
    return rows.select(*COUNTED.names).toArrow().cast(COUNTED)


def _never_late(rows: int) -> pa.Table:
    """Return the counts of an output that never closes a window."""
    return pa.Table.from_pylist([{"in_time": rows, "late": 0, "rejected": 0}], COUNTED)


def _of_incarnation(query: Query, counts: pa.Table) -> pa.Table:
    """Count pairs of windows that are closed to this incarnation as late.

    Another declaration has made these windows, and they take rows only by a backfill.
    """
    if query.first_window is None:
        return counts
    closed = pc.fill_null(pc.less(counts.column(WINDOW_START).cast(pa.int64()), query.first_window), False)
    late = reduce(pc.add, (counts.column(fate) for fate in FATES))
    for fate, instead in {"in_time": 0, "late": late, "rejected": 0}.items():
        counts = counts.set_column(
            counts.column_names.index(fate), fate, pc.if_else(closed, instead, counts.column(fate))
        )
    return counts


# Panes of open windows by a trigger (`AfterRecords`, `AfterTime`): which windows a batch writes, and their rows.
#
# Spark returns an open window's rows with the batch that changes them, and not later. So an output with a trigger keeps
# no state in Spark: its stream carries only the frontier, as with files of records (`at_close`). A batch reads from
# `events` all records in time of the windows that fire or close with it, and calls the function once.
#
# The log alone decides what fires: what the committed batches before have left behind (`Panes.held`), what this batch
# has met, and when it began. So a replay decides the same, and reads the same rows: the rows of the versions of
# `events` in its batch row.


@dataclass(frozen=True)
class Fired:
    """The rows and windows that a batch of an output with a trigger writes.

    rows      of the function, over the windows that fire or close
    windows   the windows that get a pane with the batch, even if the function gives no rows for them
    met       what the batch has met
    held      what it leaves of each window that it has changed (`HELD`)
    closed    up to where windows are closed with the batch
    last      the last pane of each window that was open before the batch, if the output numbers its panes
    replaced  the windows whose earlier rows the rows replace; None if their keys or windows decide that
    """

    rows: DataFrame
    windows: list[Bounds]
    met: Met
    held: pa.Table
    closed: int | None
    last: Mapping[Bounds, LastPane]
    replaced: OpenSpan | None = None

    def refuse_emptied(self, root: Output, written: pa.Table) -> None:
        """Raise Refused if a numbered pane has no rows and the pane before has some. `written`: `batches.WRITTEN`."""
        if self.last:
            rows = pane_numbers.rows_by_window(written)
            pane_numbers.refuse_emptied(root, self.last, self.windows, self.closed, rows)


def fired_panes(
    context: RunContext, query: Query, root: Output, batch: Batch, versions: Versions, stack: ExitStack
) -> Fired | None:
    """Return what a begun batch writes if triggers decide that: None without a trigger, and in a bounded run.

    `stack`: holds rows until the batch ends.
    """
    if root.trigger is None or context.bounded:
        return None
    met = counted_batch(context, query, root, received(context, query, versions))
    before = _of_declaration(query, Panes(query.database).held(context.instance, root.name))
    starts, ends, records = (
        met.windows.column(name).cast(pa.int64()).to_pylist() for name in (*results.WINDOW, "in_time")
    )
    in_time = dict(zip(zip(starts, ends, strict=True), records, strict=True))
    if root.has_early_sessions:
        return _fired_sessions(context, query, root, batch, versions, met, before, in_time, stack)
    closed = at_close.closed_at(context, root, versions.upto)
    due, left = triggers.decide_panes(root.trigger, before, in_time, closed, _micros(batch.plan.ingestion_time))
    query.log.info("panes", unit=f"{batch.plan.incarnation}/{batch.plan.batch_id}/{root.name}", fired=len(due))
    rows = outputs_events.closing_stream(context, query, root, versions, batch.plan.batch_id, due)
    fired = [window for window, held in left.items() if held is None]
    changed = pa.Table.from_pylist([_row(window, held) for window, held in left.items()], backfills.HELD)
    last = _open_panes(context, query, root) if root.pane_column else {}
    return Fired(pane_numbers.numbered(root, rows, last), fired, met, changed, closed, last)


def _open_panes(context: RunContext, query: Query, root: Output) -> dict[Bounds, LastPane]:
    """Return the last panes of open windows."""
    return _of_declaration(query, Panes(query.database).open_panes(context.instance, root.name))


def _of_declaration(query: Query, known: Mapping[Bounds, T]) -> dict[Bounds, T]:
    """Leave out the windows of an earlier declaration: they get no pane any more, and their files stay as they are."""
    first = query.first_window
    return {window: one for window, one in known.items() if first is None or window[0] >= first}


def _fired_sessions(
    context: RunContext,
    query: Query,
    root: Output,
    batch: Batch,
    versions: Versions,
    met: Met,
    before: Mapping[Bounds, Held],
    in_time: Mapping[Bounds, int],
    stack: ExitStack,
) -> Fired:
    """Return a pane of all open sessions, or nothing.

    The first batch of a new incarnation always writes one. A batch of the old one may have been withdrawn, and may have
    left rows that the log does not know. So this pane replaces the rows of all sessions that are not closed.
    """
    assert root.trigger is not None
    assert isinstance(root.window, Session)
    open_panes = Panes(query.database).open_panes(context.instance, root.name)
    there = [window for window, last in open_panes.items() if last.rows]
    now_closed = at_close.closed_at(context, root, versions.upto)
    due, left = triggers.decide_sessions(
        root.trigger, before, in_time, micros(root.window.gap), [end for _, end in there], now_closed,
        _micros(batch.plan.ingestion_time),
    )  # fmt: skip
    is_first = query.incarnation == stored_names.incarnation(context.instance, root.name, 1)
    anew = batch.plan.batch_id == 0 and not is_first
    if anew:
        due, left = True, dict.fromkeys(before)
    held = pa.Table.from_pylist([_row(window, held) for window, held in left.items()], backfills.HELD)
    if not due:
        return Fired(trigger_shape(context, root).limit(0), [], met, held, now_closed, {})
    closed = at_close.closed_at(context, root, versions.after)
    first = min((start for start, _ in there), default=None)
    rows = open_sessions.open_rows(context, root, closed, first, versions.upto, stack)
    from_start = FIRST if anew else LAST if first is None else first
    return Fired(rows, there, met, held, now_closed, {}, OpenSpan(from_start, FIRST if closed is None else closed))


def trigger_shape(context: RunContext, root: Output) -> DataFrame:
    """Return the function's result over no rows, for its columns."""
    empty = context.spark.createDataFrame([], events.schema(context.pipeline))
    return results.applied(context, root, windows.in_batch(empty, root))


def _row(window: Bounds, held: Held | None) -> dict[str, int]:
    left = {} if held is None else {"held": held.records, "held_since": held.since}
    return {WINDOW_START: window[0], WINDOW_END: window[1], **left}


def _micros(time: Any) -> int:
    found = to_micros(time)
    assert found is not None
    return found
