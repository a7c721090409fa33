"""The sinks that `test_sinks` compares: batches written by the product's own writers, in one mode or the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.api.pipeline import CustomSink, Delta, Files, FileSink, Output, Pipeline, Postgres, Sink
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.context import Query, RunContext
from onlyonce.core.batch import Outcome
from onlyonce.database.connect import Database, run
from onlyonce.database.migrate import migrate
from onlyonce.outputs import results
from onlyonce.sinks.targets import SinkWriter, writer_for
from tests.contract.conftest import plan_of
from tests.support.platform import Platform

SINKS: dict[str, Sink] = {
    "delta": Delta(),
    "delta upsert": Delta(write="upsert", keys=("id",)),
    "postgres": Postgres(table="bench.rows"),
    "postgres upsert": Postgres(table="bench.upserted", write="upsert", keys=("id",)),
    "files": FileSink(format="parquet"),
    "outbox (Webhook, BigQuery, Kafka, own)": CustomSink(target_class="tests.support.ledger_sink:Ledger"),
}
"""The outbox has no other mode: what is in it is what exactly once needs."""


def rows(spark: SparkSession, count: int) -> DataFrame:
    """A batch of rows of about 100 bytes, made once: what is measured is the sink."""
    made = spark.range(0, count, 1, 4).select(
        "id",
        F.pmod("id", F.lit(1000)).alias("key"),
        (F.col("id") / 3).alias("weight"),
        F.sha2(F.col("id").cast("string"), 256).alias("text"),
    )
    held = made.persist()
    held.count()
    return held


def modes(sink: Sink) -> tuple[str, ...]:
    """Those that the sink has."""
    return ("exactly_once",) if isinstance(sink, CustomSink) else ("at_least_once", "exactly_once")


@dataclass
class Way:
    """One sink in one mode."""

    database: Database
    driver: Driver
    writer: SinkWriter
    sink: Sink
    place: Path
    mode: str

    def write(self, batch: int, frame: DataFrame) -> None:
        """As `outputs` writes a batch: begin, measure, write, end."""
        shifted = frame.withColumn("id", F.col("id") + F.lit(batch * 1_000_000_000))
        plan = plan_of(self.driver, batch, mode=self.mode)
        begun = Batches(self.database).begin(self.driver, "shop", plan, None)
        found = results.measured(shifted)
        self.writer.write(begun, found.rows, found.content)

        def end(connection: Any) -> None:
            self.writer.end(connection, begun)
            Batches(connection).end(self.driver, begun, Outcome(in_time=0, late=0))

        run(self.database, end)

    def rows(self) -> int:
        """How many rows are there. That they are the right ones is the conformance suite's matter."""
        query = {"files": "SELECT sum(rows) FROM onlyonce_private.files WHERE output = '{}'"}
        if isinstance(self.sink, Delta):
            return int(DeltaTable(str(self.place)).to_pyarrow_dataset().count_rows())
        table = (
            f'{self.sink.table}' if isinstance(self.sink, Postgres)
            else f"onlyonce_private.outbox WHERE output = '{self.output}'"
        )  # fmt: skip
        asked = (
            query["files"].format(self.output) if isinstance(self.sink, FileSink) else f"SELECT count(*) FROM {table}"
        )
        return int(run(self.database, lambda conn: conn.exec_driver_sql(asked).scalar()) or 0)

    @property
    def output(self) -> str:
        """The name of the output."""
        return self.driver.incarnation.split("/")[1]


def way(spark: SparkSession, platform: Platform, name: str, sink: Sink, mode: str) -> Way:
    """A sink with a target of its own for each mode."""
    database = Database(platform.environment["ONLYONCE_DATABASE_URL"])
    migrate(database.url)
    word = f"{name.split(' (')[0].replace(' ', '_')}_{'once' if mode == 'exactly_once' else 'plain'}"
    if isinstance(sink, Postgres):
        sink = Postgres(table=f"bench.{word}", write=sink.write, keys=sink.keys)
    output = Output(name=word, transform="a:b", sink=sink)
    pipeline = Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id=("id",), event_time="at",
        outputs=(output,), mode=mode,  # type: ignore[arg-type]
    )  # fmt: skip
    Incarnations(database).add_instance("shop", "shop")
    incarnation = Incarnations(database).register("shop", word, uuid4())
    driver = Incarnations(database).bump(incarnation, "run")
    context = RunContext(spark, pipeline, "shop", "run", database)
    writer = writer_for(context, Query(driver, Path(), database, {}), output)
    writer.prepare(results.measured(rows(spark, 1)).rows.schema)
    return Way(database, driver, writer, sink, getattr(writer, "path", Path()), mode)
