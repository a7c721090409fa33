"""Where the time of an exactly-once batch goes: the same batch, one step more each time, into Spark's `noop` sink."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.commitlog import batches, catalog
from jobs.commitlog.connect import run
from jobs.model.batch import Batch, Plan
from jobs.spark import events, parse, receive
from jobs.spark.query import Query
from jobs.spark.run_context import RunContext
from tests.benchmarks.deliveries import SCHEMA
from tests.benchmarks.ways import Ours

Piece = Callable[[], None]


def of_batch(ours: Ours, files: list[Path], home: Path) -> dict[str, Piece]:
    """Each piece holds the work of those of its kind before it: what it adds is the difference."""
    context = ours.context()
    query = context.open_query("receive")
    events.make(ours.spark, context.events, context.pipeline)
    batch = _begun(context, query)
    paths = [str(file) for file in files]

    def bare() -> DataFrame:
        return ours.spark.read.schema(SCHEMA).json(paths)

    def lines() -> DataFrame:
        return ours.spark.read.option("lineSep", "\n").text(paths).withColumn("reason", F.lit(None).cast("string"))

    def records() -> DataFrame:
        return parse.records(lines(), context.pipeline, batch.plan.system_time)

    def exchanged() -> DataFrame:
        target = F.pmod(F.col("oo_high"), F.lit(batch.plan.partitions)).cast("int")
        return records().repartitionById(batch.plan.partitions, target)

    def judged() -> DataFrame:
        return receive._judged(context, query, batch, lines())

    return {
        "bare: read": lambda: _nowhere(bare()),
        "bare: into Delta": lambda: _delta(bare(), home / "pieces_bare"),
        "ours: lines": lambda: _nowhere(lines()),
        "ours: parsed": lambda: _nowhere(records()),
        "ours: exchanged": lambda: _nowhere(exchanged()),
        "ours: judged": lambda: _nowhere(judged()),
        "ours: into Delta": lambda: _delta(judged(), home / "pieces_ours", "oo_kind"),
    }


def _begun(context: RunContext, query: Query) -> Batch:
    now = datetime.now(UTC)
    plan = Plan(
        lineage=query.lineage, batch_id=0, source_from=None, source_to={}, offsets_hash="pieces",
        partitions=context.pipeline.partitions, system_time=now, bucket=int(now.timestamp()) // catalog.BUCKET_SECONDS,
        settings={}, mode="exactly_once", declaration_hash=context.declaration_hash("receive"),
    )  # fmt: skip
    return run(query.database, lambda conn: batches.begin(conn, query.driver, context.instance, plan, None))


def _nowhere(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _delta(rows: DataFrame, path: Path, *by: str) -> None:
    rows.write.format("delta").mode("append").partitionBy(*by).save(str(path))
