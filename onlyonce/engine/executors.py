"""Ends a run whose executors or whose standalone master are lost, where Spark alone would wait without end.

If Spark's master is killed and started again without its state, the workers end the executors of applications that it
does not know. The driver's jobs then wait for executors that nothing will start. A thread of the driver looks at the
cluster every few seconds. When the run is lost (`onlyonce.core.executors`) it cancels the active jobs with our error as
the reason, so that each query fails with this error.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark import SparkContext

from onlyonce import settings
from onlyonce.core.executors import ClusterState, Watched, lost

log = structlog.get_logger()

FEWEST_SECONDS, MOST_SECONDS = 0.5, 5.0
"""How long the thread waits between two looks: a tenth of the patience, within these bounds."""
ANSWER_SECONDS = 5

_watched: SparkContext | None = None


def watch(context: SparkContext) -> None:
    """Watch the executors of a context until it stops. No-op with a local master, and if the context is watched."""
    global _watched
    if context is _watched or context.master.startswith("local[") or context.master == "local":
        return
    _watched = context
    threading.Thread(
        target=_watch, args=(context, settings.spark().executor_patience), name="executors", daemon=True
    ).start()


def _watch(context: SparkContext, patience: float) -> None:
    seen = Watched()
    while _is_up(context):
        try:
            now = _look(context)
            told, seen = seen.ended, seen.after(now, time.monotonic(), patience)
            if seen.ended and now.jobs:
                error = lost(now, patience)
                if not told:
                    log.error("cluster lost", what=error.what, data=error.data, next=error.hint)
                _cancel(context, f"{type(error).__module__}.{type(error).__name__}: {error}")
        except (Py4JError, OSError) as error:  # the JVM ends; `failures.jvm_lost` reports that
            log.debug("no look at the executors", problem=type(error).__name__)
        time.sleep(min(max(patience / 10, FEWEST_SECONDS), MOST_SECONDS))


def _is_up(context: SparkContext) -> bool:
    return SparkContext._active_spark_context is context and context._jsc is not None


def _look(context: SparkContext) -> ClusterState:
    scala = context._jsc.sc()
    backend = scala.schedulerBackend()
    executors = backend.getExecutorIds().size()
    jobs = len(scala.statusTracker().getActiveJobIds())
    return ClusterState(jobs, executors, bool(executors) or not jobs or _is_registered(context, backend))


def _is_registered(context: SparkContext, backend: Any) -> bool:
    """Return whether a standalone master knows the application, by a request to end none of its executors.

    Any other cluster manager ends the driver, or lets it run, by itself.
    """
    if not context.master.startswith("spark://"):
        return True
    jvm: Any = context._jvm
    answer = backend.client().killExecutors(jvm.PythonUtils.toSeq([]))
    patience = jvm.scala.concurrent.duration.Duration.create(ANSWER_SECONDS, "s")
    try:
        return bool(jvm.scala.concurrent.Await.result(answer, patience))
    except Py4JError:  # the master's connection broke, or it does not answer
        return False


def _cancel(context: SparkContext, reason: str) -> None:
    scala = context._jsc.sc()
    for job in scala.statusTracker().getActiveJobIds():
        scala.cancelJob(job, reason)
