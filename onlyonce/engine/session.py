"""Builds the SparkSession, for the whole package."""

from __future__ import annotations

import logging
import sys
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType

from onlyonce import environment, settings
from onlyonce.core import locations
from onlyonce.core.locations import Location
from onlyonce.engine import callers, temporary
from onlyonce.engine.options import options, spark_defaults, with_retries

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


# Spark's reader for files that are named one by one.
#
# Spark takes a path as a pattern: `[1]` in the name of a folder above it is enough. `__globPaths__` stops that for the
# first look at a path. Spark looks again at each path that could be a pattern when it lists files, and then reads all
# of them once more for each; with `recursiveFileLookup` it lists only once.


def file_reader(session: SparkSession) -> DataFrameReader:
    """Return a reader that takes each path literally, and that takes no column from the name of a folder."""
    return session.read.option("__globPaths__", "false").option("recursiveFileLookup", "true")


# Names of columns, quoted for Spark.


def quoted(name: str) -> str:
    """One part of a name, whatever signs it has: dots, quotes, backticks."""
    return f"`{name.replace('`', '``')}`"


# Tables by the names that a catalog of Spark's has for them: Hive's metastore, Unity, a REST catalog, whichever the
# session is configured with.
#
# Who calls it: the source that reads a table by name, and the sink whose table has one. Errors: AnalysisException, as
# Spark raises it for a name that the catalog does not have.


LOCAL = "file:"


def described_table(spark: SparkSession, name: str) -> tuple[str, str]:
    """The format of a table, and where it is, as the catalog says it."""
    found = spark.sql(f"DESCRIBE DETAIL {full_table_name(name)}").select("format", "location").first()
    return (found.format, found.location) if found else ("nothing", "")


def full_table_name(name: str) -> str:
    """A name of two or three parts as SQL has it."""
    return ".".join(map(quoted, name.split(".")))


def place_of_table(where: str, whose: str) -> Location:
    """A location as a catalog says it. Raises Refused for a store that the platform does not know."""
    if not where.startswith(LOCAL):
        return locations.location(where, whose)
    return Path("/" + where.removeprefix(LOCAL).lstrip("/"))


# Schemas from their DDL, each parsed once. Spark parses in its JVM, which would slow a small batch down.


@cache
def schema_of(ddl: str) -> StructType:
    """The schema; nobody changes it."""
    return StructType.fromDDL(ddl)


# Plans a job whose cut is fixed already without Spark's adaptive execution, which would make two jobs of it and a plan
# for each.
#
# The frame is planned in a copy of its session, since other outputs may plan in that one at the same moment. What the
# session has cached is read as before.
#
# Who calls it: the sinks whose units are tasks, and `outputs.in_driver`. Errors: none of its own. Not promised: how
# many partitions an exchange has that does not say it.


ADAPTIVE = "spark.sql.adaptive.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"


def planned_once(frame: DataFrame) -> DataFrame:
    """The same frame, to be planned once and as a whole."""
    return _planned(frame, _planner(frame._jdf.sparkSession()))


def frame_of_local_rows(frame: DataFrame) -> DataFrame:
    """The same frame, planned once and with one partition behind each exchange, if it is made of rows that the driver
    has given to Spark and of nothing else: these are few.

    Any other frame as it is, since nobody knows how much it reads."""
    plan = frame._jdf.logicalPlan()
    leaves = plan.collectLeaves()
    if plan.subqueriesAll().nonEmpty() or any(
        leaves.apply(at).nodeName() != "LocalRelation" for at in range(leaves.size())
    ):
        return frame
    return _planned(frame, _planner(frame._jdf.sparkSession(), "1"))


def _planned(frame: DataFrame, planner: Any) -> DataFrame:
    jvm: Any = frame.sparkSession._jvm
    return DataFrame(
        jvm.org.apache.spark.sql.classic.Dataset.ofRows(planner, frame._jdf.logicalPlan()), frame.sparkSession
    )


@lru_cache(maxsize=64)
def _planner(session: Any, partitions: str | None = None) -> Any:
    """The copy of a session: made once, since each has a listener in Spark until the JVM collects it."""
    copy = session.cloneSession()
    copy.conf().set(ADAPTIVE, "false")
    if partitions:
        copy.conf().set(PARTITIONS, partitions)
    return copy
