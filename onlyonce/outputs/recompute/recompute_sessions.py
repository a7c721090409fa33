"""Sessions of a backfill.

A session may begin before the first row that is read, and late rows may join sessions that were apart.

Only the user's function knows the key of a session, so the edges are found by computing: more rows are read at both
ends until no session of the span touches the edge of what was read. A session that late rows have changed may reach out
of the span. Then the span is widened to the old sessions that it has swallowed, whose rows would else stay.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.commitlog.outputs.backfills import Counts, Reach
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model.outputs import backfill as model
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_WINDOW
from onlyonce.model.windows import Micros, Session, micros
from onlyonce.outputs import results
from onlyonce.outputs.function import rejecting
from onlyonce.outputs.recompute.recomputed import Recomputed, between, starts_in
from onlyonce.outputs.windows import windowing
from onlyonce.session import encoding

FURTHER = 4
"""By how much the margin of what is read grows when a session reaches its edge."""

Windows = list[tuple[Micros, Micros]]


def computed(context: RunContext, root: Output, asked: Span, span: Span, reach: Reach, kept: DataFrame) -> Recomputed:
    """The sessions that start in the span, widened to what has merged.

    Raises OpenWindows when one that starts in what was asked for is still open.
    """
    assert isinstance(root.window, Session)
    rows, widened = kept, span
    while True:
        rows = _wide_enough(context, root, widened, kept)
        before, widened = widened, widened.hull(_changed(context, root, rows))
        if widened == before:
            break
    result = _sessions(context, root, rows)
    inside = result.filter(windowing.after_merge(starts_in(F.col(f"{OO_WINDOW}.start"), widened)))
    closed = reach.closed_until(root)
    to_be_closed = Span(widened.start, max(widened.stop, asked.stop))
    wanted = result.filter(windowing.after_merge(starts_in(F.col(f"{OO_WINDOW}.start"), to_be_closed)))
    last = wanted.agg(F.max(F.unix_micros(f"{OO_WINDOW}.end")).alias("end")).collect()[0].end
    if last is not None and (closed is None or last > closed):
        raise model.still_open(root.name, widened, last, closed)
    return Recomputed(inside, widened, _counted(root, rejecting.accepted(context.pipeline, root, rows), widened))


def _counted(root: Output, rows: DataFrame, span: Span) -> Counts:
    """Counted where the late rows are, at their own event times: the log knows them by the hour only."""
    assert root.window is not None
    late = windowing.is_late(root.window, root.lateness)
    in_span = rows.filter(starts_in(F.col(OO_EVENT_TIME), span))
    found = in_span.agg(F.count_if(~late).alias("in_time"), F.count_if(late).alias("late")).collect()[0]
    return {"in_time": found.in_time, "late": found.late}


def _sessions(context: RunContext, root: Output, rows: DataFrame) -> DataFrame:
    assert root.window is not None
    return results.applied(context, root, windowing.assign(rows, root.window))


def _wide_enough(context: RunContext, root: Output, span: Span, kept: DataFrame) -> DataFrame:
    """The rows around a span such that each of its sessions is whole."""
    assert isinstance(root.window, Session)
    gap = micros(root.window.gap)
    low, high = model.rows_of(root.window, span)
    oldest, newest = _ends(kept.agg(*_extremes(OO_EVENT_TIME, OO_EVENT_TIME)))
    while True:
        rows = between(kept, low, high)
        sessions = _sessions(context, root, rows)
        touches = (F.unix_micros(f"{OO_WINDOW}.start") < span.stop) & (F.unix_micros(f"{OO_WINDOW}.end") > span.start)
        touching = sessions.filter(windowing.after_merge(touches))
        start, end = _ends(touching.agg(*_extremes(f"{OO_WINDOW}.start", f"{OO_WINDOW}.end")))
        cut_low = start is not None and start < low + gap and oldest is not None and low > oldest
        cut_high = end is not None and end >= high and newest is not None and high <= newest
        if not cut_low and not cut_high:
            return rows
        low = low - FURTHER * (span.start - low) if cut_low else low
        high = high + FURTHER * (high - span.stop) if cut_high else high


def _changed(context: RunContext, root: Output, rows: DataFrame) -> Windows:
    """The sessions, old and new, that differ with the late rows and without them. Few: late rows are few."""
    assert root.window is not None
    in_time = _comparable(_sessions(context, root, rows.filter(~windowing.is_late(root.window, root.lateness))))
    both = _comparable(_sessions(context, root, rows))
    ends = both.exceptAll(in_time).unionByName(in_time.exceptAll(both)).select("start", "end")
    return [(row.start, row.end) for row in ends.distinct().collect()]


def _comparable(sessions: DataFrame) -> DataFrame:
    """Return each row as JSON, with the ends of its session: Spark compares no maps and no variants."""
    ends = [F.unix_micros(f"{OO_WINDOW}.start").alias("start"), F.unix_micros(f"{OO_WINDOW}.end").alias("end")]
    return sessions.select(*ends, encoding.json_object(sessions.schema).alias("row"))


def _extremes(first: str, last: str) -> list[Any]:
    return [F.min(F.unix_micros(first)).alias("first"), F.max(F.unix_micros(last)).alias("last")]


def _ends(frame: DataFrame) -> tuple[Micros | None, Micros | None]:
    row = frame.collect()[0]
    return row.first, row.last
