"""The ways to get records from files into a Delta table that `test_receive` compares, each as people write it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from onlyonce import settings
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.context import RunContext
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.engine import worker
from onlyonce.receive import loop
from onlyonce.sources.listing import new_files
from onlyonce.tables import own_tables, statistics
from onlyonce.tables.commit import Appended
from tests.benchmarks.deliveries import FILES_A_BATCH, SCHEMA

Write = Callable[[DataFrame, int], None]
KINDS = {"string": "string", "long": "int64", "timestamp": pa.timestamp("us", tz="UTC")}
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass":
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}  # fmt: skip


class Way(Protocol):
    """One way: what is in its inbox and new is taken in by `drain`; `query` is the name that Spark knows it by."""

    query: str

    @property
    def inbox(self) -> Path:
        """Where its files come in."""

    def drain(self) -> None:
        """Take in what is there, then stop."""

    def result(self) -> DataFrame:
        """The records that it has kept."""


@dataclass
class Bare:
    """A stream over the files, JSON parsed by Spark's own reader, and a function that writes each batch."""

    spark: SparkSession
    query: str
    home: Path
    write: Write
    prepare: Callable[[DataFrame], DataFrame] = lambda frame: frame
    conf: dict[str, str] | None = None
    read: Callable[[Any, str], DataFrame] = lambda stream, inbox: stream.schema(SCHEMA).json(inbox)

    @property
    def inbox(self) -> Path:
        """Where its files come in."""
        return self.home / self.query / "inbox"

    @property
    def target(self) -> str:
        """The Delta table."""
        return str(self.home / self.query / "table")

    @property
    def checkpoint(self) -> str:
        """Where the query keeps how far it is."""
        return str(self.home / self.query / "checkpoint")

    def drain(self) -> None:
        """See Way."""
        with configured(self.spark, self.conf or {}):
            stream = self.spark.readStream.option("maxFilesPerTrigger", FILES_A_BATCH)
            rows = self.prepare(self.read(stream, str(self.inbox)))
            writer = rows.writeStream.queryName(self.query).option("checkpointLocation", self.checkpoint)
            writer.trigger(availableNow=True).foreachBatch(self.write).start().awaitTermination()

    def result(self) -> DataFrame:
        """See Way."""
        return self.spark.read.format("delta").load(self.target)


class Ours:
    """The product's own receive, as `onlyonce.run.stream` calls it; the outputs are not run."""

    def __init__(self, spark: SparkSession, name: str, **options: Any) -> None:
        self.spark, self.query = spark, f"{name}/receive/1"
        self.inbox = settings.inbox(name)
        given: dict[str, Any] = {
            "schema": SCHEMA,
            "record_id": ("id",),
            "source": Files(max_files_a_batch=FILES_A_BATCH),
        } | options
        self.pipeline = Pipeline(
            name=name, event_time="at",
            max_ahead=timedelta(days=36500),
            outputs=(Output(name="unused", transform="tests.benchmarks.pipelines:per_key", sink=Delta()),),
            **given,
        )  # fmt: skip
        self.database = Database(settings.database_url())
        migrate(self.database.url)
        Incarnations(self.database).add_instance(name, name)

    def drain(self) -> None:
        """See Way."""
        loop.run_once(self.context())

    def result(self) -> DataFrame:
        """See Way."""
        rows = self.spark.read.format("delta").load(str(self.context().events))
        return rows.filter("oo_kind = 'kept'").select(*self.pipeline.columns())

    def listing_seconds(self) -> float:
        """What it takes to list all of the inbox and count its lines; a drain does it once, before its first batch."""
        began = time.monotonic()
        assert list(new_files(self.inbox, {}))
        return time.monotonic() - began

    def context(self) -> RunContext:
        """What one run of it works with."""
        return RunContext(self.spark, self.pipeline, self.pipeline.name, "bench", self.database)


def append(spark: SparkSession, home: Path, query: str = "append") -> Bare:
    """A bare append, no guarantees: a batch that is tried twice is there twice."""

    def write(frame: DataFrame, batch_id: int) -> None:
        frame.write.format("delta").mode("append").save(way.target)

    way = Bare(spark, query, home, write)
    return way


def quick(spark: SparkSession, home: Path) -> Bare:
    """A bare append made as quick as ours: tasks read lines by Arrow and write the files, the driver names them in one
    commit by delta-rs.

    The limit of this design.
    """
    from deltalake import DeltaTable

    schema = pa.schema([(name, KINDS[kind]) for name, kind in (column.split() for column in SCHEMA.split(", "))])
    target = home / "quick" / "table"

    def write(frame: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            DeltaTable.create(str(target), schema)
        mine = sorted(way.inbox.iterdir())[batch_id * FILES_A_BATCH : (batch_id + 1) * FILES_A_BATCH]
        made = worker.each(spark, mine, _by_arrow(target, schema), "path string").collect()
        table = Appended(target)
        indexed = statistics.columns(table.table)
        actions = [own_tables.added(target, Path(row.path), indexed) for row in made]
        table.table.create_write_transaction(actions, "append", table.table.schema(), [])

    # The text source tells the query of its files; the rows that it would give are not read.
    way = Bare(spark, "quick", home, write, read=lambda stream, inbox: stream.text(inbox))
    return way


def _by_arrow(target: Path, schema: Any) -> Callable[[Path], Iterator[Any]]:
    def work(file: Path) -> Iterator[Any]:
        from pyarrow import json, parquet

        rows = json.read_json(
            file, parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        )
        # In a folder as an attempt of ours has: what is known of a file's partition is told by its path.
        name = target / "quick" / f"{uuid4().hex}.parquet"
        name.parent.mkdir(exist_ok=True)
        parquet.write_table(
            rows, name, compression="zstd", row_group_size=1 << 17, use_dictionary=["kind"], store_schema=False
        )
        yield pa.RecordBatch.from_pydict({"path": [str(name)]})

    return work


def drop_duplicates(spark: SparkSession, home: Path) -> Bare:
    """Spark's own dedup, its state in RocksDB with changelog checkpoints, for as long as the input lasts."""

    def write(frame: DataFrame, batch_id: int) -> None:
        frame.write.format("delta").mode("append").save(way.target)

    def unique(frame: DataFrame) -> DataFrame:
        return frame.withWatermark("at", "2 days").dropDuplicatesWithinWatermark(["id"])

    way = Bare(spark, "drop_duplicates", home, write, unique, ROCKSDB)
    return way


def merge(spark: SparkSession, home: Path) -> Bare:
    """Delta's MERGE of what is not there."""

    def write(frame: DataFrame, batch_id: int) -> None:
        from delta.tables import DeltaTable

        fresh = frame.dropDuplicates(["id"])
        if not DeltaTable.isDeltaTable(spark, way.target):
            fresh.limit(0).write.format("delta").save(way.target)
        table = DeltaTable.forPath(spark, way.target).alias("t")
        table.merge(fresh.alias("s"), "t.id = s.id").whenNotMatchedInsertAll().execute()

    way = Bare(spark, "merge", home, write)
    return way


def row_per_record(spark: SparkSession, home: Path) -> Bare:
    """A row in PostgreSQL for each id; what could be inserted is new."""
    url = settings.database_url().replace("+psycopg2", "")
    with database_session(url) as session:
        session.cursor().execute("CREATE TABLE IF NOT EXISTS seen_ids (id text PRIMARY KEY)")

    def write(frame: DataFrame, batch_id: int) -> None:
        frame.mapInPandas(_claimed(url), frame.schema).write.format("delta").mode("append").save(way.target)

    way = Bare(spark, "row_per_record", home, write)
    return way


def known_mode(mode: str) -> dict[str, Any] | None:
    """The option of a declaration that chooses a mode; None while declarations don't know it."""
    return {"mode": mode} if "mode" in {f.name for f in fields(Pipeline)} else None


@contextmanager
def configured(spark: SparkSession, conf: dict[str, str]) -> Iterator[None]:
    """Settings of the session, for a while."""
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in conf:
            spark.conf.unset(key)


@contextmanager
def database_session(url: str) -> Iterator[Any]:
    import psycopg2

    session = psycopg2.connect(url)
    try:
        with session:
            yield session
    finally:
        session.close()


def insert_into(url: str, table: str) -> Callable[[Iterator[Any]], None]:
    """What a task does that appends its rows to a table of ours: one statement for a page of them."""

    def insert(part: Iterator[Any]) -> None:
        from psycopg2.extras import execute_values

        with database_session(url) as session:
            found = [tuple(row) for row in part]
            if found:
                execute_values(session.cursor(), f"INSERT INTO {table} VALUES %s", found, page_size=10_000)

    return insert


def _claimed(url: str) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    def task(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        from psycopg2.extras import execute_values

        insert = "INSERT INTO seen_ids VALUES %s ON CONFLICT DO NOTHING RETURNING id"
        with database_session(url) as session:
            for frame in frames:
                # In order and committed by frame, or two tasks with the same ids wait for each other for ever.
                unique = frame.drop_duplicates("id").sort_values("id")
                rows = [(one,) for one in unique["id"]]
                new = execute_values(session.cursor(), insert, rows, page_size=10_000, fetch=True)
                session.commit()
                yield unique[unique["id"].isin({one for (one,) in new})]

    return task
