"""Builds the SparkSession, for the whole package."""

from __future__ import annotations

import logging
import sys

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from onlyonce import environment, settings
from onlyonce.session import callers
from onlyonce.spark import temporary
from onlyonce.spark.defaults import spark_defaults
from onlyonce.spark.options import options, with_retries

TOLD_BY_US = (
    "org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager", "org.apache.spark.util.Utils",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution", "org.apache.spark.api.python.PythonRunner",
    "org.apache.spark.util.SparkUncaughtExceptionHandler",
)  # fmt: skip
"""What logs the traceback of an error that reaches the driver anyway: at each of its attempts, before our own three
lines."""


def start(name: str, master: str | None = None) -> SparkSession:
    """The session of this process, made if there is none yet (under spark-submit it is there already)."""
    environment.set_missing("PYSPARK_PYTHON", sys.executable)
    chosen = with_retries(master or settings.master())
    builder = SparkSession.builder.appName(name)
    if not _submitted():
        builder = builder.master(chosen)
    for key, value in _options(chosen).items():
        builder = builder.config(key, value)
    callers.guard_accumulators()
    session = builder.getOrCreate()
    callers.guard(session.sparkContext._gateway)
    if level := session.conf.get("spark.log.level", None):
        session.sparkContext.setLogLevel(level)
    if settings.spark().spark_log is None:
        _tell_once(session)
    return session


def _options(master: str) -> dict[str, str]:
    theirs = _theirs()
    ours = options(master, theirs)
    if SparkContext._active_spark_context is None:  # else this driver has its folder
        ours = temporary.added(master, ours, theirs)
        temporary.hold({**theirs, **ours})
    return ours


def _submitted() -> bool:
    """Whether spark-submit has started this process: a JVM waits for it, beside it or, in YARN, in the same
    container."""
    return environment.variable("PYSPARK_GATEWAY_PORT") is not None


def _tell_once(session: SparkSession) -> None:
    """Errors are told by us, once; ONLYONCE_SPARK_LOG has Spark tell them as well, each time."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger", "py4j.clientserver"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_news)
    log4j = session._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for name in TOLD_BY_US:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _is_news(record: logging.LogRecord) -> bool:
    """Python's gateway tells that the JVM is gone by the root's logger, with a traceback."""
    return record.getMessage() != "Exception while sending command."


def _theirs() -> dict[str, str]:
    """What is set already: under spark-submit by its command line and its file, else by that file."""
    if not _submitted():
        return spark_defaults()
    SparkContext._ensure_initialized()  # the JVM that spark-submit has started knows it
    return dict(SparkConf().getAll())
