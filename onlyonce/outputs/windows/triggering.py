"""Panes of open windows by a trigger (`AfterRecords`, `AfterTime`): which windows a batch writes, and their rows.

Spark tells an open window's rows with the batch that changes them, and not later. So an output with a trigger keeps no
state in Spark: its stream only tells how far it has come, as with files of records (`raw_windows`). A batch reads all
records in time of the windows that fire with it, or close with it, from `events`, and gives them to the function at
once.

What fires is decided by the log alone: what the committed batches before have left (`panes.held`), what this one has
met, and when it began by its row. So a replay decides the same, and reads the same rows, those of the versions of
`events` in its row. Who calls it: `outputs`, `finishing`. Errors: those of the function, and of Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from onlyonce.commitlog.outputs import panes
from onlyonce.commitlog.outputs.panes import Panes
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model.batch import Batch, to_micros
from onlyonce.model.outputs import triggers
from onlyonce.model.outputs.triggers import Bounds, Held
from onlyonce.model.stored_names import WINDOW_END, WINDOW_START
from onlyonce.outputs import results
from onlyonce.outputs.events import reading
from onlyonce.outputs.events.replayed import Versions
from onlyonce.outputs.windows import raw_windows, window_log, windowing
from onlyonce.outputs.windows.window_log import Met
from onlyonce.receive import events


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


def fired(context: RunContext, query: Query, root: Output, batch: Batch, versions: Versions) -> Fired:
    """What a begun batch writes; the output has a trigger."""
    assert root.trigger is not None
    met = window_log.counted(context, query, root, window_log.received(context, query, versions))
    before = Panes(query.database).held(context.instance, root.name)
    starts, ends, records = (
        met.windows.column(name).cast(pa.int64()).to_pylist() for name in (*results.WINDOW, "in_time")
    )
    in_time = dict(zip(zip(starts, ends, strict=True), records, strict=True))
    closed = raw_windows.closed_at(context, root, versions.upto)
    due, left = triggers.decided(root.trigger, before, in_time, closed, _micros(batch.plan.system_time))
    query.log.info("panes", unit=f"{batch.plan.lineage}/{batch.plan.batch_id}/{root.name}", fired=len(due))
    rows = reading.closing(context, query, root, versions, batch.plan.batch_id, due)
    return Fired(rows, met, pa.Table.from_pylist([_row(window, held) for window, held in left.items()], panes.HELD))


def shape(context: RunContext, root: Output) -> DataFrame:
    """The function over no rows: its columns."""
    empty = context.spark.createDataFrame([], events.schema(context.pipeline))
    return results.applied(context, root, windowing.in_batch(empty, root))


def _row(window: Bounds, held: Held | None) -> dict[str, int]:
    left = {} if held is None else {"held": held.records, "held_since": held.since}
    return {WINDOW_START: window[0], WINDOW_END: window[1], **left}


def _micros(time: Any) -> int:
    found = to_micros(time)
    assert found is not None
    return found
