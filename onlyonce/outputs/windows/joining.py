"""Joins the two sides of a join.

As a stream it is Spark's own join of two streams, as a batch its plain join: with one condition.

Spark keeps the rows of each side in its state until its watermark says that no partner can come. That watermark is the
platform's (`windowing`): both sides carry it in their event time, from the same control rows. So no row in time is
behind it, and rows without a partner come once.

Who calls it: `results`. Errors: Refused for sides that can't be joined. Not promised: the order of rows.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.declare.outputs.output import Output
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_WINDOW
from onlyonce.model.windows import micros
from onlyonce.outputs.windows import windowing
from onlyonce.session.names import quoted

TIME = OO_EVENT_TIME
OWN = stored_names.OO_PREFIX
SPARKS = {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer"}


def joined(output: Output, left: DataFrame, right: DataFrame) -> DataFrame:
    """The rows of a join with their window, the key, the other columns of the left side and those of the right."""
    assert output.join is not None
    assert output.window is not None
    on = output.join.on
    _check_names(output, left, right)
    # Each side has names of its own: of one stream Spark would else take the second side for another reading of it.
    pairs = _named("left", left).join(_named("right", right), _near(output), SPARKS[output.join.kind])
    placed = pairs.withColumn(TIME, F.coalesce(_of("left", TIME), _of("right", TIME)))
    return windowing.assign(placed, output.window).select(
        OO_WINDOW,
        *[F.coalesce(_of("left", key), _of("right", key)).alias(key) for key in on],
        *[
            _of(side, name).alias(name)
            for side, frame in (("left", left), ("right", right))
            for name in _others(frame, on)
        ],
    )


def check_side(output: Output, function: str, side: Any, at: str, *, stateless: bool) -> None:
    """Raise Refused for what a function gives that can't be a side. `at`: its line, or empty."""
    what = f"{at}output {output.name}: "
    assert output.join is not None
    if not isinstance(side, DataFrame):
        raise Refused(
            f"{what}{function} gave {type(side).__name__}, not a DataFrame",
            data=NOTHING,
            hint="let it return the rows of its side",
        )
    if missing := [name for name in (*output.join.on, TIME) if name not in side.columns]:
        raise Refused(
            f"{what}the side {function} has no column {missing[0]}",
            data=NOTHING,
            hint=f"rows are joined by {', '.join(output.join.on)} and {TIME}: keep them as you get them",
        )
    if not stateless:
        raise Refused(
            f"{what}the side {function} aggregates, or keeps other state of the stream",
            data=NOTHING,
            hint="a side selects records and computes columns; aggregate the joined rows in an output of their "
            "own, or in the table",
        )


NOTHING = "nothing was written"


def _check_names(output: Output, left: DataFrame, right: DataFrame) -> None:
    assert output.join is not None
    on = output.join.on
    plain = {name.lower() for name in _others(left, on)}
    if both := [name for name in _others(right, on) if name.lower() in plain]:
        raise Refused(
            f"output {output.name}: both sides of the join have a column {both[0]!r}",
            data=NOTHING,
            hint=f'rename it in one: F.col("{both[0]}").alias("…"), or leave it out',
        )


def _near(output: Output) -> Column:
    assert output.join is not None
    bound = F.expr(f"interval {micros(output.join.within)} microseconds")
    mine, other = _of("left", TIME), _of("right", TIME)
    keys = [_of("left", key) == _of("right", key) for key in output.join.on]
    # Spark's join of two streams finds a null equal to a null, unless it is told not to (full outer joins, 4.2).
    keys += [_of(side, key).isNotNull() for key in output.join.on for side in ("left", "right")]
    return reduce(Column.__and__, [*keys, mine >= other - bound, mine <= other + bound])


def _others(side: DataFrame, on: tuple[str, ...]) -> list[str]:
    return [name for name in side.columns if name not in on and not name.startswith(OWN)]


def _named(side: str, frame: DataFrame) -> DataFrame:
    return frame.select(*[F.col(quoted(name)).alias(f"{side}:{name}") for name in frame.columns])


def _of(side: str, name: str) -> Column:
    return F.col(quoted(f"{side}:{name}"))
