"""`run`: a pipeline's rows in, its results out, in one process: no PostgreSQL, no checkpoint, no files.

What is promised: records are parsed and judged, put into windows, called late and given to the function by the
product's own code, and a function that Spark can't run as a stream is refused. Not promised: what only a platform has
(exactly once through a crash, a dedup horizon that passes, the types of a table that is there). One Spark session
serves all tests of a process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from onlyonce.declare.pipeline import Pipeline
from onlyonce.environment import set_missing
from onlyonce.model.errors import Refused
from onlyonce.session import session
from onlyonce.session.failures import translate
from onlyonce.testing import tables
from onlyonce.testing.given import Backfill, Close, Step, step_of
from onlyonce.testing.playing import Play, shapes
from onlyonce.testing.result import Result
from onlyonce.testing.tables import Table
from onlyonce.testing.taking_in import Receive

MASTER = "local[2]"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
"""A short JVM: the second compiler and a parallel collector cost more than they gain."""

_started: list[SparkSession] = []


def run(pipeline: Pipeline, *steps: Step, close: bool = False, lookups: Mapping[str, Table] | None = None) -> Result:
    """What becomes of these rows: `run(PIPELINE, [row, …], then([row, …]), close=True)`.

    Each list of rows is a batch. `close`: the input has ended, so every window closes, as by `onlyonce run --close`.
    Late rows of an output with late='recompute' are folded in at the end. `lookups`: the tables of the pipeline's
    lookups by name, each a list of rows or a DataFrame; every batch sees the same. Raises the platform's errors:
    Refused for a declaration or function that can't work.
    """
    todo = [step_of(step) for step in steps]
    with ours():
        spark = spark_session()
        seen = tables.given(spark, pipeline, lookups or {})
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
        play.fold_late()
    invalid = [row for one in taken for row in one.invalid]
    rows = {name: target.rows() for name, target in play.targets.items()}
    duplicates, kept = sum(one.duplicates for one in taken), sum(one.kept.num_rows for one in taken)
    late = {output.name: play.late[output.made_beside or output.name] for output in pipeline.outputs}
    rejected = {output.name: play.rejected[output.made_beside or output.name].told() for output in pipeline.outputs}
    return Result(invalid, duplicates, kept, rows, late, play.panes, rejected)


def spark_session() -> SparkSession:
    """The one of this process."""
    if SparkSession.getActiveSession() is None:
        set_missing("JDK_JAVA_OPTIONS", QUICK)
        _started.append(session.start("onlyonce tests", MASTER))
    return SparkSession.getActiveSession() or session.start("onlyonce tests", MASTER)


def stop() -> None:
    """End the session, if it is ours. Called by the plugin."""
    while _started:
        _started.pop().stop()


@contextmanager
def ours() -> Iterator[None]:
    """Errors of Spark come out as the platform's."""
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
            raise Refused(f"output {root.name} has no windows of its own", hint="a backfill computes windows anew")
        if root.window is not None:
            play.backfill(root)
