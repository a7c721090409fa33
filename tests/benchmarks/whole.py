"""A whole pipeline, receive and two windowed outputs to Delta and PostgreSQL; and the same Spark job without
guarantees."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from onlyonce import settings
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.core.windows import Fixed
from tests.benchmarks import ways
from tests.benchmarks.deliveries import FILES_A_BATCH, SCHEMA

HOUR = timedelta(hours=1)
TABLE = "bench.per_user"


def per_kind(rows: DataFrame) -> DataFrame:
    """Count and sum of each kind in each hour."""
    return rows.groupBy("oo_window", "kind").agg(F.count(F.lit(1)).alias("rows"), F.sum("amount").alias("amount"))


def per_user(rows: DataFrame) -> DataFrame:
    """The same of each of a thousand groups of users."""
    group = F.pmod("user", F.lit(1000)).alias("group")
    return rows.groupBy("oo_window", group).agg(F.count(F.lit(1)).alias("rows"), F.sum("amount").alias("amount"))


PIPELINES = [
    Pipeline(
        name="whole",
        source=Files(max_files_a_batch=FILES_A_BATCH),
        schema=SCHEMA,
        record_id=("id",),
        event_time="at",
        max_ahead=timedelta(days=36500),
        outputs=(
            Output(name="per_kind", transform="tests.benchmarks.whole:per_kind", window=Fixed(HOUR), watermark_delay=HOUR, sink=Delta()),
            Output(
                name="per_user", transform="tests.benchmarks.whole:per_user", window=Fixed(HOUR), watermark_delay=HOUR,
                sink=Postgres(table=TABLE),
            ),
        ),
    )
]  # fmt: skip


class Bare:
    """Files → Delta, then a stream from that table for each output. The re-deliveries stay in, and are counted."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark, self.home = spark, home
        self.received: ways.Bare = ways.append(spark, home, "bare_whole")
        self.below = str(home / "bare")
        self.url = settings.database_url().replace("+psycopg2", "")

    def drain(self) -> None:
        """All that is there, through all three queries: the two outputs beside each other, as ours are."""
        self.received.drain()
        queries = [
            self._output("per_kind", per_kind, self._to_delta),
            self._output("per_user", per_user, self._to_postgres),
        ]
        for query in queries:
            query.awaitTermination()

    def _output(self, name: str, transform: Any, write: ways.Write) -> StreamingQuery:
        events = self.spark.readStream.format("delta").load(self.received.target).withWatermark("at", "1 hour")
        result = transform(events.withColumn("oo_window", F.window("at", "1 hour")))
        writer = result.writeStream.outputMode("append").option("checkpointLocation", f"{self.below}/{name}")
        return writer.trigger(availableNow=True).foreachBatch(write).start()

    def _to_delta(self, rows: DataFrame, batch_id: int) -> None:
        flat = rows.select("oo_window.start", "oo_window.end", "kind", "rows", "amount")
        flat.write.format("delta").mode("append").save(f"{self.below}/table")

    def _to_postgres(self, rows: DataFrame, batch_id: int) -> None:
        flat = rows.select("oo_window.start", "oo_window.end", "group", "rows", "amount")

        with ways.database_session(self.url) as session:
            session.cursor().execute(
                "CREATE TABLE IF NOT EXISTS bare_per_user "
                '(window_start timestamptz, window_end timestamptz, "group" bigint, rows bigint, amount bigint)'
            )
        flat.foreachPartition(ways.insert_into(self.url, "bare_per_user"))
