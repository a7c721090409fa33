"""Tells the log about an output's windows with each batch: how many (record, window) pairs it met, which of them it has
rejected, and what it has written of each window.

Who calls it: `outputs`, at the end of a batch. No errors of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from onlyonce.commitlog.batches import COUNTED, Batches, Received
from onlyonce.commitlog.outputs.ends import Windows
from onlyonce.commitlog.outputs.rejections import REJECTED
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model import stored_names
from onlyonce.model.batch import Batch
from onlyonce.model.stored_names import COUNTED_UPTO, WINDOW_START
from onlyonce.outputs.events.replayed import Versions
from onlyonce.outputs.function import rejecting
from onlyonce.outputs.windows import counting, raw_windows, windowing
from onlyonce.receive import events, past_rows
from onlyonce.session import schemas

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


def counted(context: RunContext, query: Query, root: Output, received: list[Received]) -> Met:
    """What an output has met with these receive batches."""
    if root.reject:
        return _judged(context, query, root, received)
    return Met(_of_life(query, _counts(context, root, received)), REJECTED.empty_table())


def _judged(context: RunContext, query: Query, root: Output, received: list[Received]) -> Met:
    """The same by the output's function that rejects, in one look at the records."""
    if not received:
        return Met(COUNTED.empty_table(), REJECTED.empty_table())
    kept = past_rows.kept(context.spark, context.events, events.schema(context.pipeline), received)
    found = rejecting.met(context.pipeline, root, kept)
    counts = _of_life(query, found.select(COUNTED.names).cast(COUNTED))
    rejected = found.filter(pc.greater(counts.column("rejected"), 0))
    return Met(counting.by_window(counts), rejecting.rows_of(root, rejected))


def written(
    context: RunContext, chain: list[Output], batch: Batch, versions: Versions, windows: Mapping[str, pa.Table]
) -> Windows:
    """What is known of the windows from this batch on, by output.

    One is final when it has closed: where the batch writes it then, at once, and else when `events` is read so far that
    nothing in time can come for it. Of a join it is so by what the batches before have read: its rows without a partner
    come a batch later; of a processor too, for the rows of its timers."""
    root = chain[0]
    as_they_come = (
        raw_windows.as_they_come(root, stateless=bool(batch.plan.facts.get(stored_names.STATELESS)))
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
    if root.window is not None and not moved and sum(one.kept for one in received) <= counting.MOST:
        return counting.counted(files, root.window, root.lateness)
    kept = past_rows.kept(context.spark, context.events, schemas.of(events.PLACED_BY), received)
    if root.window is None:
        return _never_late(kept.count())
    rows = windowing.counted(kept, root.window, root.lateness).withColumns({**windowing.bounds(), "rejected": F.lit(0)})
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
