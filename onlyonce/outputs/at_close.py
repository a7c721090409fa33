"""Read the records of a window from `events` when the window closes, for outputs whose query keeps no state.

Such outputs are those with a file sink, and those with `panes="at_close"`. `are_of` decides whether an output is one.
Spark alone would not do:

- Without a state, Spark returns the rows of a batch in that batch, so a window would be spread over many batches.
- With a state, Spark returns a window's rows one batch after the one that closes the window.

So the stream of such an output carries only the frontier. The batch that closes a window reads all its rows at once.
The versions of `events` that the batch has read determine these rows, so a replay reads the same rows. In this order:

1. `closing_ends` returns between which two times the ends of the closing windows are.
2. `_met_by` asks the log which batches of receive have records of these windows. Then only their files are read.
3. `closed_by` returns the records in time of these windows. The driver reads them if they are few
   (`read_closing_rows`), otherwise Spark does. Spark reads the whole table if the log can't name the batches.

The last part of the module is about outputs whose query keeps a state: under which watermark their function runs
(`asks_watermark`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, DateType, NumericType, StringType, StructType, TimestampType

from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.batches import Batches, Received
from onlyonce.context import Query, RunContext
from onlyonce.core.batch import read_upto, to_time
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import KEPT, OO_EVENT_TIME, OO_FRONTIER, OO_INGESTION_TIME, OO_KIND, OO_WINDOW
from onlyonce.core.windows import Bounds, Chained, Fixed, Session, Sliding, Window, any_ends, longest, micros, reach
from onlyonce.engine import driver_rows, session
from onlyonce.outputs import windows as outputs_windows
from onlyonce.outputs.results import Versions
from onlyonce.outputs.stateless import STATELESS
from onlyonce.receive import events
from onlyonce.records import left_out
from onlyonce.tables import arrow_files

SEEN = f"{OO_EVENT_TIME} timestamp, {OO_INGESTION_TIME} timestamp"
"""The platform's columns that a function may see, besides the window."""
BOUNDS = "oo_start timestamp, oo_end timestamp"
FRONTIER = OO_FRONTIER
PLAIN = (BooleanType, DateType, NumericType, StringType, TimestampType)
"""Column types that Arrow reads like Spark."""


def read_closing_rows(
    context: RunContext, root: Output, received: list[Received], closing: tuple[int, int]
) -> DataFrame | None:
    """Return the records in time of the windows that end in `closing`, with `oo_window`; None if Spark must read them.

    received   the batches of receive that have these records
    closing    the ends of the windows: later than the first time and not later than the second, in microseconds

    The driver reads the records without a Spark job. For few records a job costs more than reading them, and Spark
    would compile its plan again for each batch, since the plan contains the windows' bounds.
    `left_out.judged_rows` decides which records are late, by the same rule as Spark's expression (`windows.is_late`).
    So a replay may read the other way.

    Spark must read nested types, windows of a chain, compacted batches, and more bytes than the driver holds. A file's
    footer has the bytes of its rows, so the driver reads no rows that it can't hold.
    """
    assert root.window is not None
    shown = StructType(session.schema_of(context.pipeline.schema).fields + session.schema_of(SEEN).fields)
    if (
        not driver_rows.are_few(sum(one.kept for one in received))
        or any(one.compacted for one in received)
        or isinstance(root.window, Chained)
    ):
        return None
    if not all(isinstance(field.dataType, PLAIN) for field in shown.fields):
        return None
    with_bounds = StructType(shown.fields + session.schema_of(BOUNDS).fields)
    wanted = to_arrow_schema(with_bounds, timezone="UTC")
    parts = _held(
        events.kept_files(context.events, received), wanted, root.window, micros(root.watermark_delay), closing
    )
    if parts is None:
        return None
    frame = context.spark.createDataFrame(pa.Table.from_batches(parts, wanted), with_bounds)
    window = F.struct(F.col("oo_start").alias("start"), F.col("oo_end").alias("end"))
    return frame.withColumn(OO_WINDOW, window).drop("oo_start", "oo_end")


def _held(
    files: list[Location], wanted: pa.Schema, window: Window, watermark_delay: int, closing: tuple[int, int]
) -> list[pa.RecordBatch] | None:
    """Return the records in time of some files, each record once for each closing window that contains it.

    Return None if the files' rows, or the records, take more bytes than the driver holds.
    """
    to_read, to_hold = driver_rows.room(), driver_rows.room()
    parts = []
    for file in files:
        with arrow_files.opened(file) as opened:
            if not to_read.take(events.bytes_of(opened.metadata)):
                return None
            for part in _of_file(opened, wanted, window, watermark_delay, closing):
                if not to_hold.take(part.nbytes):
                    return None
                parts.append(part)
    return parts


def _of_file(
    opened: parquet.ParquetFile, wanted: pa.Schema, window: Window, watermark_delay: int, closing: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    before, now = closing
    there = [name for name in opened.schema_arrow.names if name in wanted.names]
    for part in opened.iter_batches(columns=[*there, FRONTIER]):
        for starts, ends, late in left_out.judged_rows(part, window, watermark_delay):
            mine = ~late & (ends > before) & (ends <= now)
            if mine.any():
                yield _shaped(part.filter(pa.array(mine)), wanted, starts[mine], ends[mine])


def _shaped(rows: pa.RecordBatch, wanted: pa.Schema, starts: left_out.Times, ends: left_out.Times) -> pa.RecordBatch:
    """Return the rows with the columns as declared now: a file may be older than one of the columns."""
    bounds: dict[str, np.ndarray[Any, Any]] = {"oo_start": starts, "oo_end": ends}
    columns = []
    for field in wanted:
        if field.name in bounds:
            columns.append(pa.array(bounds[field.name]).cast(field.type))
        elif field.name in rows.schema.names:
            columns.append(rows.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


# Which outputs are read this way, and the records of their closing windows.


Ends = tuple[int | None, int | None]
"""Which windows, by their ends in microseconds: later than the first time, and not later than the second.

If the first is None, these are all windows up to the second. If the second is None, there is no such window.
"""
FEW = 256
"""The most batches of receive whose files are found by the log. For each batch an entry of Delta's log is read."""


def as_they_come(root: Output, *, stateless: bool) -> bool:
    """Return whether the batch that reads records also writes their rows, so that a window is written in parts.

    That holds for outputs without a state, joins and processors. A bounded run has one batch and does not use this.

    stateless   whether Spark keeps no state for the output's function, here and in `are_of`
    """
    if isinstance(root.window, Chained) or root.panes == "at_close":
        return False
    return root.gives_as_it_comes or (stateless and not root.is_early and not root.sink.writes_files)


def are_of(pipeline: Pipeline, root: Output, *, stateless: bool) -> bool:
    """Return whether an output's batches read the records of their closing windows from `events`, as in this module.

    Raise Refused if a file sink would get no whole windows.
    """
    if isinstance(root.window, Chained) or root.panes == "at_close":
        return True
    if not stateless or root.window is None or root.is_early:
        return False
    made = [output.name for output in pipeline.made_from(root) if output.sink.writes_files]
    if made and not root.sink.writes_files:
        raise Refused(
            f"output {made[0]}: {root.name} gives rows as they come, so there is no time at which a window's files "
            "are complete",
            data="nothing was written",
            hint="declare it as an output of its own, without from_output: then its windows are written when they "
            "close",
        )
    if root.sink.writes_files and isinstance(root.window, Session):
        raise Refused(
            f"output {root.name}: records that are not aggregated have no session of their own",
            data="nothing was written",
            hint=f"aggregate by {OO_WINDOW}, or give the output fixed or sliding windows",
        )
    return root.sink.writes_files


def closing_ends(context: RunContext, root: Output, after: int | None, versions: Versions) -> Ends:
    """Return which windows close between version `after` of `events` and the last one of `versions`.

    If `after` is None, return all windows that are closed at the last version.
    """
    before, now = (None if version is None else closed_at(context, root, version) for version in (after, versions.upto))
    return before, now


def closes_any(root: Output, ends: Ends) -> bool:
    """Return whether a window can have one of these ends."""
    before, now = ends
    assert isinstance(root.window, Fixed | Sliding)
    if before is None or isinstance(root.window, Chained):
        return now is not None and now != before
    return now is not None and any_ends(root.window, before, now)


def closed_by(context: RunContext, query: Query, root: Output, ends: Ends, versions: Versions) -> DataFrame:
    """Return the records in time of the windows with these ends, with `oo_window`, as of the last of `versions`."""
    assert root.window is not None
    assert not isinstance(root.window, Session)
    before, now = ends
    received = _met_by(context, query, root, ends, versions)
    if received is not None and before is not None and now is not None:
        few = read_closing_rows(context, root, received, (before, now))
        if few is not None:
            return few
    if received is None:
        rows = events.rows_as_of(context, versions.upto).filter(f"{OO_KIND} = '{KEPT}'")
    else:
        rows = events.rows_kept(context.spark, context.events, events.schema(context.pipeline), received)
    kept = outputs_windows.assign(rows.filter(_may_close(root.window, before, now)), root.window)
    end = F.unix_micros(f"{OO_WINDOW}.end")
    closing = F.lit(False) if now is None else end <= F.lit(now)
    if before is not None:
        closing = closing & (end > F.lit(before))
    return kept.filter(closing & ~outputs_windows.is_late(root.window, root.watermark_delay))


def _met_by(
    context: RunContext, query: Query, root: Output, closing: Ends, versions: Versions
) -> list[Received] | None:
    """Return batches of receive that together have all records in time of the windows with the ends `closing`.

    The log has the output's first batch that met one of these records. The result is all batches of receive from that
    batch on. Return None if the whole table must be read:

    - `closing` has no lower bound, as in the first batch of a new incarnation.
    - Another incarnation has met some of the records, or the log has only their sums (`met.told` is false).
    - There are more than FEW batches of receive.
    """
    window, (before, now) = root.window, closing
    assert isinstance(window, Fixed | Sliding)
    if before is None or now is None:
        return None
    if not closes_any(root, closing):
        return []
    met = Batches(query.database).met_first(
        context.instance, query.incarnation, root.name, (before, now), longest(window)
    )
    if met is not None and not met.told:
        return None
    first = versions.after if met is None else min(versions.after, read_upto(met.source_from))
    received = Batches(query.database).received(context.instance, first, versions.upto)
    return received if len(received) <= FEW else None


def _may_close(window: Fixed | Sliding, before: int | None, now: int | None) -> Column:
    """Return the condition by event time that each record of a window with an end in (before, now] fulfils.

    By this condition Delta skips files without opening them.
    """
    if now is None or now == before:
        return F.lit(False)
    found = F.col(OO_EVENT_TIME) < F.timestamp_micros(F.lit(now))
    if before is not None:
        found = found & (F.col(OO_EVENT_TIME) > F.timestamp_micros(F.lit(before - longest(window) - reach(window))))
    return found


def of(context: RunContext, root: Output, windows: list[Bounds], upto: int) -> DataFrame:
    """Return the records in time of given windows, which may be open, as of a version of `events`."""
    assert root.window is not None
    first, last = min(start for start, _ in windows), max(end for _, end in windows)
    time = F.col(OO_EVENT_TIME)
    near = (time >= F.timestamp_micros(F.lit(first))) & (time < F.timestamp_micros(F.lit(last)))
    rows = events.rows_as_of(context, upto).filter(f"{OO_KIND} = '{KEPT}'").filter(near)
    bounds = [((to_time(start), to_time(end)),) for start, end in windows]
    wanted = context.spark.createDataFrame(bounds, f"{OO_WINDOW} struct<start: timestamp, end: timestamp>")
    inside = outputs_windows.assign(rows, root.window).join(F.broadcast(wanted), OO_WINDOW, "left_semi")
    return inside.filter(~outputs_windows.is_late(root.window, root.watermark_delay))


def closed_at(context: RunContext, root: Output, version: int) -> int | None:
    """Return up to where the output's windows are closed at a version of `events`."""
    return Backfills(context.database).closed_at(context.instance, root, version)


# The watermark of an output whose query keeps a state: exact, or only at the ends of windows.
#
# Whenever the watermark has moved, Spark runs one more batch without rows, which passes over the whole state. For an
# aggregation by `oo_window` that batch writes nothing unless a window has ended. So the watermark of such an output
# moves only from one window's end to the next (`windows.last_closed`). Any other state, such as a timer of the user's
# function, may wait for a time inside a window, so it gets the exact watermark (`windows.closed_until`). So does a plan
# that is not recognised here.


def asks_watermark(
    window: Window | None, by: Callable[[outputs_windows.Until], tuple[DataFrame, DataFrame]]
) -> DataFrame:
    """Return the result of an output's function, under the watermark at ends of windows if it needs no other.

    by   returns the function's input rows and its result under a given watermark
    """
    rows, result = by(outputs_windows.last_closed)
    if window is None or is_asked_at_ends(rows, result):
        return result
    return by(outputs_windows.closed_until)[1]


def is_asked_at_ends(rows: DataFrame, result: DataFrame) -> bool:
    """Return whether the watermark at ends of windows suffices.

    It does if the plan of the result keeps no state, or only the state of one aggregation by the rows' window.
    """
    keeping = list(_keeping_state(_plan(result)))
    return not keeping or (len(keeping) == 1 and _groups_by(keeping[0], _window(rows)))


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()  # type: ignore[operator]


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(number) for number in range(sequence.size()))


def _keeping_state(node: Any) -> Iterator[Any]:
    if not node.isStreaming():
        return
    streams = [child for child in _each(node.children()) if child.isStreaming()]
    # A union of streams keeps no state; a join of streams does.
    if node.nodeName() not in STATELESS or (len(streams) > 1 and node.nodeName() != "Union"):
        yield node
    for child in streams:
        yield from _keeping_state(child)


def _window(rows: DataFrame) -> int:
    return next(int(column.exprId().id()) for column in _each(_plan(rows).output()) if column.name() == OO_WINDOW)


def _groups_by(node: Any, window: int) -> bool:
    if node.nodeName() != "Aggregate":
        return False
    by = _each(node.groupingExpressions())
    return any(one.nodeName() == "AttributeReference" and int(one.exprId().id()) == window for one in by)
