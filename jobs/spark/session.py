"""The one SparkSession builder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from jobs import settings
from jobs.model.errors import Refused

JARS = Path(os.environ.get("ONLYONCE_JARS") or Path(sys.prefix) / "jars")


def options(master: str) -> dict[str, str]:
    """The settings of every session of ours, for spark-submit's --conf as for a session made here."""
    if not list(JARS.glob("delta-spark_*.jar")):
        raise Refused(f"the Delta jars are not in {JARS}", hint="make env brings them")
    found = {
        "spark.driver.extraClassPath": f"{JARS}/*",
        "spark.executor.extraClassPath": f"{JARS}/*",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(settings.home() / "spark-warehouse"),
        "spark.sql.shuffle.partitions": os.environ.get("ONLYONCE_SHUFFLE_PARTITIONS", "2"),
        "spark.databricks.delta.snapshotPartitions": "2",
        # One open file for each kind in a task, instead of a sort of all rows by kind.
        "spark.sql.maxConcurrentOutputFileWriters": "8",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.ui.enabled": os.environ.get("ONLYONCE_SPARK_UI", "false"),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": os.environ.get("ONLYONCE_DRIVER_HOST", "127.0.0.1"),
        "spark.driver.memory": os.environ.get("ONLYONCE_DRIVER_MEMORY", "2g"),
    }
    if master.startswith("local"):
        found["spark.driver.bindAddress"] = "127.0.0.1"
    return found


def with_retries(master: str) -> str:
    """Spark's local mode gives up at the first failed task; `local[N,4]` tries it again, as a cluster does."""
    if master.startswith("local[") and "," not in master:
        return master[:-1] + ",4]"
    return "local[1,4]" if master == "local" else master


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
    return session
