"""The one SparkSession builder."""

from __future__ import annotations

import logging
import os
import sys

from pyspark.sql import SparkSession

from onlyonce import settings
from onlyonce.spark_options import options, with_retries

TOLD_BY_US = (
    "org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager", "org.apache.spark.util.Utils",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution", "org.apache.spark.api.python.PythonRunner",
)  # fmt: skip
"""What logs the traceback of an error that reaches the driver anyway: at each of its attempts, before our own three lines."""


def start(name: str, master: str | None = None) -> SparkSession:
    """The session of this process, made if there is none yet (under spark-submit it is there already)."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = with_retries(master or settings.master())
    builder = SparkSession.builder.appName(name)
    if "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(chosen)
    for key, value in options(chosen).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get("ONLYONCE_SPARK_LOG", "ERROR"))
    if "ONLYONCE_SPARK_LOG" not in os.environ:
        _tell_once(session)
    return session


def _tell_once(session: SparkSession) -> None:
    """Errors are told by us, once; ONLYONCE_SPARK_LOG has Spark tell them as well, each time."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    log4j = session._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for name in TOLD_BY_US:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
