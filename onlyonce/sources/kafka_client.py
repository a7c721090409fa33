"""Ask a broker about a topic without a JVM, by librdkafka, with the options that the declaration has for Java's client.

The options that say who connects, and how, are translated. The others tune Java's client, and are left out.
"""

from __future__ import annotations

import base64
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from onlyonce.api.messages import Kafka
from onlyonce.core.batch import to_micros
from onlyonce.core.errors import Refused, Retryable
from onlyonce.sources import kafka_admin
from onlyonce.sources.kafka_offsets import Seen

SAME = (
    "security.protocol", "sasl.mechanism", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password",
    "sasl.kerberos.service.name", "client.id",
)  # fmt: skip
RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
DROPPED = ("ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.location", "ssl.protocol", "sasl.jaas.config")
"""Options that decide about others, or that librdkafka decides itself."""
LOGIN = re.compile(r"(username|password)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;]+))")
PLAIN_LOGIN = re.compile(r"\b(Plain|Scram)LoginModule\b")
QUIET = logging.getLogger("onlyonce.kafka_client")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


def librdkafka_options(source: Kafka) -> dict[str, str]:
    """Return the options of librdkafka. They hold secrets: never log them.

    Raise Refused for an option that has no counterpart, or that names a variable which is not set.
    """
    given = {name.removeprefix("kafka."): kafka_admin.resolved(name, value) for name, value in source.options.items()}
    found = {"bootstrap.servers": source.servers}
    found |= {name: value for name, value in given.items() if name in SAME}
    found |= {RENAMED[name]: value for name, value in given.items() if name in RENAMED}
    if "ssl.truststore.location" in given:
        _refuse_store(given, "ssl.truststore", "PEM")
        found["ssl.ca.location"] = given["ssl.truststore.location"]
    if "ssl.keystore.location" in given:
        _refuse_store(given, "ssl.keystore", "PKCS12")
    if "ssl.endpoint.identification.algorithm" in given:
        by = given["ssl.endpoint.identification.algorithm"]
        found["ssl.endpoint.identification.algorithm"] = by or "none"
    if "sasl.jaas.config" in given:
        found |= _login(given["sasl.jaas.config"])
    known = {*SAME, *RENAMED, *DROPPED, "ssl.endpoint.identification.algorithm"}
    if strange := sorted(name for name in given if name.startswith(("sasl.", "ssl.")) and name not in known):
        raise _no_counterpart(strange[0])
    return found


def _refuse_store(given: Mapping[str, str], store: str, kind: str) -> None:
    if given.get(f"{store}.type", "JKS").upper() != kind:
        raise _no_counterpart(f"{store}.type={given.get(f'{store}.type', 'JKS')}")


def _login(jaas: str) -> dict[str, str]:
    if not PLAIN_LOGIN.search(jaas):
        raise _no_counterpart("sasl.jaas.config")
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", quoted) or plain for name, quoted, plain in LOGIN.findall(jaas)}


def _no_counterpart(option: str) -> Refused:
    return Refused(
        f"the broker can be asked only by Java's client: {option} has no counterpart in librdkafka",
        data="nothing was read",
        hint="PEM certificates and a login by name and password work in both",
    )


@dataclass(frozen=True)
class Asked:
    """Answers of a broker about one topic, each within `patience` seconds."""

    source: Kafka
    admin: Any
    options: Mapping[str, str]
    patience: float

    def seen(self) -> Seen:
        """Return the topic's id, its first offsets, and the ends of what may be read. Raise Refused without topic."""
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import OffsetSpec

        topic = self.source.topic
        asked = self.admin.describe_topics(TopicCollection([topic]), request_timeout=self.patience)
        described = asked[topic].result(self.patience)
        parts = sorted(one.id for one in described.partitions)
        ends = (self.offsets(parts, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
        return Seen(_as_java(described.topic_id), *ends)

    def written(self, seen: Seen) -> dict[int, int]:
        """Return the ends of the partitions with the messages of open transactions."""
        from confluent_kafka.admin import OffsetSpec

        return self.offsets(sorted(seen.latest), OffsetSpec.latest(), "read_uncommitted")

    def first_since(self, time_of_start: datetime, seen: Seen) -> dict[int, int]:
        """Return by partition the first offset whose message is not older than a time; the end if there is none."""
        from confluent_kafka.admin import OffsetSpec

        spec = OffsetSpec.for_timestamp((to_micros(time_of_start) or 0) // 1000)
        found = self.offsets(sorted(seen.latest), spec)
        return {part: seen.latest[part] if offset < 0 else offset for part, offset in found.items()}

    def offsets(self, parts: Iterable[int], spec: Any, isolation: str = "") -> dict[int, int]:
        """Return an offset of each partition. `isolation`: another one than the declared one."""
        from confluent_kafka import IsolationLevel, TopicPartition

        wanted = {TopicPartition(self.source.topic, part): spec for part in parts}
        level = getattr(IsolationLevel, (isolation or self.source.isolation).upper())
        answers = self.admin.list_offsets(wanted, isolation_level=level, request_timeout=self.patience)
        return {place.partition: answer.result(self.patience).offset for place, answer in answers.items()}

    def times(self, places: Mapping[int, int]) -> dict[int, datetime]:
        """Return the time of the first message at or after an offset of each partition, as far as they answer."""
        from confluent_kafka import Consumer, TopicPartition
        from confluent_kafka.cimpl import KafkaError

        options = {
            **self.options, "group.id": "onlyonce", "enable.auto.commit": False, "enable.partition.eof": True,
            "isolation.level": self.source.isolation, "auto.offset.reset": "earliest", "queued.min.messages": 1,
            "fetch.wait.max.ms": 50,
        }  # fmt: skip
        found: dict[int, datetime] = {}
        left, end = set(places), time.monotonic() + self.patience
        reader: Any = Consumer(options, logger=QUIET)
        try:
            reader.assign([TopicPartition(self.source.topic, part, offset) for part, offset in places.items()])
            while left and time.monotonic() < end:
                message = reader.poll(0.1)
                if message is None or message.partition() not in left:
                    continue
                if message.error() and message.error().code() != KafkaError._PARTITION_EOF:
                    continue
                left.discard(message.partition())
                if not message.error() and message.timestamp()[1] > 0:
                    found[message.partition()] = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
                reader.incremental_unassign([TopicPartition(self.source.topic, message.partition())])
        finally:
            reader.close()
        return found


def _as_java(topic_id: Any) -> str:
    """Return a topic's id as Java's client writes it, and so the manifest: librdkafka has another alphabet."""
    halves = (topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
    content = b"".join((half & (1 << 64) - 1).to_bytes(8, "big") for half in halves)
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@contextmanager
def asking(source: Kafka, patience: float) -> Iterator[Asked]:
    """Yield a client of the brokers. Raise Refused if it is not installed or refused, Retryable without an answer."""
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise Refused(
            "the package confluent-kafka, by which brokers are asked without Spark, is not installed here: pip install "
            "'onlyonce-pipelines[kafka]'",
            data="nothing was read",
            hint="pip install 'onlyonce-pipelines[kafka]', then run the same command again",
        ) from error
    options = librdkafka_options(source)
    # A login that a broker refuses is tried again until the time is over. Only this list has the broker's reason.
    refusals: list[Any] = []
    admin: Any = AdminClient({**options, "error_cb": refusals.append}, logger=QUIET)
    try:
        yield Asked(source, admin, options, patience)
    except (KafkaException, TimeoutError) as error:
        admin.poll(0)
        named = error.args[0].name() if isinstance(error, KafkaException) else None
        reason = _reason(refusals) or named
        raise Retryable(
            f"Kafka at {source.servers} does not answer{f': {reason}' if reason else ''}", data="nothing was read"
        ) from error


def _reason(refusals: Iterable[Any]) -> str | None:
    """Return the first reason why no broker was reached, in the words of a broker or of the network."""
    from confluent_kafka.cimpl import KafkaError

    return next((str(one.str()) for one in refusals if one.code() != KafkaError._ALL_BROKERS_DOWN), None)
