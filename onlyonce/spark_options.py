"""The settings of every Spark session of ours, without importing Spark.

Most must be known before the JVM starts, so `spark-submit` gets them as --conf. Who calls it:
`onlyonce.session.session` and the Airflow operator in `onlyonce.airflow.spark_job`. Raises Refused when the jars are missing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from onlyonce import settings, spark_jars
from onlyonce.spark_master import driver_host, refuse_master

JARS = settings.jars() or Path(sys.prefix) / "jars"
CLASSES = JARS / "spark.jsa"
"""The classes of Spark as the JVM maps them (`onlyonce.session.class_archive`). Without the file, or with that of another JVM, it loads them."""
USE_CLASSES = f"-XX:SharedArchiveFile={CLASSES} -Xlog:cds=off -Xlog:cds+dynamic=off"


def options(master: str) -> dict[str, str]:
    """The settings of every session of ours, for spark-submit's --conf as for a session made here. Raises Refused."""
    refuse_master(master)
    found = {
        **spark_jars.of_session(JARS),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(settings.home() / "spark-warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        # As Delta's log and pyarrow have them; Spark's own default is older, and says nothing of its least and largest.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # A row may be a block of some thousand records.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(1 << 26),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Else each expression of a plan tells the JVM the line that it stands on: as many calls again as there are, in each batch.
        "spark.python.sql.dataFrameDebugging.enabled": str(settings.spark().spark_lines).lower(),
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        **_said(),
    }
    if host := driver_host(master):
        found["spark.driver.host"] = host
    if master.startswith("local"):
        found["spark.driver.bindAddress"] = "127.0.0.1"
        if CLASSES.exists():
            found["spark.driver.extraJavaOptions"] = USE_CLASSES
    return found


def _said() -> dict[str, str]:
    """What somebody has said by a setting of ours."""
    asked = settings.spark()
    found = {
        "spark.driver.memory": asked.driver_memory,
        "spark.sql.shuffle.partitions": asked.shuffle_partitions,
        "spark.ui.enabled": asked.spark_ui,
        "spark.log.level": asked.spark_log,
    }
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in found.items() if value is not None}


def with_retries(master: str) -> str:
    """Spark's local mode gives up at the first failed task; `local[N,4]` tries it again, as a cluster does."""
    if master.startswith("local[") and "," not in master:
        return master[:-1] + ",4]"
    return "local[1,4]" if master == "local" else master
