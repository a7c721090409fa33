"""The JVM's archive of Spark's classes, with which a local Spark starts a third sooner (class data sharing, JEP 350).

    python -m onlyonce.engine.class_archive

It does once what drivers do, and lets the JVM write the loaded classes to a file. With `ONLYONCE_DATA=s3://any` it
makes the archive for sessions with data in S3: other jars are on their class path, and no store is asked. `make demo`,
`up` and `test` call it. Sessions of a local master use the file if it exists (`onlyonce.engine.options`). A JVM that
was updated since, or has other jars, ignores the file and starts as slowly as without it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce import environment
from onlyonce.engine.options import QUIETLY, classes, options


def main() -> None:
    """Make the file again, for the class path of this environment.

    Exit with 1 if this JVM makes none: Spark works without it.
    """
    classes().unlink(missing_ok=True)
    # A JVM whose options come from elsewhere would write, or use, another archive.
    environment.remove("JDK_JAVA_OPTIONS")
    environment.set_missing("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        spark = _session(Path(folder))
        _work(spark, Path(folder))
        _end(spark)
    if not classes().exists():
        sys.exit(f"this JVM made no archive of Spark's classes ({classes()}); Spark starts without it, a little later")


def _session(folder: Path) -> SparkSession:
    master = "local[2]"
    builder = SparkSession.builder.appName("class archive").master(master)
    own = {
        "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={classes()} {QUIETLY}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for key, value in (options(master) | own).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _work(spark: SparkSession, folder: Path) -> None:
    """Run a little of what receive and outputs do: Arrow, a watermark and windows, Delta's append and MERGE."""
    from delta.tables import DeltaTable

    events, target = str(folder / "events"), str(folder / "target")
    rows = spark.range(20).select(
        F.format_string("u%s", F.col("id") % 3).alias("user"),
        F.timestamp_seconds(1_356_998_400 + 60 * F.col("id")).alias("at"),
    )
    rows.mapInArrow(lambda batches: batches, rows.schema).write.format("delta").save(events)

    def put(batch: DataFrame, number: int) -> None:
        batch.persist()
        counts = batch.select("window.start", "user", "count").repartition(2, "user")
        if not DeltaTable.isDeltaTable(spark, target):
            counts.write.format("delta").save(target)
        table = DeltaTable.forPath(spark, target).alias("t")
        merge = table.merge(counts.alias("s"), "t.start = s.start AND t.user = s.user")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        batch.unpersist()

    counted = spark.readStream.format("delta").load(events).withWatermark("at", "1 minute")
    counted = counted.groupBy(F.window("at", "5 minutes"), "user").count()
    checkpoint = str(folder / "checkpoint")
    writer = counted.writeStream.foreachBatch(put).outputMode("append").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def _end(spark: SparkSession) -> None:
    """End the JVM, which then writes the archive. It ends when its standard input is closed."""
    jvm = spark.sparkContext._gateway.proc
    spark.stop()
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    main()
