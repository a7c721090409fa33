"""Outputs made from another's closed windows, with windows of their own: the rows of their functions are made of
`events`, as those of any output.

A record has with it through which windows it comes: `oo_window` is that of the output, `oo_through` that of the output
before it, with whether the record met it closed there, and in it the same of the one before that. So the records of an
output's windows are chosen first, by the log's rule of lateness. Then the functions are called, the first of the chain
first, each on the rows of the one before it.

Who calls it: `windowing`, `results`, `recompute`. No errors of its own. Not promised: that a function is called once
for a window; each output after it calls it again.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.model.outputs.chained import Chained
from onlyonce.model.stored_names import OO_WINDOW

THROUGH = "oo_through"


def with_step(rows: DataFrame, window: Chained, met_closed: Column) -> DataFrame:
    """Records that are in windows of the output before, with those noted as what they come through."""
    step = [F.col(OO_WINDOW).alias("window"), met_closed.alias("late")]
    step += [F.col(THROUGH).alias("before")] if isinstance(window.upstream, Chained) else []
    return rows.withColumn(THROUGH, F.struct(*step))


def left_out(window: Chained) -> Column:
    """Whether an output before leaves a record out, by its own lateness: it does not come through."""
    return reduce(Column.__or__, [F.col(f"{at}.late") for at in leaving(window)], F.lit(False))


def leaving(window: Chained, at: str = THROUGH) -> list[str]:
    """Where a record has the windows of the outputs before that leave late ones out, the nearest first."""
    if not window.leaves_late_out:
        return []
    return [at, *(leaving(window.upstream, f"{at}.before") if isinstance(window.upstream, Chained) else [])]


def before(rows: DataFrame, window: Chained) -> DataFrame:
    """The records as the output before has them: in its windows."""
    found = rows.withColumn(OO_WINDOW, F.col(f"{THROUGH}.window"))
    if isinstance(window.upstream, Chained):
        return found.withColumn(THROUGH, F.col(f"{THROUGH}.before"))
    return found.drop(THROUGH)
