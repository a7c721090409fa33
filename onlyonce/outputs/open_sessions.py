"""Compute all open sessions of an output, for an early pane. docs/how-to/panes.md.

Only the user's function knows the key of a session. A record may extend a session or join two, and then no row has the
key of an earlier pane's row any more. So a pane holds the rows of all open sessions, and replaces all rows of
the pane before.

A session is final once it ends by the watermark: a record in time is later, so it can't extend the session. All other
sessions are open. A row shows by its window's end which of the two it is.

The records of open sessions are read from `events`, from the start of the first one on. A session that begins at the
edge of what was read may be cut, and then more is read. This works only if each session has a row, and a row depends
on the records of its session alone (`check_function`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Output
from onlyonce.context import RunContext
from onlyonce.core.errors import Refused
from onlyonce.core.stored_names import KEPT, OO_EVENT_TIME, OO_KIND, OO_WINDOW
from onlyonce.core.windows import Micros, Session, micros
from onlyonce.engine import session
from onlyonce.outputs import results, windows
from onlyonce.receive import events

FURTHER = 4
"""The factor by which more event time is read if a session may be cut."""
SESSION = "spark.sessionWindow"
"""Spark's mark of a column with sessions, in the column's metadata."""
BY_RECORD = {
    "Project", "Filter", "Union", "Expand", "Generate", "SubqueryAlias", "View", "MapInPandas", "MapInArrow",
    "PythonMapInArrow",
}  # fmt: skip
"""Spark's logical operators whose rows depend on one record each."""


def open_rows(
    context: RunContext, root: Output, closed: Micros | None, first: Micros | None, upto: int, held: ExitStack
) -> DataFrame:
    """Return the function's rows of all sessions that end later than `closed`, as of a version of `events`.

    closed   None: all sessions
    first    the start of the first session of the last pane, if there is one. It decides only how much is read first
    held     holds the rows until it ends
    """
    assert isinstance(root.window, Session)
    kept = events.rows_as_of(context, upto).filter(f"{OO_KIND} = '{KEPT}'")
    in_time = kept.filter(~windows.is_late(root.window, root.watermark_delay))
    if closed is None:
        return results.applied(context, root, windows.assign(in_time, root.window))
    gap = micros(root.window.gap)
    low = min(closed, closed if first is None else first) - gap
    while True:
        near = in_time.filter(F.col(OO_EVENT_TIME) >= F.timestamp_micros(F.lit(low)))
        result = results.applied(context, root, windows.assign(near, root.window))
        later = F.col(f"{OO_WINDOW}.end") > F.timestamp_micros(F.lit(closed))
        found = result.filter(windows.after_merge(later)).persist()
        start = found.agg(F.min(F.unix_micros(f"{OO_WINDOW}.start"))).collect()[0][0]
        if start is None or start >= low + gap:
            held.callback(found.unpersist)
            return found
        found.unpersist()
        low = closed - FURTHER * (closed - low)


def every_session(result: DataFrame) -> DataFrame:
    """Return the `oo_window` of each session in a function's result, and of each session that the function leaves out.

    A function may leave out sessions with few records. If only a part of a session was read, its row may be missing
    then. If the function aggregates no records by their session, return the windows of its rows.
    """
    found = [_windows_of(result, plan) for plan in _by_session(result._jdf.queryExecution().analyzed())]  # type: ignore[operator]
    return reduce(DataFrame.union, found) if found else result.select(OO_WINDOW)


def _by_session(plan: Any) -> Iterator[Any]:
    """Yield the aggregations of a plan that make sessions of records."""
    if _makes_sessions(plan):
        yield plan
        return
    for child in _each(plan.children()):
        yield from _by_session(child)


def _windows_of(result: DataFrame, plan: Any) -> DataFrame:
    columns = [*_each(plan.output())]
    numbered = session.frame_of_plan(result, plan).toDF(*map(str, range(len(columns))))
    [at, *_] = [number for number, column in enumerate(columns) if _is_session(column)]
    return numbered.select(F.col(str(at)).alias(OO_WINDOW))


def check_function(root: Output, result: DataFrame) -> None:
    """Raise Refused for early panes of sessions if the function may leave out a session. `result`: over any records."""
    if root.has_early_sessions and not _has_row_for_each(result._jdf.queryExecution().analyzed()):  # type: ignore[operator]
        raise Refused(
            f"output {root.name}: early panes of sessions need a row of each session, and {root.made_by} does more "
            f"than aggregate once by {OO_WINDOW}",
            data="nothing was written",
            hint=f"filter records, group once by {OO_WINDOW} and your keys, and compute columns: filter, join, rank or "
            "aggregate the rows where they are read. Or leave panes out",
        )


def _has_row_for_each(plan: Any) -> bool:
    """Return whether a result is one aggregation by sessions, and columns computed from its rows."""
    while plan.nodeName() in ("Project", "SubqueryAlias"):
        plan = plan.child()
    return _makes_sessions(plan)


def _makes_sessions(plan: Any) -> bool:
    """Return whether an operator aggregates records by their session, and its rows have the session."""
    if plan.nodeName() != "Aggregate" or not any(map(_is_session, _each(plan.groupingExpressions()))):
        return False
    return any(map(_is_session, _each(plan.output()))) and _is_by_record(plan.child())


def _is_by_record(plan: Any) -> bool:
    """Return whether each row depends on one record alone."""
    children = [*_each(plan.children())]
    return not children or (plan.nodeName() in BY_RECORD and all(map(_is_by_record, children)))


def _is_session(column: Any) -> bool:
    return column.nodeName() == "AttributeReference" and column.metadata().contains(SESSION)


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(number) for number in range(sequence.size()))
