"""Makes and checks the compacted topic of unit names, and reads it to its end.

Called by `onlyonce.sinks.outbox.kafka`.
"""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import uuid4

from onlyonce.model.errors import Refused
from onlyonce.model.sinks.delivery import Unsent

TRANSACTION = "transaction.timeout.ms"
ANSWER_SECONDS = 30.0


def settings_of(text: str) -> dict[str, Any]:
    """librdkafka's settings: JSON, or the brokers alone. Raises Refused."""
    if not text.lstrip().startswith("{"):
        return {"bootstrap.servers": text.strip()}
    try:
        return dict(json.loads(text))
    except ValueError as error:
        raise Refused(
            "the settings of a Kafka sink are not JSON", data="nothing was sent", hint="host:port,…"
        ) from error


def too_large(connection: str, unit: str, rows: int, seconds: float) -> Refused:
    """The error for a unit whose transaction brokers would end before it is whole, at each attempt."""
    return Refused(
        f"unit {unit} is too large for one transaction of Kafka: after {seconds:.0f} s {rows} of its rows were "
        "sent, and the "
        "brokers end a transaction that takes longer",
        data="the transaction was undone; its rows wait in the outbox, and all after them",
        hint=f"allow more: {TRANSACTION} in the JSON of {connection} (brokers bound it by "
        "transaction.max.timeout.ms), then: "
        "onlyonce deliver. For later units: smaller batches, or more partitions",
    )


def read_back(settings: dict[str, Any], topic: str, units: str, patience: float) -> dict[str, dict[str, Any]]:
    """The last unit of each partition of each lineage.

    The caller's producer has ended its own old transaction; those of others in the same topic are awaited. Raises
    Refused for a topic that is missing or forgets, Unsent."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(settings)
    known = admin.list_topics(timeout=patience).topics
    if topic not in known:
        raise Refused(
            f"Kafka has no topic {topic}",
            data="nothing was sent; the rows wait in the outbox",
            hint="make it, with as many partitions as its readers need; then: onlyonce deliver",
        )
    if units not in known:
        _make(admin, units, patience)
    _check(admin, units, patience)
    partitions = list(admin.list_topics(units, timeout=patience).topics[units].partitions)
    return _read(settings, units, partitions, patience)


def _make(admin: Any, units: str, patience: float) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewTopic

    new = NewTopic(units, num_partitions=1, replication_factor=-1, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([new], operation_timeout=patience)[units].result(patience)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise
    end = time.monotonic() + patience
    while units not in admin.list_topics(timeout=patience).topics:
        if time.monotonic() > end:
            raise Unsent(f"topic {units} was made and can't be seen", data="nothing was sent", hint="onlyonce deliver")
        time.sleep(0.05)


def configuration(settings: dict[str, Any], topic: str) -> dict[str, str] | None:
    """Return the settings of a topic; None if the broker does not tell them."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return _configuration(AdminClient(settings), topic, ANSWER_SECONDS)
    except KafkaException:
        return None


def _configuration(admin: Any, topic: str, patience: float) -> dict[str, str]:
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return {name: one.value for name, one in admin.describe_configs([asked])[asked].result(patience).items()}


def _check(admin: Any, units: str, patience: float) -> None:
    policy = _configuration(admin, units, patience)["cleanup.policy"]
    if policy != "compact":
        raise Refused(
            f"topic {units} has cleanup.policy={policy}, so it would forget which units are committed",
            data="nothing was sent; the rows wait in the outbox",
            hint="set cleanup.policy=compact, or name another units_topic",
        )


def _read(settings: dict[str, Any], units: str, partitions: list[int], patience: float) -> dict[str, dict[str, Any]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
    from confluent_kafka.cimpl import KafkaError

    plain = {"group.id": f"onlyonce-{uuid4()}", "enable.auto.commit": False}
    # The end as it is now, open transactions of others included: a reader of what is committed would stop before them.
    looking: Any = Consumer(settings | plain | {"isolation.level": "read_uncommitted"})
    try:
        places = [TopicPartition(units, partition) for partition in partitions]
        ends = {p.partition: looking.get_watermark_offsets(p, timeout=patience) for p in places}
    finally:
        looking.close()
    left = {partition: high for partition, (low, high) in ends.items() if high > low}
    there: dict[str, dict[str, Any]] = {}
    reader: Any = Consumer(settings | plain | {"isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        reader.assign([TopicPartition(units, partition, OFFSET_BEGINNING) for partition in left])
        end = time.monotonic() + patience
        while left:
            if time.monotonic() > end:
                raise Unsent(
                    f"topic {units} could not be read to its end in {patience:.0f} s",
                    data="nothing was sent; the rows wait in the outbox",
                    hint="another output's transaction is open there, until it ends; then: onlyonce deliver",
                )
            message = reader.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                there[message.key().decode()] = json.loads(message.value())
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(message.error())
            position = reader.position([TopicPartition(units, message.partition())])[0].offset
            if max(position, message.offset()) >= left.get(message.partition(), 0):
                left.pop(message.partition(), None)
    finally:
        reader.close()
    return there
