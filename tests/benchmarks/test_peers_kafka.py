"""The same from a topic of Kafka: what most run. `make bench-peers` runs it too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Kafka
from tests.benchmarks import deliveries, measure, page, ways
from tests.benchmarks.plot import bars
from tests.benchmarks.test_peers import BATCHES, LINES, PEERS, WARM, show, timed
from tests.benchmarks.test_receive import SEED
from tests.support.broker import Broker
from tests.support.platform import Platform

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(7200)]

PARTITIONS = 2
A_WARM_ONE = '{"id":"warm %d","user":1,"at":"2025-01-01T00:00:00Z","amount":1,"kind":"view","note":"-"}'
KEEPS_ALL = ("spark_append", "flink_append")


def test_peers_from_kafka(new_platform: Callable[..., Platform], spark: SparkSession, broker: Broker) -> None:
    """Spark's ways in a session that is up, to Delta, after a first batch of the topic; Flink by a process of its own,
    to Parquet, its start taken off."""
    assert (PEERS / "bin" / "python").exists(), "run `make bench-peers`: it makes the environment of the other engines"
    home, topic = new_platform("tests/benchmarks/pipelines.py").home, broker.topic("deliveries", PARTITIONS)
    (home / "input").mkdir()
    files = deliveries.Input(LINES, BATCHES, SEED).make(spark, home / "input")
    exact = deliveries.read(spark, files).dropDuplicates(["id"]).cache()
    kept = exact.count()
    compared = _ways(spark, home, broker, topic)
    _send(spark.range(WARM).select(F.format_string(A_WARM_ONE, "id").alias("value")), broker, topic)
    for way in compared.values():
        way.drain()
    _send(spark.read.text([str(file) for batch in files for file in batch]), broker, topic)
    seconds = {}
    for name, way in compared.items():
        began = time.monotonic()
        way.drain()
        seconds[name] = time.monotonic() - began
        _compare(spark, name, way.result(), exact)
    seconds |= _flink(spark, home, broker, topic, exact)
    rates = {name: round(LINES / taken) for name, taken in seconds.items()}
    show(rates, LINES)
    found = {
        "records_per_second": rates,
        "lines": LINES,
        "records": kept,
        "partitions": PARTITIONS,
        "seed": SEED,
        **measure.circumstances(),
    }
    measure.keep("peers", from_kafka=found)
    bars(
        rates,
        page.DOCS / "peers-kafka.svg",
        f"the first record of each id, {LINES:,} messages of Kafka, 2 cores, {date.today()}",
    )


def _ways(spark: SparkSession, home: Path, broker: Broker, topic: str) -> dict[str, ways.Way]:
    source = Kafka(topic=topic, servers=broker.servers, max_offsets_a_batch=LINES // BATCHES)

    def read(stream: Any, inbox: str) -> DataFrame:
        del inbox
        options = {
            "kafka.bootstrap.servers": broker.servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": LINES // BATCHES,
        }
        messages = stream.format("kafka").options(**options).load()
        return messages.select(F.from_json(F.col("value").cast("string"), deliveries.SCHEMA).alias("record")).select(
            "record.*"
        )

    bare = {
        "spark_append": ways.append(spark, home),
        "spark_drop_duplicates": ways.drop_duplicates(spark, home),
        "spark_merge": ways.merge(spark, home),
    }
    return {"exactly_once": ways.Ours(spark, "exactly", source=source)} | {
        name: replace(way, read=read) for name, way in bare.items()
    }


def _send(values: DataFrame, broker: Broker, topic: str) -> None:
    values.write.format("kafka").option("kafka.bootstrap.servers", broker.servers).option("topic", topic).save()


def _compare(spark: SparkSession, name: str, rows: DataFrame, exact: DataFrame) -> None:
    found = rows.filter("id NOT LIKE 'warm %'").select(*exact.columns)
    if name in KEEPS_ALL:
        assert found.count() == LINES
    else:
        assert deliveries.differing(spark, found, exact) == 0, name


def _flink(spark: SparkSession, home: Path, broker: Broker, topic: str, exact: DataFrame) -> dict[str, float]:
    nothing, python, seconds = broker.topic("nothing", PARTITIONS), PEERS / "bin" / "python", {}
    for name in ("flink_heap", "flink_rocksdb", "flink_append"):
        taken = {}
        for source in (nothing, topic):
            target = home / "peers" / name / source / "kept"
            target.mkdir(parents=True)
            taken[source] = timed(python, name, f"kafka://{broker.servers}/{source}", target)
        seconds[name] = taken[topic] - taken[nothing]
        _compare(spark, name, spark.read.parquet(str(target)).withColumn("at", F.col("at").cast("timestamp")), exact)
    return seconds
