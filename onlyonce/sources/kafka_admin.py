"""Ask a broker about a topic, and read ranges of its messages. Runs on the driver.

It uses the client on Spark's class path, with the same options as Spark's own connector. So TLS and passwords are given
once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce import environment
from onlyonce.api.declaration import declared_at
from onlyonce.api.messages import FROM_ENVIRONMENT, Kafka
from onlyonce.core import records as core_records
from onlyonce.core.batch import to_micros
from onlyonce.core.errors import Refused, Retryable
from onlyonce.engine.options import without_kafka
from onlyonce.sources import record_id
from onlyonce.sources.kafka_offsets import Range, Seen
from onlyonce.sources.values.parse import BESIDE

ANSWER_MS = "30000"
"""How long the brokers may take to answer, unless the declaration sets default.api.timeout.ms."""
COMMIT_MS = "2000"
"""How long a commit to a consumer group may hold up the next batch."""
NONE_SO_LATE = -1


def options(source: Kafka) -> dict[str, str]:
    """Return the options of Kafka's client, with secrets from the environment. Never log them. Raise Refused."""
    found = {name.removeprefix("kafka."): resolved(name, value) for name, value in source.options.items()}
    return found | {"bootstrap.servers": source.servers}


def look(spark: SparkSession, source: Kafka) -> Seen:
    """Return the topic's id, its first offsets, and the ends of what may be read.

    Raise Refused if there is no such topic.
    """
    found = find(spark, source)
    if found is None:
        raise Refused(
            f"{declared_at(source)}there is no topic {source.topic!r} at {source.servers}",
            data="nothing was read or written",
            hint=f"make it: kafka-topics.sh --bootstrap-server {source.servers} --create --topic {source.topic} "
            "--partitions 4; or correct the declaration",
        )
    return found


def find(spark: SparkSession, source: Kafka) -> Seen | None:
    """Return the same as `look` for a topic that may be missing: None if there is no such topic."""
    with _admin(spark, source) as asking:
        described = asking.described()
        if described is None:
            return None
        parts = sorted(one.partition() for one in described.partitions())
        return Seen(described.topicId().toString(), asking.offsets(parts, "earliest"), asking.offsets(parts, "latest"))


def written(spark: SparkSession, source: Kafka, seen: Seen) -> dict[int, int]:
    """Return the ends of the partitions with the messages of open transactions."""
    with _admin(spark, source) as asking:
        return asking.offsets(sorted(seen.latest), "latest", isolation="read_uncommitted")


def at(spark: SparkSession, source: Kafka, time: datetime, seen: Seen) -> dict[int, int]:
    """Return by partition the first offset whose message is not older than a time; the end if there is none."""
    with _admin(spark, source) as asking:
        found = asking.offsets(sorted(seen.latest), "forTimestamp", (to_micros(time) or 0) // 1000)
    return {
        part: seen.latest[part] if offset == NONE_SO_LATE else min(offset, seen.latest[part])
        for part, offset in found.items()
    }


def may_be_compacted(spark: SparkSession, source: Kafka) -> bool:
    """Return whether the broker may remove messages of the topic whose keys came again.

    Return True if the account has no permission to ask.
    """
    try:
        with _admin(spark, source) as asking:
            return "compact" in asking.configuration()["cleanup.policy"].split(",")
    except Refused:
        return True


def configuration(spark: SparkSession, source: Kafka) -> dict[str, str]:
    """Return the settings of a topic. Raise Refused or Retryable if the broker does not return them."""
    with _admin(spark, source) as asking:
        return asking.configuration()


def commit_to_group(spark: SparkSession, source: Kafka, group: str, offsets: dict[int, int]) -> str | None:
    """Write offsets to a consumer group, for people's own tools. Return None, or why that failed.

    Nothing depends on it, so a failure is returned and not raised.
    """
    try:
        with _admin(spark, source, COMMIT_MS) as asking:
            asking.commit(group, offsets)
    except (Refused, Retryable) as error:
        return error.what
    return None


class _Asking:
    def __init__(self, jvm: Any, gateway: Any, source: Kafka, admin: Any) -> None:
        self._jvm, self._gateway, self._source, self._admin = jvm, gateway, source, admin

    def described(self) -> Any:
        names = self._jvm.java.util.ArrayList()
        names.add(self._source.topic)
        try:
            return self._admin.describeTopics(names).allTopicNames().get().get(self._source.topic)
        except Py4JJavaError as error:
            if "UnknownTopicOrPartitionException" in str(error):
                return None
            raise

    def configuration(self) -> dict[str, str]:
        config = self._jvm.org.apache.kafka.common.config
        topic = config.ConfigResource(config.ConfigResource.Type.TOPIC, self._source.topic)
        wanted = self._jvm.java.util.ArrayList()
        wanted.add(topic)
        found = self._admin.describeConfigs(wanted).all().get().get(topic)
        entries = self._jvm.java.util.ArrayList(
            found.entries()
        )  # py4j can't iterate over a Java collection that is not a list
        return {str(entry.name()): str(entry.value()) for entry in entries}

    def commit(self, group: str, offsets: dict[int, int]) -> None:
        kafka = self._jvm.org.apache.kafka
        wanted = self._jvm.java.util.HashMap()
        for part, offset in offsets.items():
            place = kafka.common.TopicPartition(self._source.topic, part)
            wanted.put(place, kafka.clients.consumer.OffsetAndMetadata(offset))
        self._admin.alterConsumerGroupOffsets(group, wanted).all().get()

    def offsets(self, parts: list[int], which: str, *argument: int, isolation: str = "") -> dict[int, int]:
        kafka = self._jvm.org.apache.kafka
        level = getattr(kafka.common.IsolationLevel, (isolation or self._source.isolation).upper())
        places = {part: kafka.common.TopicPartition(self._source.topic, part) for part in parts}
        wanted = self._jvm.java.util.HashMap()
        for place in places.values():
            wanted.put(place, getattr(kafka.clients.admin.OffsetSpec, which)(*argument))
        answer = self._admin.listOffsets(wanted, kafka.clients.admin.ListOffsetsOptions(level)).all().get()
        return {part: int(answer.get(place).offset()) for part, place in places.items()}


@contextmanager
def _admin(spark: SparkSession, source: Kafka, answer_ms: str = ANSWER_MS) -> Iterator[_Asking]:
    context: Any = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway
    properties = jvm.java.util.Properties()
    for name, value in (
        {"default.api.timeout.ms": answer_ms, "request.timeout.ms": answer_ms} | options(source)
    ).items():
        properties.setProperty(name, value)
    admin = None
    client = jvm.org.apache.kafka.clients.admin.AdminClient
    if isinstance(client, JavaPackage):  # Java has no such class
        raise without_kafka(declared_at(source))
    try:
        admin = client.create(properties)
        yield _Asking(jvm, gateway, source, admin)
    except Py4JJavaError as error:
        raise _told(source, error) from error
    finally:
        if admin is not None:
            admin.close()


REFUSALS = {
    "SslAuthentication": "refuses, or is refused by, the TLS certificate",
    "Authentication": "refuses the login",
    "Authorization": "refuses the account",
    "Config": "can't be asked with these options",
}
"""Words for the name of a Java class. The first pattern that fits counts."""


def _told(source: Kafka, error: Py4JJavaError) -> Refused | Retryable:
    """Return the error without Java's names: whether the options are at fault, or no broker has answered."""
    causes = [error.java_exception]
    while causes[-1].getCause() is not None:
        causes.append(causes[-1].getCause())
    kinds = [cause.getClass().getSimpleName() for cause in causes]
    message = str(causes[-1].getMessage())
    where = f"{declared_at(source)}Kafka at {source.servers}"
    # A TLS layer may report an untrusted certificate in its own words, so all causes are searched.
    refused = next((words for mark, words in REFUSALS.items() if any(mark in kind for kind in kinds)), None)
    if refused:
        return Refused(
            f"{where} {refused}: {message}",
            data="nothing was read or written",
            hint="correct the options of the declaration, or what the variables that they name hold",
        )
    # The message of a timeout names only Java's calls.
    said = "" if "Timeout" in kinds[-1] else f": {message}"
    return Retryable(
        f"{where} does not answer{said}",
        data="nothing was read or written",
        hint="are the brokers up at that address, and can this machine reach them? Then run the same command again",
    )


def resolved(name: str, value: str) -> str:
    """Return the value of an option, or of the variable that it names.

    It may be a secret: never log it. Raise Refused if the variable is not set.
    """
    if not value.startswith(FROM_ENVIRONMENT):
        return value
    variable = value.removeprefix(FROM_ENVIRONMENT)
    held = environment.variable(variable)
    if held is None:
        raise Refused(
            f"the environment variable {variable} of the option {name} {environment.why_missing(variable)}",
            data="nothing was read or written",
            hint=f"set {variable} where the driver runs",
        )
    return held


# Reading ranges of a topic by Spark's own connector, as a bounded read that is the same at each attempt.
#
# If a range is deleted during the read, its task fails (`failOnDataLoss`), and `failures` translates the error.

VALUE, KEY = "oo_value", "oo_key"
TOMBSTONE = "the message has no value (a tombstone)"


def read_messages(spark: SparkSession, source: Kafka, ranges: list[Range]) -> DataFrame:
    """Return the messages of some ranges, with the connector's own columns."""
    first, until = ({str(one.part): getattr(one, end) for one in ranges} for end in ("first", "until"))
    reader = spark.read.format("kafka").option("assign", json.dumps({source.topic: [one.part for one in ranges]}))
    reader = reader.option("startingOffsets", json.dumps({source.topic: first}))
    reader = reader.option("endingOffsets", json.dumps({source.topic: until}))
    # All cores, even if there are fewer partitions: the id of a message does not depend on the cut.
    reader = reader.option("minPartitions", spark.sparkContext.defaultParallelism)
    reader = reader.option("failOnDataLoss", "true").option("includeHeaders", str(bool(source.headers)).lower())
    for name, value in options(source).items():
        reader = reader.option(f"kafka.{name}", value)
    return reader.option("kafka.isolation.level", source.isolation).load()


def read_records(spark: SparkSession, source: Kafka, ranges: list[Range]) -> DataFrame:
    """Return the messages that are records.

    For changes by Debezium a tombstone is not a record: it repeats the delete before it.
    """
    found = read_messages(spark, source, ranges)
    return found.where(F.col("value").isNotNull()) if source.of_envelope else found


def read_values(spark: SparkSession, source: Kafka, ranges: list[Range]) -> DataFrame:
    """Return records as (oo_line, oo_refused, oo_file, oo_position), and the columns that get the key and headers.

    A value or key in a format (`api.messages`) stays bytes, in VALUE and KEY, which `kafka_messages` reads. An envelope
    stays whole; `source_kafka` takes it apart. A message is `invalid` if a declared key or header is not UTF-8.
    """
    files = F.create_map(*[F.lit(x) for one in ranges for x in (one.part, record_id.of_file(one.place))])
    with_schema = {part: name for part, name in (("value", VALUE), ("key", KEY)) if part in source.schema_ids}
    # Some producers end a value with a line feed.
    value = F.rtrim(F.col("value").cast("string"), F.lit("\r\n"))
    beside = {name: _header(name) for name in source.headers}
    if isinstance(source.key, str):
        beside = {source.key: F.col("key").cast("string"), **beside}
    sized = [F.col("value"), *([F.col("key")] if "key" in with_schema else []), *beside.values()]
    size: Column = sum((F.coalesce(F.octet_length(text), F.lit(0)) for text in sized), F.lit(0))
    over = size > source.max_record_bytes
    bad = F.when(over, _too_large(source, size)).when(F.col("value").isNull(), F.lit(TOMBSTONE))
    if "value" in with_schema:
        value = F.when(over, F.hex(F.substring("value", 1, core_records.BEGINNING // 2))).otherwise(F.lit(""))
    else:
        value = F.when(over, F.substring(value, 1, core_records.BEGINNING)).otherwise(value)
    for name, text in beside.items():
        named = f"key (column {name})" if name == source.key else f"header {name}"
        unfit = ~F.is_valid_utf8(text) | F.contains(text, F.lit("\0"))
        # The reason must not quote these bytes: `oo_raw` has only the value, so an erasure would not find them.
        bad = bad.when(unfit, F.lit(f"the message's {named} is no text that can be stored"))
    return read_records(spark, source, ranges).select(
        F.coalesce(value, F.lit("")).alias("oo_line"),
        bad.alias("oo_refused"),
        files[F.col("partition")].alias("oo_file"),
        F.col("offset").alias("oo_position"),
        *[F.when(~over, beside[name]).alias(f"{BESIDE}{name}") for name in source.beside if name in beside],
        *[F.when(~over, F.col(part)).alias(name) for part, name in with_schema.items()],
    )


def _too_large(source: Kafka, size: Column) -> Column:
    place = F.concat(F.lit(f"{source.topic}/"), F.col("partition"), F.lit(" at offset "), F.col("offset"))
    told = core_records.record_too_large("the message of %s", "%s", source.max_record_bytes)
    return F.format_string(told, place, size)


def _header(name: str) -> Column:
    # If several headers have one name, the last one counts, as in Kafka's own clients.
    named = F.filter(F.col("headers"), lambda one: one["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")
