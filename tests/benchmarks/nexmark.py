"""A pipeline for each query of Nexmark; and the same query as a plain Spark stream without guarantees: no ids, no log,
an append of each batch."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Output
from onlyonce.core.windows import Joined, Session, Sliding
from tests.nexmark import queries
from tests.nexmark.declarations import QUERIES, WATERMARK_DELAY, pipeline
from tests.nexmark.events import SCHEMA

FILES_A_BATCH = 4
SIDE = {key: f"value {key}" for key in range(queries.SIDES)}
ASKED = [query for query in os.environ.get("ONLYONCE_BENCH_QUERIES", ",".join(QUERIES)).split(",") if query]
PIPELINES = [pipeline(f"nexmark_{query}", query, files_a_batch=FILES_A_BATCH) for query in ASKED]


class Bare:
    """One query from JSON files to a Delta table, with a watermark on the events themselves."""

    def __init__(self, spark: SparkSession, home: Path, query: str) -> None:
        self.spark, self.home, self.query = spark, home / "bare" / query, query
        self.inbox = self.home / "inbox"

    def drain(self) -> None:
        """All that is there and new."""
        root, *made = QUERIES[self.query]

        def write(rows: DataFrame, batch_id: int) -> None:
            for output in made:
                rows = _function(output.transform)(rows)
            rows.write.format("delta").mode("append").save(str(self.home / "table"))

        mode = "update" if root.panes == "early" else "append"
        writer = (
            self._result(root).writeStream.outputMode(mode).option("checkpointLocation", str(self.home / "checkpoint"))
        )
        writer.queryName(f"bare_{self.query}").trigger(availableNow=True).foreachBatch(write).start().awaitTermination()

    def _result(self, root: Output) -> DataFrame:
        stream = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_A_BATCH).json(str(self.inbox))
        events = stream.withColumn("oo_event_time", F.col("at")).withColumn("oo_ingestion_time", F.current_timestamp())
        events = events.withWatermark("oo_event_time", f"{WATERMARK_DELAY.total_seconds():.0f} seconds")
        if root.join:
            return _joined(root, events)
        side = [self.spark.createDataFrame(list(SIDE.items()), "key long, value string")] if root.lookups else []
        return _function(root.transform)(_windowed(root, events), *side)


def _function(name: str):  # type: ignore[no-untyped-def]
    return getattr(queries, name.partition(":")[2])


def _windowed(root: Output, events: DataFrame) -> DataFrame:
    if isinstance(root.window, Session):
        return events.withColumn("oo_window", F.session_window("oo_event_time", _span(root.window.gap)))
    if root.window is None:
        return events
    assert not isinstance(root.window, Joined)
    step = _span(root.window.slide) if isinstance(root.window, Sliding) else None
    return events.withColumn("oo_window", F.window("oo_event_time", _span(root.window.size), step))


def _joined(root: Output, events: DataFrame) -> DataFrame:
    assert root.join
    left, right = _function(root.join.left)(events), _function(root.join.right)(events)
    left = left.select(*[F.col(name).alias(f"left_{name}") for name in left.columns])
    span = _span(root.join.within)
    near = F.expr(
        f"oo_event_time BETWEEN left_oo_event_time - INTERVAL {span} AND left_oo_event_time + INTERVAL {span}"
    )
    for key in root.join.on:
        near = near & (F.col(f"left_{key}") == F.col(key))
    return left.join(right, near)


def _span(time: timedelta) -> str:
    return f"{time.total_seconds():.0f} seconds"


def distinct_rows(table: Path, columns: tuple[str, ...]) -> int:
    """How many rows are in a Delta table, by these columns."""
    from deltalake import DeltaTable

    rows: int = (
        DeltaTable(str(table)).to_pyarrow_table(columns=list(columns)).group_by(list(columns)).aggregate([]).num_rows
    )
    return rows
