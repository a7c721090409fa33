"""How many records of a batch are in each window, in time and late: counted by the driver, from two columns of the
batch's data files.

It costs a part of what a Spark job for it would: a million records take some 0.1 s of a core here. So of a large batch
Spark's executors count (`windowing.counted`), and of rows whose files are compacted, which only a look at the table
finds.

Who calls it: `window_log`. Errors: OSError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import Any

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
from onlyonce.core import stored_names
from onlyonce.core import windows as core_windows
from onlyonce.core.batch import Batch, to_micros
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import COUNTED_UPTO, OO_EVENT_TIME, OO_FRONTIER, WINDOW_END, WINDOW_START
from onlyonce.core.windows import Bounds, Fixed, Held, Session, Window, micros
from onlyonce.engine import session
from onlyonce.outputs import at_close, function, results, windows
from onlyonce.outputs import events as outputs_events
from onlyonce.outputs import windows as outputs_windows
from onlyonce.outputs.results import Versions
from onlyonce.receive import events
from onlyonce.records import left_out
from onlyonce.tables import arrow_files

MOST = 10_000_000
"""So many records take the driver a second. Of more the executors count: the start of a job is little beside them."""
HOUR = Fixed(timedelta(hours=1))
"""Sessions merge, so a lone record has no window of its own yet: counted by the hour of its event."""
ADDED = {"in_time": "sum", "late": "sum", "rejected": "sum", "late_from": "min", "late_to": "max"}


def counted_windows(files: Sequence[Location], window: Window, lateness: timedelta) -> pa.Table:
    """As `windowing.counted`: in time and late by window (`COUNTED`), in (record, window) pairs; of sessions also
    late_from and late_to."""
    each = [_of_part(part, window, micros(lateness)) for file in files for part in _parts(file)]
    return by_window(pa.concat_tables([COUNTED.empty_table(), *each]))


def by_window(counts: pa.Table) -> pa.Table:
    """Counts of the same window added up."""
    totals = counts.group_by([WINDOW_START, WINDOW_END], use_threads=False).aggregate(list(ADDED.items()))
    return totals.rename_columns({f"{name}_{how}": name for name, how in ADDED.items()}).select(COUNTED.names)


def _parts(file: Location) -> Iterator[pa.RecordBatch]:
    with arrow_files.opened(file) as opened:
        yield from opened.iter_batches(1 << 17, columns=[OO_EVENT_TIME, OO_FRONTIER])


def _of_part(part: pa.RecordBatch, window: Window, lateness: int) -> pa.Table:
    times = left_out.whole_micros(part.column(OO_EVENT_TIME))
    pairs = []
    for starts, ends, late in left_out.judged_rows(part, window, lateness):
        if isinstance(window, Session):
            [(starts, ends)] = left_out.windows_of_rows(HOUR, times)
        met = pa.array(times, mask=~(late & isinstance(window, Session)))
        counts = [starts, ends, ~late, late, np.zeros_like(late), met, met]
        pairs.append(pa.table(counts, COUNTED.names).cast(COUNTED))
    return by_window(pa.concat_tables(pairs))


# Tells the log about an output's windows with each batch: how many (record, window) pairs it met, which of them it has
# rejected, and what it has written of each window.
#
# Who calls it: `outputs`, at the end of a batch. No errors of its own.


FATES = ("in_time", "late", "rejected")


@dataclass(frozen=True)
class Met:
    """What an output has met with some receive batches, in (record, window) pairs.

    windows    how many are in time, late and rejected, by window (`COUNTED`)
    rejected   each that is rejected, as the log has it
    """

    windows: pa.Table
    rejected: pa.Table

    def count(self, fate: str) -> int:
        """How many there are, in all windows."""
        return pc.sum(self.windows.column(fate)).as_py() or 0


def received(context: RunContext, query: Query, versions: Versions) -> list[Received]:
    """The receive batches that a batch counts: a new life meets rows again that an earlier one has counted, in as many
    batches as it takes."""
    after = max(versions.after, int(query.start_from.get(COUNTED_UPTO, -1)))
    return Batches(query.database).received(context.instance, after, versions.upto)


def counted_batch(context: RunContext, query: Query, root: Output, received: list[Received]) -> Met:
    """What an output has met with these receive batches."""
    if root.reject:
        return _judged(context, query, root, received)
    return Met(_of_life(query, _counts(context, root, received)), REJECTED.empty_table())


def _judged(context: RunContext, query: Query, root: Output, received: list[Received]) -> Met:
    """The same by the output's function that rejects, in one look at the records."""
    if not received:
        return Met(COUNTED.empty_table(), REJECTED.empty_table())
    kept = events.rows_kept(context.spark, context.events, events.schema(context.pipeline), received)
    found = function.rejections_met(context.pipeline, root, kept)
    counts = _of_life(query, found.select(COUNTED.names).cast(COUNTED))
    rejected = found.filter(pc.greater(counts.column("rejected"), 0))
    return Met(by_window(counts), function.rejected_rows_of(root, rejected))


def written(
    context: RunContext, chain: list[Output], batch: Batch, versions: Versions, windows: Mapping[str, pa.Table]
) -> Windows:
    """What is known of the windows from this batch on, by output.

    One is final when it has closed: where the batch writes it then, at once, and else when `events` is read so far that
    nothing in time can come for it. Of a join it is so by what the batches before have read: its rows without a partner
    come a batch later; of a processor too, for the rows of its timers."""
    root = chain[0]
    as_they_come = (
        at_close.as_they_come(root, stateless=bool(batch.plan.facts.get(stored_names.STATELESS)))
        and not context.bounded
    )
    return Windows(
        windows,
        [output.name for output in chain],
        added=as_they_come,
        final=not root.is_early and not as_they_come,
        version=versions.after if root.gives_as_it_comes else versions.upto,
    )


def _counts(context: RunContext, root: Output, received: list[Received]) -> pa.Table:
    moved = any(one.compacted for one in received)
    files = [] if moved else events.kept_files(context.events, received)
    if not files and not moved:
        return COUNTED.empty_table()
    if root.window is None and not moved:
        return _never_late(events.count(files))
    if root.window is not None and not moved and sum(one.kept for one in received) <= MOST:
        return counted_windows(files, root.window, root.lateness)
    kept = events.rows_kept(context.spark, context.events, session.schema_of(events.PLACED_BY), received)
    if root.window is None:
        return _never_late(kept.count())
    rows = windows.counted(kept, root.window, root.lateness).withColumns({**windows.bounds(), "rejected": F.lit(0)})
    return rows.select(*COUNTED.names).toArrow().cast(COUNTED)


def _never_late(rows: int) -> pa.Table:
    """Of an output that never closes."""
    return pa.Table.from_pylist([{"in_time": rows, "late": 0, "rejected": 0}], COUNTED)


def _of_life(query: Query, counts: pa.Table) -> pa.Table:
    """Windows that are closed to this life, since another declaration has made them, take rows by backfill only."""
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
# Spark tells an open window's rows with the batch that changes them, and not later. So an output with a trigger keeps
# no state in Spark: its stream only tells how far it has come, as with files of records (`raw_windows`). A batch reads
# all records in time of the windows that fire with it, or close with it, from `events`, and gives them to the function
# at once.
#
# What fires is decided by the log alone: what the committed batches before have left (`panes.held`), what this one has
# met, and when it began by its row. So a replay decides the same, and reads the same rows, those of the versions of
# `events` in its row. Who calls it: `outputs`, `finishing`. Errors: those of the function, and of Spark.


@dataclass(frozen=True)
class Fired:
    """What a batch of an output with a trigger writes.

    rows   of the function, over the windows that fire or close
    met    what the batch has met
    held   what it leaves of each window that it has changed (`panes.HELD`)
    """

    rows: DataFrame
    met: Met
    held: pa.Table


def fired_panes(context: RunContext, query: Query, root: Output, batch: Batch, versions: Versions) -> Fired:
    """What a begun batch writes; the output has a trigger."""
    assert root.trigger is not None
    met = counted_batch(context, query, root, received(context, query, versions))
    before = Panes(query.database).held(context.instance, root.name)
    starts, ends, records = (
        met.windows.column(name).cast(pa.int64()).to_pylist() for name in (*results.WINDOW, "in_time")
    )
    in_time = dict(zip(zip(starts, ends, strict=True), records, strict=True))
    closed = at_close.closed_at(context, root, versions.upto)
    due, left = core_windows.decide_panes(root.trigger, before, in_time, closed, _micros(batch.plan.system_time))
    query.log.info("panes", unit=f"{batch.plan.lineage}/{batch.plan.batch_id}/{root.name}", fired=len(due))
    rows = outputs_events.closing_stream(context, query, root, versions, batch.plan.batch_id, due)
    return Fired(rows, met, pa.Table.from_pylist([_row(window, held) for window, held in left.items()], backfills.HELD))


def trigger_shape(context: RunContext, root: Output) -> DataFrame:
    """The function over no rows: its columns."""
    empty = context.spark.createDataFrame([], events.schema(context.pipeline))
    return results.applied(context, root, outputs_windows.in_batch(empty, root))


def _row(window: Bounds, held: Held | None) -> dict[str, int]:
    left = {} if held is None else {"held": held.records, "held_since": held.since}
    return {WINDOW_START: window[0], WINDOW_END: window[1], **left}


def _micros(time: Any) -> int:
    found = to_micros(time)
    assert found is not None
    return found
