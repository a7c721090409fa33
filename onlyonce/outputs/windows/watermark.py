"""Whether an output's function asks the watermark only for windows that have ended.

Spark plans one batch more, without rows, whenever the watermark has moved: a whole pass over the state. An aggregation
by `oo_window` finds nothing there to write unless a window has ended. So its watermark moves from end to end
(`windowing.last_closed`). Anything else that keeps state, such as timers of the function's own, may wait for a time
inside a window, and has the exact one.

Who calls it: `reading`. No errors. Not promised: that it knows each plan that would do; one that it does not know has
the exact watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame

from onlyonce.model.stored_names import OO_WINDOW
from onlyonce.model.windows import Window
from onlyonce.outputs.stateless import STATELESS
from onlyonce.outputs.windows import windowing


def chosen(window: Window | None, by: Callable[[windowing.Until], tuple[DataFrame, DataFrame]]) -> DataFrame:
    """What an output's function makes of its rows, under the watermark that does for it.

    `by` gives the rows and what becomes of them under one of the two.
    """
    rows, result = by(windowing.last_closed)
    if window is None or is_asked_at_ends(rows, result):
        return result
    return by(windowing.closed_until)[1]


def is_asked_at_ends(rows: DataFrame, result: DataFrame) -> bool:
    """Whether what a function has made of its rows keeps no state, or only that of one aggregation by the window that
    they had."""
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
    # A union of streams keeps no state; a join of them does.
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
