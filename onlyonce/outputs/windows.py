"""Windows, chains, late records and joins as Spark expressions.

The rule for late records equals the rule in `onlyonce/core/frontier.py`; a test compares the two.

A *chain* is an output that is made from the closed windows of its upstream output. Its functions are called on rows
that are computed from `events` again, so each record keeps the windows that it comes through. An example: output A has
hours, B is made from A and has days, C is made from B and has weeks. In B's batch, a record of 10:15 has these columns:

- `oo_through.window`: its window of A, [10:00, 11:00).
- `oo_through.late`: whether A had closed that window when the record came.
- `oo_window`: B's own window, the day that contains the last microsecond of A's window, 10:59:59.999999.

In C's batch the record has B's window in `oo_through.window`, and B's `oo_through` in `oo_through.before`.

So the records of a window are chosen first, by these columns. Then the functions are called in the order of the chain:
A's on the records, B's on A's rows, C's on B's rows. C's batch calls the functions of A and B again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from functools import reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Output
from onlyonce.core import stored_names
from onlyonce.core.batch import to_time
from onlyonce.core.errors import Refused
from onlyonce.core.frontier import MILLI
from onlyonce.core.stored_names import (
    CONTROL,
    KEPT,
    OO_EVENT_TIME,
    OO_FRONTIER,
    OO_KIND,
    OO_WINDOW,
    WINDOW_END,
    WINDOW_START,
)

# `Fixed` is also the base class of Joined, Timed and Chained. Only Session and Sliding are not Fixed.
from onlyonce.core.windows import Chained, Fixed, Joined, Session, Sliding, Window, micros, reach, waits
from onlyonce.engine.session import quoted

THROUGH = "oo_through"


def with_step(rows: DataFrame, window: Chained, met_closed: Column) -> DataFrame:
    """Note the windows of the upstream output, which the records come through, in `oo_through`."""
    step = [F.col(OO_WINDOW).alias("window"), met_closed.alias("late")]
    step += [F.col(THROUGH).alias("before")] if isinstance(window.upstream, Chained) else []
    return rows.withColumn(THROUGH, F.struct(*step))


def left_out_of_chain(window: Chained) -> Column:
    """Return whether an upstream output leaves a record out, by its own watermark delay."""
    return reduce(Column.__or__, [F.col(f"{at}.late") for at in steps_leaving_out(window)], F.lit(False))


def steps_leaving_out(window: Chained, at: str = THROUGH) -> list[str]:
    """Return the names of the structs by `with_step` of upstream outputs that leave late records out, nearest first.

    The list ends before an output that includes late records: the outputs upstream of it include them too.
    """
    if not window.leaves_late_out:
        return []
    return [at, *(steps_leaving_out(window.upstream, f"{at}.before") if isinstance(window.upstream, Chained) else [])]


def chained_before(rows: DataFrame, window: Chained) -> DataFrame:
    """Return the records in the windows of the upstream output."""
    found = rows.withColumn(OO_WINDOW, F.col(f"{THROUGH}.window"))
    if isinstance(window.upstream, Chained):
        return found.withColumn(THROUGH, F.col(f"{THROUGH}.before"))
    return found.drop(THROUGH)


# Watermarks. In an output's stream only control rows advance Spark's watermark, never data rows: a watermark that data
# rows advance drops rows that are in time.
#
# Windows in UTC are Spark's own. Spark has no days of a time zone, so these are computed here. Spark accepts any
# struct<start, end> as a window if its metadata has a watermark, and compares its `end`.


BARRIER = f"case when spark_partition_id() >= 0 then {OO_KIND} <> '{CONTROL}' else false end"
"""Removes control rows after the watermark node.

The optimizer would push an ordinary filter below that node, so that the watermark would never see the control rows.
Spark can't move this expression, nor compute it in advance.
"""

CHECKED = (date(2000, 1, 1), date(2040, 1, 1))
"""Java and Python must have the same rules for a time zone in these years. Older rules are corrected now and then."""

Until = Callable[[Window, timedelta], Column]
"""Returns up to where windows are closed, given the windows and the watermark delay: `closed_until` or `last_closed`.

`at_close.asks_watermark` uses `last_closed` for an output that keeps no state but one aggregation by window. Spark runs
an extra batch whenever the watermark has moved; by `last_closed` it moves only when a window ends.
"""

_agreed: set[Fixed] = set()


def closed_until(window: Window, watermark_delay: timedelta) -> Column:
    """Return up to where an output's windows are closed, from a row's `oo_frontier`; null while none is.

    This is Spark's form of `core.frontier.closed_until`, which explains it. It is the greatest of:

    - the maximum event time, less the watermark delay and what the windows wait in addition;
    - after the end of all input, the end of the last window with a record;
    - after the sources were silent, the same, but at most the clock at that time, less the idle time.

    All are rounded to whole milliseconds, since Spark's watermark has no smaller unit.
    """
    behind = waits(window)
    max_event_time = _down(_micros(f"{OO_FRONTIER}.max_event_time") - F.lit(micros(watermark_delay) + behind))
    ended = _up(_last_end(window, _micros(f"{OO_FRONTIER}.ended")))
    silent = F.least(
        _up(_last_end(window, _micros(f"{OO_FRONTIER}.silent_max_event_time"))),
        # Null if there is no maximum event time: F.least ignores a null, and would return the clock alone.
        F.when(
            F.col(f"{OO_FRONTIER}.silent_max_event_time").isNotNull(),
            _down(_micros(f"{OO_FRONTIER}.silent_clock") - F.lit(behind)),
        ),
    )
    return F.timestamp_micros(F.greatest(max_event_time, ended, silent))


def is_late(window: Window, watermark_delay: timedelta) -> Column:
    """Return whether a (record, window) pair met a closed window, or an upstream output has left the record out."""
    late = met_closed(window, watermark_delay)
    return late | left_out_of_chain(window) if isinstance(window, Chained) else late


def met_closed(window: Window, watermark_delay: timedelta) -> Column:
    """Return whether a pair met a closed window of the output, regardless of a chain.

    This is Spark's form of `core.frontier.is_late`. A session compares the event time. A join does this too, with its
    reach.
    """
    if isinstance(window, Joined):
        return F.coalesce(F.col(OO_EVENT_TIME) <= taken_until(window, watermark_delay), F.lit(False))
    compared = F.col(OO_EVENT_TIME) if isinstance(window, Session) else F.col(f"{OO_WINDOW}.end")
    return F.coalesce(compared <= closed_until(window, watermark_delay), F.lit(False))


def taken_until(window: Window, watermark_delay: timedelta) -> Column:
    """Return up to which event time a record is late for a join.

    This is Spark's watermark there. So Spark drops no record in time, and removes all rows of a closed window.
    """
    return closed_until(window, watermark_delay) + _interval(reach(window))


def after_merge(condition: Column) -> Column:
    """Return a condition that applies to whole sessions.

    Spark pushes a plain condition below their merge, where each record has a session of its own. There it would leave
    records out, and sessions would be shorter.
    """
    return F.coalesce(F.when(F.spark_partition_id() >= 0, condition), F.lit(False))


def assign(frame: DataFrame, window: Window) -> DataFrame:
    """Give each row its `oo_window`: struct<start, end>; one row for each window that holds it."""
    if isinstance(window, Session):
        return frame.withColumn(OO_WINDOW, F.session_window(OO_EVENT_TIME, _span(window.gap)))
    if isinstance(window, Chained):
        before = assign(frame, window.upstream)
        through = with_step(before, window, met_closed(window.upstream, window.waits_before))
        return of_closed(through, window.own, f"{OO_WINDOW}.end")
    if isinstance(window, Fixed) and not window.in_utc:
        start, end = _bounds(frame.sparkSession, window, _micros(OO_EVENT_TIME))
        bounds = F.struct(F.timestamp_micros(start).alias("start"), F.timestamp_micros(end).alias("end"))
        # Like F.window: the mark of the watermark is copied from the time to the window.
        mark = frame.schema[OO_EVENT_TIME].metadata
        return frame.select("*", bounds.alias(OO_WINDOW, metadata=mark))
    step = _span(_step(window))
    return frame.withColumn(OO_WINDOW, F.window(OO_EVENT_TIME, _span(window.size), step, _span(window.offset)))


def of_closed(rows: DataFrame, window: Fixed, end: str) -> DataFrame:
    """Give rows of closed windows the window that holds the last moment of the closed one.

    `end`: where the closed one ends.
    """
    start, stop = _bounds(rows.sparkSession, window, _micros(end) - 1)
    return rows.withColumn(
        OO_WINDOW, F.struct(F.timestamp_micros(start).alias("start"), F.timestamp_micros(stop).alias("end"))
    )


def last_closed(window: Window, watermark_delay: timedelta) -> Column:
    """Return the end of the last window that is closed.

    The same windows end by it as by `closed_until`, but it moves only when one more window closes. Sessions may end at
    any time, so for them return `closed_until`.
    """
    closed = closed_until(window, watermark_delay)
    if isinstance(window, Session):
        return closed
    until = F.unix_micros(closed)
    if isinstance(window, Fixed) and not window.in_utc:
        return F.timestamp_micros(_up(_by_wall_clock(window, until)[0]))
    over = F.pmod(until - F.lit(micros(window.offset) + micros(window.size)), F.lit(micros(_step(window))))
    return F.timestamp_micros(_up(until - over))


def in_stream(events: DataFrame, output: Output, until: Until = closed_until) -> DataFrame:
    """Return the rows in time that an output's function gets, with their window and watermark.

    Each control row sets the watermark by `until`.
    """
    rows = events.filter(f"{OO_KIND} = '{KEPT}'")
    window, delay = output.window, output.watermark_delay
    if window is None:
        return rows
    # Spark subtracts the delay again, so its watermark becomes until + reach. For a join or a processor, a record is
    # late up to there (`taken_until`). Otherwise the reach is 0: chained windows are not written by the watermark.
    closing = until(window, delay) + _interval(reach(window) + micros(delay))
    controls = events.filter(f"{OO_KIND} = '{CONTROL}'").withColumn(OO_EVENT_TIME, closing)
    controls = controls.withWatermark(OO_EVENT_TIME, _span(delay)).filter(BARRIER)
    # The control branch is first: a union takes the watermark of its first branch.
    if isinstance(window, Joined | Session):
        # Late by the event time, so these need no window here. Joined rows get theirs in `joined_sides`, a processor's
        # have none, and Spark merges sessions later.
        in_time = controls.unionByName(rows.filter(~is_late(window, delay)))
        return assign(in_time, window) if isinstance(window, Session) else in_time
    # Late by the end of the window, so each row gets its windows first.
    return assign(controls.unionByName(rows), window).filter(~is_late(window, delay))


def in_batch(events: DataFrame, output: Output) -> DataFrame:
    """Return the rows that an output's function gets in a bounded read, where nothing is late."""
    kept = events.filter(f"{OO_KIND} = '{KEPT}'")
    # A join gives its joined rows their window (`joined_sides`); rows of a processor have none.
    return kept if output.window is None or output.gives_as_it_comes else assign(kept, output.window)


def counted(kept: DataFrame, window: Window, watermark_delay: timedelta) -> DataFrame:
    """Return (oo_window, in_time, late) of the kept rows of a batch, in (record, window) pairs.

    Sessions also have the first and the last event time of the late ones, late_from and late_to, in microseconds.
    """
    keyed = judged(kept, window, watermark_delay).select(OO_WINDOW, OO_EVENT_TIME, "late")
    late = F.col("late")
    of_session = F.when(late & F.lit(isinstance(window, Session)), _micros(OO_EVENT_TIME))
    return keyed.groupBy(OO_WINDOW).agg(
        F.count_if(~late).alias("in_time"),
        F.count_if(late).alias("late"),
        F.min(of_session).alias("late_from"),
        F.max(of_session).alias("late_to"),
    )


def judged(kept: DataFrame, window: Window, watermark_delay: timedelta) -> DataFrame:
    """Return the kept rows of a batch, once for each window, with whether they are late."""
    if isinstance(window, Session):
        # Sessions merge, so a lone record has no window of its own yet: counted by the hour of its event.
        placed = kept.withColumn(OO_WINDOW, F.window(OO_EVENT_TIME, "1 hour"))
    else:
        placed = assign(kept, window)
    return placed.withColumn("late", is_late(window, watermark_delay))


def bounds() -> dict[str, Column]:
    """Return the start and the end of `oo_window`, in microseconds.

    Collected as datetimes they would be in the driver's own time zone.
    """
    return {WINDOW_START: F.unix_micros(f"{OO_WINDOW}.start"), WINDOW_END: F.unix_micros(f"{OO_WINDOW}.end")}


def _interval(length: int) -> Column:
    return F.expr(f"interval {length} microseconds")


def _micros(name: str) -> Column:
    return F.unix_micros(F.col(name))


def _down(time: Column) -> Column:
    return time - F.pmod(time, F.lit(MILLI))


def _up(time: Column) -> Column:
    return time + F.pmod(-time, F.lit(MILLI))


def _bounds(spark: SparkSession, window: Fixed, time: Column) -> tuple[Column, Column]:
    """Return the (start, end) in microseconds of the fixed window of a moment."""
    if not window.in_utc:
        _check_zone(spark, window)
        return _by_wall_clock(window, time)
    start = time - F.pmod(time - F.lit(micros(window.offset)), F.lit(micros(window.size)))
    return start, start + F.lit(micros(window.size))


def _last_end(window: Window, time: Column) -> Column:
    if isinstance(window, Chained):
        return _last_end(window.own, _last_end(window.upstream, time) - 1)
    if isinstance(window, Session):
        return time + F.lit(micros(window.gap))
    if isinstance(window, Fixed) and not window.in_utc:
        return _by_wall_clock(window, time)[1]
    over = F.pmod(time - F.lit(micros(window.offset)), F.lit(micros(_step(window))))
    return time - over + F.lit(micros(window.size))


def _step(window: Fixed | Sliding) -> timedelta:
    return window.size if isinstance(window, Fixed) else window.slide


def _by_wall_clock(window: Fixed, time: Column) -> tuple[Column, Column]:
    """Return the (start, end) in microseconds, as `Fixed` does, even with a change of daylight saving time (DST).

    A wall clock is a timestamp as if its zone were UTC.
    """
    size = F.lit(micros(window.size))
    shown = F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(time), F.lit(window.timezone)))
    wall = shown - F.lit(micros(window.offset))
    # The right window, unless the clock was set back over its start or forward over the whole window: see `Fixed`.
    first_guess = wall - F.pmod(wall, size)
    before, after = time < _start_at(window, first_guess), time >= _start_at(window, first_guess + size)
    midnight = F.when(before, first_guess - size).when(after, first_guess + size).otherwise(first_guess)
    return _start_at(window, midnight), _start_at(window, midnight + size)


def _start_at(window: Fixed, midnight: Column) -> Column:
    begins = F.timestamp_micros(midnight + F.lit(micros(window.offset)))
    return F.unix_micros(F.to_utc_timestamp(begins, F.lit(window.timezone)))


def _check_zone(spark: SparkSession, window: Fixed) -> None:
    """Raise Refused if Java and Python disagree about the window's time zone.

    Spark uses Java's tables of time zones, `core.windows` Python's. With two versions the results would differ.
    """
    if window in _agreed:
        return
    first, last = ((day - date(1970, 1, 1)) // window.size for day in CHECKED)
    start = _start_at(window, F.col("id") * F.lit(micros(window.size)))
    try:
        found = spark.range(first, last, 1, 1).select("id", start.alias("start")).collect()
    except PySparkException as error:
        raise _other_zone(window, "Java doesn't know it") from error
    for row in found:
        if row.start != window.start_of(row.id):
            raise _other_zone(
                window, f"a window begins at {to_time(window.start_of(row.id))} or at {to_time(row.start)}"
            )
    _agreed.add(window)


def _other_zone(window: Fixed, what: str) -> Refused:
    return Refused(
        f"Java and Python have different rules for the time zone {window.timezone}: {what}",
        data="nothing was written",
        hint="bring both to the same version of the time zone data: update Java, and the system's or the package "
        "tzdata",
    )


def _span(delta: timedelta) -> str:
    return f"{micros(delta)} microseconds"


# Join the two sides with one condition: in a stream by Spark's join of two streams, in a batch by its plain join.
#
# Spark keeps the rows of each side in its state until its watermark says that no partner can come. That watermark is
# the platform's: both sides carry it in their event time, from the same control rows. So no row in time is behind it,
# and rows without a partner come once.


TIME = OO_EVENT_TIME
OWN = stored_names.OO_PREFIX
SPARKS = {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer"}


def joined_sides(output: Output, left: DataFrame, right: DataFrame) -> DataFrame:
    """Return the rows of a join: window, key, the other columns of the left side and of the right side."""
    assert output.join is not None
    assert output.window is not None
    on = output.join.on
    _check_names(output, left, right)
    # Each side has names of its own: on one stream Spark would take the second side for another reading of the stream.
    pairs = _named("left", left).join(_named("right", right), _near(output), SPARKS[output.join.kind])
    placed = pairs.withColumn(TIME, F.coalesce(_of("left", TIME), _of("right", TIME)))
    return assign(placed, output.window).select(
        OO_WINDOW,
        *[F.coalesce(_of("left", key), _of("right", key)).alias(key) for key in on],
        *[
            _of(side, name).alias(name)
            for side, frame in (("left", left), ("right", right))
            for name in _others(frame, on)
        ],
    )


def check_join_side(output: Output, function: str, side: Any, at: str, *, stateless: bool) -> None:
    """Raise Refused if a function's result can't be a side. `at`: the function's line, or empty."""
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
    # In a full outer join (4.2), Spark's join of two streams matches nulls with nulls, unless a condition excludes
    # them.
    keys += [_of(side, key).isNotNull() for key in output.join.on for side in ("left", "right")]
    return reduce(Column.__and__, [*keys, mine >= other - bound, mine <= other + bound])


def _others(side: DataFrame, on: tuple[str, ...]) -> list[str]:
    return [name for name in side.columns if name not in on and not name.startswith(OWN)]


def _named(side: str, frame: DataFrame) -> DataFrame:
    return frame.select(*[F.col(quoted(name)).alias(f"{side}:{name}") for name in frame.columns])


def _of(side: str, name: str) -> Column:
    return F.col(quoted(f"{side}:{name}"))
