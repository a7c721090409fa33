"""A table of customers, kept as the changes of a database's table say: from a topic that the environment names."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce import Avro, Debezium, Delta, Kafka, Output, Pipeline, Postgres

AVRO = "CUSTOMERS_REGISTRY" in os.environ


def changes(records: DataFrame) -> DataFrame:
    """The rows, and which of them are deleted."""
    return records.select("key", "value", "position", (F.col("op") == "d").alias("gone"))


def versions(records: DataFrame) -> DataFrame:
    """The same, with the time from which each holds."""
    return records.select(
        "key", "value", "position", (F.col("op") == "d").alias("gone"), F.col("changed_at").alias("valid_from")
    )


CUSTOMERS = Pipeline(
    name="customers",
    source=Kafka(
        topic=os.environ.get("CUSTOMERS_TOPIC", "customers"), servers=os.environ.get("CUSTOMERS_SERVERS", "localhost:9092"),
        max_offsets_a_batch=40, value=Debezium(format=Avro(registry="env:CUSTOMERS_REGISTRY") if AVRO else None),
    ),
    schema="key string, value long, op string, position string, changed_at timestamp" + (", schema_id int" if AVRO else ""),
    record_id=("key", "position"),
    event_time="changed_at",
    outputs=(
        Output(
            name="newest", transform="tests.support.customers:changes",
            sink=Postgres(table="results.customers", write="upsert", keys="key", sequence_by="position", delete_when="gone"),
        ),
        Output(
            name="lake", transform="tests.support.customers:changes",
            sink=Delta(path="customers", write="upsert", keys="key", sequence_by="position", delete_when="gone"),
        ),
        Output(
            name="history", transform="tests.support.customers:versions",
            sink=Postgres(table="results.customers_history", write="history", keys="key", sequence_by="position", delete_when="gone"),
        ),
    ),
)  # fmt: skip
PIPELINES = [CUSTOMERS]
