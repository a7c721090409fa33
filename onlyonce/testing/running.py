"""Run a pipeline over a test's rows in one process, and test that its stream equals its batch.

It needs no PostgreSQL, no checkpoint and no files. The product's own code parses and judges records, assigns windows,
finds late records and calls the function. It refuses a function that Spark can't run as a stream. What only a platform
has is not tested: exactly once through a crash, a dedup horizon that passes, the types of an existing table. One Spark
session serves all tests of a process.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from onlyonce.api import functions, load
from onlyonce.api.declaration import unknown
from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.core.stored_names import OO_EVENT_TIME
from onlyonce.core.unrepeatable import SMALLEST
from onlyonce.engine import session
from onlyonce.engine.failures import translate
from onlyonce.environment import set_missing
from onlyonce.lookups import tables
from onlyonce.lookups.seen import Seen
from onlyonce.testing.given import Backfill, Close, Given, Result, Step, step_of, then
from onlyonce.testing.playing import WINDOW, Play, Receive, Taken, shapes, window_of

MASTER = "local[2]"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
"""A short JVM: the second compiler and a parallel collector cost more than they gain."""

Table: TypeAlias = Sequence[Mapping[str, Any]] | DataFrame
"""Rows as dicts, or a DataFrame where the types must be said."""

_started: list[SparkSession] = []


def run(pipeline: Pipeline, *steps: Step, close: bool = False, lookups: Mapping[str, Table] | None = None) -> Result:
    """Return what becomes of these rows: `run(PIPELINE, [row, …], then([row, …]), close=True)`.

    Each list of rows is a batch. `close`: the input has ended, so every window closes, as by `onlyonce run --close`.
    Late rows of an output whose `late` includes them are included at the end. `lookups`: the tables of the pipeline's
    lookups by name, each a list of rows or a DataFrame; every batch sees the same. Raise the platform's errors: Refused
    for a declaration or function that can't work.
    """
    todo = [step_of(step) for step in steps]
    with ours():
        spark = spark_session()
        seen = given_tables(spark, pipeline, lookups or {})
        play = Play(spark, pipeline, shapes(spark, pipeline, seen), seen)
        receive = Receive(spark, pipeline)
        taken = []
        for step in todo:
            if isinstance(step, Backfill):
                _backfill(play, step)
            elif isinstance(step, Close):
                play.close(step.silent_at)
            else:
                taken.append(receive.take_in(step))
                play.batch(taken[-1])
        if close:
            play.close()
        play.include_late()
    invalid = [row for one in taken for row in one.invalid]
    rows = {name: target.rows() for name, target in play.targets.items()}
    duplicates, kept = sum(one.duplicates for one in taken), sum(one.kept.num_rows for one in taken)
    late = {output.name: play.late[output.made_beside or output.name] for output in pipeline.outputs}
    rejected = {output.name: play.rejected[output.made_beside or output.name].told() for output in pipeline.outputs}
    return Result(invalid, duplicates, kept, rows, late, play.panes, rejected)


def given_tables(spark: SparkSession, pipeline: Pipeline, of_test: Mapping[str, Table]) -> dict[str, DataFrame]:
    """Return the tables by name, for the functions of all outputs.

    Raise Refused for a table that is missing or that no output looks up, and for a key that is not a column or not
    unique.
    """
    lookups = {lookup.name: lookup for output in pipeline.outputs for lookup in output.lookups}
    for output in load.with_function(pipeline.outputs):
        for function in load.functions(output):
            functions.check_parameters(output, function)
    for name in of_test:
        if name not in lookups:
            raise unknown("lookup", name, sorted(lookups))
    for name in lookups:
        if name not in of_test:
            raise Refused(
                f"pipeline {pipeline.name} looks up {name}, and the test gives no such table",
                data="only this test has read the rows",
                hint=f"run(PIPELINE, rows, lookups={{{name!r}: [{{…}}, …]}})",
            )
    frames = {
        name: table if isinstance(table, DataFrame) else spark.createDataFrame([dict(row) for row in table])
        for name, table in of_test.items()
    }
    for name, lookup in lookups.items():
        tables.check_columns(lookup, frames[name])
    tables.check_keys(lookups, Seen({name: {"version": "of the test"} for name in frames}, frames))
    return frames


def spark_session() -> SparkSession:
    """Return the Spark session of this process; start it if there is none."""
    if SparkSession.getActiveSession() is None:
        set_missing("JDK_JAVA_OPTIONS", QUICK)
        _started.append(session.start("onlyonce tests", MASTER))
    return SparkSession.getActiveSession() or session.start("onlyonce tests", MASTER)


def stop() -> None:
    """End the session, if it is ours. The plugin calls it."""
    while _started:
        _started.pop().stop()


@contextmanager
def ours() -> Iterator[None]:
    """Translate errors of Spark inside the block to the platform's."""
    try:
        yield
    except Exception as error:
        known = translate(error)
        if known is error:
            raise
        raise known from error


def _backfill(play: Play, step: Backfill) -> None:
    roots = play.pipeline.roots() if step.output is None else [play.pipeline.output(step.output)]
    for root in roots:
        if root.window is None and step.output is not None:
            raise Refused(f"output {root.name} has no windows of its own", hint="a backfill computes windows again")
        if root.window is not None:
            play.backfill(root)


# How the rows of one output differ between two ways of taking them in, for a user to read. Pure.


Row = dict[str, Any]
TOLERANCE = 1e-9
"""For floats, as the platform compares the content of units: sums in another order differ in their last digits."""
SHOWN = 5


@dataclass(frozen=True)
class Difference:
    """The rows of the first window that differs, by which one of the two has them."""

    window: tuple[Any, ...]
    batch: list[Row]
    stream: list[Row]


def difference(batch: list[Row], stream: list[Row]) -> Difference | None:
    """Compare as multisets; return None if both are the same."""
    missing, more = _apart(batch, stream)
    windows = sorted({window_of(row) for row in (*missing, *more)}, key=str)
    if not windows:
        return None
    first = windows[0]
    return Difference(first, _of(first, missing), _of(first, more))


def told(output: Output, found: Difference, cut: str, why: str) -> str:
    """Return the message: which window, which rows, for which cut, and what to do."""
    start, end = found.window
    where = "" if start is None else f", window {start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC"
    return "\n".join(
        [
            f"output {output.name}{where}: the stream is not its batch ({output.transform})",
            *(f"  in one batch:  {_shown(row)}" for row in found.batch[:SHOWN] or [{}]),
            *(f"  cut otherwise: {_shown(row)}" for row in found.stream[:SHOWN] or [{}]),
            f"  the cut: {cut}",
            f"  {why}",
        ]
    )


def _apart(one: list[Row], other: list[Row]) -> tuple[list[Row], list[Row]]:
    left: dict[str, list[Row]] = {}
    for row in other:
        left.setdefault(_exact(row), []).append(row)
    missing = []
    for row in one:
        there = left.get(_exact(row), [])
        same = next((number for number, twin in enumerate(there) if _close(row, twin)), None)
        if same is None:
            missing.append(row)
        else:
            del there[same]
    return missing, [row for rows in left.values() for row in rows]


def _exact(row: Row) -> str:
    return repr([(name, "float" if isinstance(value, float) else value) for name, value in row.items()])


def _close(one: Row, other: Row) -> bool:
    pairs = ((one[name], other[name]) for name in one if isinstance(one[name], float))
    return all(math.isclose(a, b, rel_tol=TOLERANCE) or (math.isnan(a) and math.isnan(b)) for a, b in pairs)


def _of(window: tuple[Any, ...], rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if window_of(row) == window]


def _shown(row: Row) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in row.items() if name not in WINDOW) or "no such row"


# `holds`: tests that a pipeline's stream gives the same result as its batch, for the same rows in any order and any
# cut.
#
# If it does not, the function is not deterministic, or it depends on the order of rows. Then the result in production
# depends on when files arrived, and a backfill gives another one. Needs Hypothesis: onlyonce-pipelines[testing].


Rows = list[dict[str, Any]]
NOT_DETERMINISTIC = (
    "the function is not deterministic: the same rows in the same order gave two results. rand(), uuid(), "
    f"current_timestamp() and the like do that. Make it of the rows alone ({OO_EVENT_TIME} is a time), or declare "
    "stable_input=True to keep what the first attempt gave"
)
BY_ORDER = (
    "the function depends on the order of the rows, or on which batch they come in. first(), last(), "
    "min_by(), collect_list() and monotonic ids do "
    f"that: take {SMALLEST}, array_sort(collect_list(…)), or a key of the record"
)


class NotTheSame(AssertionError):
    """Raised if the stream differs from its batch: names the output, the window, and the cut of the rows."""


@dataclass(frozen=True)
class Cut:
    """The rows by their numbers, batch by batch.

    `in_time`: no batch has a row that is older than a row of an earlier batch, so windows close as in a stream.
    Otherwise the order is any, and windows wait for the end.
    """

    batches: tuple[tuple[int, ...], ...]
    in_time: bool

    def __str__(self) -> str:
        shown = " | ".join(", ".join(map(str, batch)) for batch in self.batches)
        return f"{len(self.batches)} batch(es) of the rows, by their numbers: {shown[:400]}"


def holds(
    pipeline: Pipeline, rows: Sequence[Given], examples: int = 10, lookups: Mapping[str, Table] | None = None
) -> None:
    """Assert that the stream of these rows equals their batch in `examples` cuts and orders.

    No row is late, and re-deliveries are left out before. An output with stable_input=True is declared as not
    deterministic, and is not compared. Raise NotTheSame, Refused as `run` does, or Refused if Hypothesis is missing.
    """
    tested, strategies = _hypothesis(examples)
    with ours():
        spark = spark_session()
        seen = given_tables(spark, pipeline, lookups or {})
        comes = shapes(spark, pipeline, seen)
        taken = Receive(spark, pipeline).take_in(then(rows))
        count = taken.kept.num_rows
        if not count:
            raise Refused(
                "none of these rows is kept, so there is nothing to hold", hint="see run(PIPELINE, rows).invalid"
            )
        by_time = pc.array_sort_indices(taken.kept.column(OO_EVENT_TIME).combine_chunks()).to_pylist()

        def played(cut: Cut) -> dict[str, Rows]:
            play = Play(spark, pipeline if cut.in_time else _patient(pipeline, taken), comes, seen)
            for batch in cut.batches:
                play.batch(replace(taken, kept=taken.kept.take(pa.array(batch, pa.int64()))))
            play.close()
            return {name: target.rows() for name, target in play.targets.items()}

        whole = Cut((tuple(range(count)),), in_time=False)
        one = played(whole)
        _compare(pipeline, one, played(whole), whole, NOT_DETERMINISTIC)

        def compare(cut: Cut) -> None:
            _compare(pipeline, one, played(cut), cut, BY_ORDER)

        compare(Cut((tuple(reversed(range(count))),), in_time=False))
        compare(Cut((*tuple((number,) for number in by_time[:EACH]), (*by_time[EACH:],)), in_time=True))
        tested(_cuts(strategies, by_time), compare)()


EACH = 8
"""How many rows have a batch of their own in the second cut."""


def _compare(pipeline: Pipeline, one: dict[str, Rows], other: dict[str, Rows], cut: Cut, why: str) -> None:
    for output in pipeline.outputs:
        if output.stable_input or pipeline.root_of(output).stable_input:
            continue
        found = difference(one[output.name], other[output.name])
        if found is not None:
            raise NotTheSame(told(output, found, str(cut), why))


def _patient(pipeline: Pipeline, taken: Taken) -> Pipeline:
    """Return the pipeline with windows that wait for every row: rows in any order are in time."""
    times = taken.kept.column(OO_EVENT_TIME).cast(pa.int64()).to_numpy()
    span = timedelta(microseconds=int(np.ptp(times))) + timedelta(milliseconds=1)
    whole = span - span % timedelta(milliseconds=1) + timedelta(milliseconds=1)

    def wait(output: Output) -> Output:
        return (
            output
            if output.window is None or output.made_beside
            else replace(output, watermark_delay=output.watermark_delay + whole)
        )

    return replace(pipeline, outputs=tuple(map(wait, pipeline.outputs)))


def _cuts(strategies: Any, by_time: list[int]) -> Any:
    """Return cuts in time, shuffled within each batch, and cuts of the rows in any order."""

    @strategies.composite
    def cut(draw: Callable[[Any], Any]) -> Cut:
        in_time = draw(strategies.booleans())
        order = by_time if in_time else draw(strategies.permutations(by_time))
        places = draw(strategies.lists(strategies.integers(1, max(1, len(order) - 1)), max_size=4, unique=True))
        edges = [0, *sorted(places), len(order)]
        parts = [order[start:stop] for start, stop in itertools.pairwise(edges) if start < stop]
        return Cut(tuple(tuple(draw(strategies.permutations(part))) for part in parts), in_time)

    return cut()


def _hypothesis(examples: int) -> tuple[Callable[..., Callable[[], None]], Any]:
    try:
        from hypothesis import HealthCheck, Phase, given, settings, strategies
    except ImportError as error:
        raise Refused(
            "holds() cuts the rows by Hypothesis, which is not installed",
            data="nothing was tested",
            hint="pip install 'onlyonce-pipelines[testing]'",
        ) from error
    # The same cuts in each run, so that a passing test keeps passing. Not minimized: each try is some Spark jobs.
    how = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )

    def tested(cuts: Any, compare: Callable[[Cut], None]) -> Callable[[], None]:
        found: Callable[[], None] = how(given(cuts)(compare))
        return found

    return tested, strategies
