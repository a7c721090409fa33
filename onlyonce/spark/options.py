"""The options that every Spark session of ours adds to the team's own settings.

The JVM needs most of them before it starts, so `spark-submit` gets them as --conf. Who calls it:
`onlyonce.session.session` and the Airflow operator in `onlyonce.airflow.operators.spark_job`. Raises Refused when the
jars are missing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from onlyonce import settings
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import is_s3
from onlyonce.settings import found_file
from onlyonce.spark import jars, redaction, state
from onlyonce.spark.defaults import has_logging
from onlyonce.spark.master import driver_host, refuse_master
from onlyonce.storage.stores import options as stores

JARS = settings.jars() or Path(sys.prefix) / "jars"
PACKAGE = Path(__file__)
JAVA = "spark.driver.extraJavaOptions"
_CATALOG = "spark.sql.catalog.spark_catalog"
_ALWAYS = frozenset({"spark.sql.session.timeZone", "spark.sql.parquet.outputTimestampType", redaction.SETTING})
"""Time zone and type decide what is written, and are of our own session only. The redaction has the team's own in
it."""
_MERGED = {
    "spark.sql.extensions": ",",
    "spark.jars.packages": ",",
    "spark.driver.extraClassPath": ":",
    "spark.executor.extraClassPath": ":",
    JAVA: " ",
}
QUIETLY = "-Xlog:cds=off -Xlog:cds+dynamic=off"
END_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
"""A JVM that has found no memory once ends, as a killed one does. Else Spark's own threads end one by one, and what the
driver is told has nothing to do with memory."""
WITHOUT_MEMORY = (3, 52)
"""The exit codes of a JVM that found no memory: by that option, and by Spark where it was a task's."""
LOGGING = "-Dlog4j2.configurationFile="
"""Log4j's own name for the file that says what is logged."""


def options(master: str, theirs: Mapping[str, str] | None = None) -> dict[str, str]:
    """What is added to a session's own settings (`theirs`), for spark-submit's --conf as for a session made here.

    Raises Refused.

    Nothing of theirs is replaced, but what decides which rows are written (`_ALWAYS`); class path and extensions are
    merged.
    """
    theirs = theirs or {}
    # Kubernetes starts a driver in its pod as one in client mode, and says by this that it is in the cluster.
    in_pod = theirs.get("spark.kubernetes.submitInDriver") == "true"
    mode = "cluster" if in_pod else theirs.get("spark.submit.deployMode", "client")
    refuse_master(master, mode)
    return added(_ours(master, mode, theirs) | _jars(theirs), theirs)


def classes() -> Path:
    """The classes of Spark as the JVM maps them (`onlyonce.session.class_archive`).

    Without the file, or with that of another JVM or class path, it loads them.
    """
    return JARS / ("spark-s3.jsa" if is_s3(settings.data_root()) else "spark.jsa")


def added(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Ours, less what is theirs to say, with what is both's.

    Raises Refused for a catalog that has no Delta tables. Pure.
    """
    found = {key: value for key, value in ours.items() if key in _ALWAYS or key not in theirs}
    for key, between in _MERGED.items():
        if key in ours and key in theirs:
            parts = [part for part in theirs[key].split(between) if part]
            found[key] = between.join(dict.fromkeys([*parts, *ours[key].split(between)]))
    catalog = theirs.get(_CATALOG, ours.get(_CATALOG))
    if catalog != ours.get(_CATALOG):
        raise Refused(
            f"{_CATALOG} is {catalog}",
            data="nothing was started",
            hint="the platform's tables are Delta's and need Delta's catalog; give the other one a name of its own",
        )
    return {key: value for key, value in found.items() if theirs.get(key) != value}


def _ours(master: str, mode: str, theirs: Mapping[str, str]) -> dict[str, str]:
    found = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        _CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        redaction.SETTING: redaction.merged(theirs.get(redaction.SETTING)),
        # As Delta's log and pyarrow have them; Spark's own default is older, and says nothing of its least and largest.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # A row may be a block of some thousand records.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(1 << 26),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        # Else each expression of a plan tells the JVM the line that it stands on: as many calls again as there are, in
        # each batch.
        "spark.python.sql.dataFrameDebugging.enabled": str(settings.spark().spark_lines).lower(),
        **state.options(master, theirs),
        **stores.of_spark(settings.data_root()),
        **_said(),
    }
    if not master.startswith("local") and not _has_said_what_is_logged(theirs):
        found.setdefault("spark.log.level", "ERROR")  # else the progress of each batch is in the task's log
    if mode == "cluster":
        return found | ({"spark.yarn.maxAppAttempts": "1"} if master.startswith("yarn") else {})
    # With its scheme: without one it is a folder of whatever file system is the cluster's default.
    found["spark.sql.warehouse.dir"] = (settings.home() / "spark-warehouse").as_uri()
    if host := driver_host(master):
        found["spark.driver.host"] = host
    return {**_of_local(theirs), **found} if master.startswith("local") else found


def _of_local(theirs: Mapping[str, str]) -> dict[str, str]:
    """For one machine that does it all. A cluster has its own."""
    found = {
        "spark.driver.bindAddress": "127.0.0.1",
        # The driver's port deserialises what it gets. With a local master Spark generates the secret itself.
        "spark.authenticate": "true",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if found_file.others_may_write(Path.cwd()):
        found["spark.executorEnv.PYTHONSAFEPATH"] = "1"  # Spark starts its workers by `python -m`, in this folder
    java = [END_WITHOUT_MEMORY, *([f"-XX:SharedArchiveFile={classes()} {QUIETLY}"] if classes().exists() else [])]
    if PACKAGE.is_file() and not _has_said_what_is_logged(theirs):
        java.append(LOGGING + PACKAGE.with_name("log4j2.properties").as_uri())
    else:
        found["spark.log.level"] = "ERROR"
    if PACKAGE.is_file():  # else a task brings the package along as a zip, which Spark's daemon does not have
        found["spark.python.daemon.module"] = "onlyonce.session.worker_daemon"
    return found | {JAVA: " ".join(java)}


def _has_said_what_is_logged(theirs: Mapping[str, str]) -> bool:
    """Return whether the team has a configuration of log4j."""
    return "log4j" in theirs.get(JAVA, "") or has_logging()


def _jars(theirs: Mapping[str, str]) -> dict[str, str]:
    named = [theirs.get(key, "") for key in ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")]
    jars.refuse_without_client(settings.data_root(), JARS, named)
    if any("delta-spark" in jars for jars in named) and not list(JARS.glob("delta-spark_*.jar")):
        return {}
    return jars.of_session(JARS, s3=is_s3(settings.data_root()))


def _said() -> dict[str, str]:
    """What somebody has said by a setting of ours: it holds for each master."""
    asked = settings.spark()
    found = {
        "spark.driver.memory": asked.driver_memory,
        "spark.executor.memory": asked.executor_memory,
        "spark.sql.shuffle.partitions": asked.shuffle_partitions,
        "spark.ui.enabled": asked.spark_ui,
        "spark.log.level": asked.spark_log,
    }
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in found.items()
        if value is not None
    }


def with_retries(master: str) -> str:
    """Spark's local mode gives up at the first failed task; `local[N,4]` tries it again, as a cluster does."""
    if master.startswith("local[") and "," not in master:
        return master[:-1] + ",4]"
    return "local[1,4]" if master == "local" else master
