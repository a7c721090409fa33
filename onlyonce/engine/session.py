"""The SparkSession of the whole package, and plans, tables, schemas and files in it."""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType

from onlyonce import environment, settings
from onlyonce.core import locations
from onlyonce.core.executors import ClusterState, Watched, lost
from onlyonce.core.locations import Location
from onlyonce.engine import callers, temporary
from onlyonce.engine import options as options_of_spark
from onlyonce.engine.options import options, spark_defaults, with_retries

SILENCED_LOGGERS = (
    "org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager", "org.apache.spark.util.Utils",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution", "org.apache.spark.api.python.PythonRunner",
    "org.apache.spark.util.SparkUncaughtExceptionHandler",
)  # fmt: skip
"""Loggers that print the traceback of an error that reaches the driver anyway: at each attempt, before our own three
lines.
"""


def start(name: str, master: str | None = None) -> SparkSession:
    """Return the session of this process, and make it if there is none (under spark-submit it exists already)."""
    environment.set_missing("PYSPARK_PYTHON", sys.executable)
    chosen = with_retries(master or settings.master())
    builder = SparkSession.builder.appName(name)
    if not _submitted():
        builder = builder.master(chosen)
    for key, value in _options(chosen).items():
        builder = builder.config(key, value)
    # Other users of the machine can't connect to the ports of this driver's Python.
    callers.guard_accumulators()
    try:
        session = builder.getOrCreate()
    except KeyboardInterrupt:
        _end_unconnected()
        raise
    callers.guard(session.sparkContext._gateway)
    if level := session.conf.get("spark.log.level", None):
        session.sparkContext.setLogLevel(level)
    if settings.spark().spark_log is None:
        _silence_repeated(session)
    watch(session.sparkContext)
    return session


def _end_unconnected() -> None:
    """End the JVM that this process launched, if PySpark was interrupted before it had connected to it.

    PySpark then deletes the folder in which the JVM writes its port. The JVM fails to write it, no longer reads the
    pipe whose end would end it, and lives on when this process is gone.
    """
    if SparkContext._gateway is not None:  # it reads the pipe
        return
    import psutil  # an executor, which imports this module too, has no such package

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "_PYSPARK_DRIVER_CONN_INFO_PATH" in process.environ():
                process.kill()


def _options(master: str) -> dict[str, str]:
    theirs = _theirs()
    ours = options(master, theirs)
    if SparkContext._active_spark_context is None:  # later a folder for temporary files has no effect
        ours = temporary.added(master, ours, theirs)
        temporary.hold({**theirs, **ours})
    return ours


def refuse_without_kafka(at: str) -> None:
    """Raise Refused if a session that this process starts would lack Spark's package for Kafka. No-op under
    spark-submit, which may bring jars in other ways: then the source refuses it.
    """
    if not _submitted() and SparkContext._active_spark_context is None:
        options_of_spark.refuse_without_kafka(at, spark_defaults())


def _submitted() -> bool:
    """Return whether spark-submit has started this process: then a JVM waits for it, on this machine or in its
    container.
    """
    return environment.variable("PYSPARK_GATEWAY_PORT") is not None


def must_start() -> bool:
    """Return whether this process has to start Spark even for nothing: YARN fails an application of cluster mode that
    has made no Spark context (exit code 13).
    """
    theirs = _theirs() if _submitted() else {}
    return theirs.get("spark.master") == "yarn" and theirs.get("spark.submit.deployMode") == "cluster"


def _silence_repeated(session: SparkSession) -> None:
    """Silence Spark's own reports of errors: we report each once. With ONLYONCE_SPARK_LOG Spark reports them too."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger", "py4j.clientserver"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_news)
    log4j = session._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for name in SILENCED_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for the message by which Python's gateway logs, with a traceback, that the JVM is gone."""
    return record.getMessage() != "Exception while sending command."


def _theirs() -> dict[str, str]:
    """Return the settings made outside: under spark-submit by its command line and its file, otherwise by that file."""
    if not _submitted():
        return spark_defaults()
    SparkContext._ensure_initialized()  # the JVM that spark-submit has started knows it
    return dict(SparkConf().getAll())


# Spark's reader for files that are named one by one.
#
# Spark reads a path as a pattern: `[1]` in the name of a parent folder is enough. `__globPaths__` stops that when a
# path is first resolved. When Spark lists files it resolves again each path that could be a pattern, and then reads all
# files again for each. With `recursiveFileLookup` it lists only once.


def file_reader(session: SparkSession) -> DataFrameReader:
    """Return a reader that takes each path literally, and that takes no column from the name of a folder."""
    return session.read.option("__globPaths__", "false").option("recursiveFileLookup", "true")


# Names of columns, quoted for Spark.


def quoted(name: str) -> str:
    """Quote one part of a name, whatever characters it has: dots, quotes, backticks."""
    return f"`{name.replace('`', '``')}`"


# Tables by the names that a catalog of Spark's has for them, whichever the session is configured with: Hive's
# metastore, Unity, a REST catalog. Spark raises AnalysisException for a name that its catalog does not have.


LOCAL = "file:"


def described_table(spark: SparkSession, name: str) -> tuple[str, str]:
    """Return the format and location of a table, as the catalog reports them."""
    found = spark.sql(f"DESCRIBE DETAIL {full_table_name(name)}").select("format", "location").first()
    return (found.format, found.location) if found else ("nothing", "")


def full_table_name(name: str) -> str:
    """Return a name of two or three parts as written in SQL."""
    return ".".join(map(quoted, name.split(".")))


def place_of_table(where: str, whose: str) -> Location:
    """Return a location that a catalog reports. Raise Refused for a store that the platform does not know."""
    if not where.startswith(LOCAL):
        return locations.location(where, whose)
    return Path("/" + where.removeprefix(LOCAL).lstrip("/"))


# Schemas from their DDL, each parsed once. Spark parses in its JVM, which would slow a small batch down.


@cache
def schema_of(ddl: str) -> StructType:
    """Return the schema. It is cached, so callers must not change it."""
    return StructType.fromDDL(ddl)


# Plans a job with a fixed partitioning without Spark's adaptive execution, which would make two jobs of it and a plan
# for each.
#
# The frame is planned in a copy of its session, since other outputs may plan in that session at the same moment. What
# the session has cached is read as before.


ADAPTIVE = "spark.sql.adaptive.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"


def planned_once(frame: DataFrame) -> DataFrame:
    """Return the same frame, to be planned once and as a whole."""
    return frame_of_plan(frame, frame._jdf.logicalPlan(), _planner(frame._jdf.sparkSession()))


def frame_of_local_rows(frame: DataFrame) -> DataFrame:
    """Plan the frame without adaptive execution and with one shuffle partition, if all its rows come from the driver.

    Such rows are few. Return any other frame as it is, since the number of its rows is unknown.
    """
    plan = frame._jdf.logicalPlan()
    leaves = plan.collectLeaves()
    if plan.subqueriesAll().nonEmpty() or any(
        leaves.apply(at).nodeName() != "LocalRelation" for at in range(leaves.size())
    ):
        return frame
    return frame_of_plan(frame, plan, _planner(frame._jdf.sparkSession(), "1"))


def frame_of_plan(frame: DataFrame, plan: Any, planner: Any = None) -> DataFrame:
    """Return a frame of a frame's logical plan, or of a part of it; `planner`: the JVM's session that plans it."""
    jvm: Any = frame.sparkSession._jvm
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(planner or frame._jdf.sparkSession(), plan)
    return DataFrame(made, frame.sparkSession)


@lru_cache(maxsize=64)
def _planner(session: Any, partitions: str | None = None) -> Any:
    """Return the copy of a session. It is made once: Spark keeps a listener for each copy until the JVM collects it."""
    copy = session.cloneSession()
    copy.conf().set(ADAPTIVE, "false")
    if partitions:
        copy.conf().set(PARTITIONS, partitions)
    return copy


# Ends a run whose executors or whose standalone master are lost, where Spark alone would wait without end.
#
# If Spark's master is killed and started again without its state, the workers end the executors of applications that it
# does not know. The driver's jobs then wait for executors that nothing will start. A thread of the driver checks the
# cluster every few seconds. When the run is lost (`onlyonce.core.executors`) it cancels the active jobs with our error
# as the reason, so that each query fails with this error.

log = structlog.get_logger()

FEWEST_SECONDS, MOST_SECONDS = 0.5, 5.0
"""How long the thread waits between two checks: a tenth of the patience, within these bounds."""
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
    while (java := _java_context(context)) is not None:
        try:
            now = _look(context, java)
            was_given_up, seen = seen.given_up, seen.after(now, time.monotonic(), patience)
            if seen.given_up and now.jobs:
                error = lost(now, patience)
                if not was_given_up:
                    log.error("cluster lost", what=error.what, data=error.data, next=error.hint)
                _cancel(java, f"{type(error).__module__}.{type(error).__name__}: {error}")
        except (Py4JError, OSError) as error:  # the JVM ends; `failures.jvm_lost` reports that
            log.debug("no look at the executors", problem=type(error).__name__)
        time.sleep(min(max(patience / 10, FEWEST_SECONDS), MOST_SECONDS))


def _java_context(context: SparkContext) -> Any:
    """Return the JVM's side of a context; None once the context has stopped.

    The driver may stop the context at any time, and its `_jsc` is None from then on. So each check reads it once.
    """
    return context._jsc if SparkContext._active_spark_context is context else None


def _look(context: SparkContext, java: Any) -> ClusterState:
    scala = java.sc()
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


def _cancel(java: Any, reason: str) -> None:
    scala = java.sc()
    for job in scala.statusTracker().getActiveJobIds():
        scala.cancelJob(job, reason)
