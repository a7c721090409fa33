"""Reads ranges of a topic by Spark's own connector, as a bounded read that is the same at each attempt.

Who calls it: `source_kafka`. Errors: Refused for a secret that is not in the environment. If a range is deleted during
the read its task fails (`failOnDataLoss`), which `failures` translates.
"""

from __future__ import annotations

import json

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.declare.sources.kafka import Kafka
from onlyonce.model import record_size
from onlyonce.sources.kafka import kafka_admin
from onlyonce.sources.kafka.offsets import Range
from onlyonce.sources.parse import record_id
from onlyonce.sources.parse.parse import BESIDE

VALUE, KEY = "oo_value", "oo_key"
TOMBSTONE = "the message has no value (a tombstone)"


def messages(spark: SparkSession, source: Kafka, ranges: list[Range]) -> DataFrame:
    """The messages of some ranges, as the connector gives them."""
    first, until = ({str(one.part): getattr(one, end) for one in ranges} for end in ("first", "until"))
    reader = spark.read.format("kafka").option("assign", json.dumps({source.topic: [one.part for one in ranges]}))
    reader = reader.option("startingOffsets", json.dumps({source.topic: first}))
    reader = reader.option("endingOffsets", json.dumps({source.topic: until}))
    # All cores, also where there are fewer partitions: the id of a message does not depend on the cut.
    reader = reader.option("minPartitions", spark.sparkContext.defaultParallelism)
    reader = reader.option("failOnDataLoss", "true").option("includeHeaders", str(bool(source.headers)).lower())
    for name, value in kafka_admin.options(source).items():
        reader = reader.option(f"kafka.{name}", value)
    return reader.option("kafka.isolation.level", source.isolation).load()


def records(spark: SparkSession, source: Kafka, ranges: list[Range]) -> DataFrame:
    """The messages that are records.

    Of changes by Debezium a tombstone is none: the delete before it has said the same.
    """
    found = messages(spark, source, ranges)
    return found.where(F.col("value").isNotNull()) if source.of_envelope else found


def values(spark: SparkSession, source: Kafka, ranges: list[Range]) -> DataFrame:
    """The same as (oo_line, oo_refused, oo_file, oo_position), and the columns that get the key and headers.

    A value or key in a format (`declare.message_formats`) comes as bytes, in VALUE and KEY; `kafka_schemas` reads it
    on. An envelope comes whole; `kafka_changes` takes it apart.
    """
    files = F.create_map(*[F.lit(x) for one in ranges for x in (one.part, record_id.of_file(one.place))])
    packed = {"value": VALUE, "key": KEY}
    packed = {part: name for part, name in packed.items() if part in source.schema_ids}
    # Some producers end a value with a line feed.
    value = F.rtrim(F.col("value").cast("string"), F.lit("\r\n"))
    beside = {name: _header(name) for name in source.headers}
    if isinstance(source.key, str):
        beside = {source.key: F.col("key").cast("string"), **beside}
    sized = [F.col("value"), *([F.col("key")] if "key" in packed else []), *beside.values()]
    size: Column = sum((F.coalesce(F.octet_length(text), F.lit(0)) for text in sized), F.lit(0))
    over = size > source.max_record_bytes
    bad = F.when(over, _too_large(source, size)).when(F.col("value").isNull(), F.lit(TOMBSTONE))
    if "value" in packed:
        value = F.when(over, F.hex(F.substring("value", 1, record_size.BEGINNING // 2))).otherwise(F.lit(""))
    else:
        value = F.when(over, F.substring(value, 1, record_size.BEGINNING)).otherwise(value)
    for name, text in beside.items():
        named = f"key (column {name})" if name == source.key else f"header {name}"
        unfit = ~F.is_valid_utf8(text) | F.contains(text, F.lit("\0"))
        # Without its bytes: `oo_raw` has the message's value only, by which an erasure finds the record.
        bad = bad.when(unfit, F.lit(f"the message's {named} is no text that can be stored"))
    return records(spark, source, ranges).select(
        F.coalesce(value, F.lit("")).alias("oo_line"),
        bad.alias("oo_refused"),
        files[F.col("partition")].alias("oo_file"),
        F.col("offset").alias("oo_position"),
        *[F.when(~over, beside[name]).alias(f"{BESIDE}{name}") for name in source.beside if name in beside],
        *[F.when(~over, F.col(part)).alias(name) for part, name in packed.items()],
    )


def _too_large(source: Kafka, size: Column) -> Column:
    place = F.concat(F.lit(f"{source.topic}/"), F.col("partition"), F.lit(" at offset "), F.col("offset"))
    told = record_size.too_large("the message of %s", "%s", source.max_record_bytes)
    return F.format_string(told, place, size)


def _header(name: str) -> Column:
    # The last of several of one name, as Kafka's own clients take it.
    named = F.filter(F.col("headers"), lambda one: one["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")
