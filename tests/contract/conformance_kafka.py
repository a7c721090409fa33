"""Kafka as the conformance suite sees it: a real broker, and a reader of what is committed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar
from uuid import uuid4

from onlyonce.api.pipeline import KafkaSink, Sent
from onlyonce.core.errors import CommitStateUnknown, OnlyonceError
from onlyonce.sinks.outbox.send_kafka import KafkaTarget
from onlyonce.testing.suite import OfOutbox, Row
from tests.support.broker import Broker

VARIABLE = "TEST_KAFKA"


@dataclass
class ToKafka(OfOutbox):
    """A topic of its own on the test's broker."""

    broker: ClassVar[Broker]
    topic: str = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        os.environ[VARIABLE] = self.broker.servers
        self.topic = self.broker.topic("rows", 3, max_message_bytes="20000000")

    def sink(self) -> Sent:
        """Keys, and a header of each kind."""
        return KafkaSink(
            topic=self.topic, connection=VARIABLE, keys=("key",), headers=("n", "id"), timeout=timedelta(seconds=20)
        )

    def seen(self) -> list[Row]:
        """What a read_committed reader has."""
        return self.plain([json.loads(message.value()) for message in read(self.broker.servers, self.topic)])

    def answers_lost(self) -> Iterator[AbstractContextManager[object]]:
        """That of Kafka's commit. Those of PostgreSQL meet the same code as in a sink of one's own."""
        for arrived in (True, False):
            yield _commit_lost(arrived)

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """The topic takes no message of this size; it has another name."""
        return {"missing": self._missing, "full": self._full}

    @contextmanager
    def _missing(self) -> Iterator[None]:
        there, self.topic = self.topic, "not-there"
        yield
        self.topic = there

    @contextmanager
    def _full(self) -> Iterator[None]:
        self._limit("100")  # no less: what ends a transaction is a message, too
        yield
        self._limit("20000000")

    def _limit(self, size: str) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

        entry = ConfigEntry("max.message.bytes", size, incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[entry])
        for done in self.broker.admin.incremental_alter_configs([change]).values():
            done.result(20)


@contextmanager
def _commit_lost(arrived: bool) -> Iterator[None]:
    write = KafkaTarget.write

    def losing(self: KafkaTarget, unit: str, rows: Any) -> None:
        if arrived:
            write(self, unit, rows)
        raise CommitStateUnknown("the answer was lost")

    KafkaTarget.write = losing  # type: ignore[method-assign]
    try:
        yield
    except OnlyonceError:
        pass
    finally:
        KafkaTarget.write = write  # type: ignore[method-assign]


def read(servers: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    """All messages of a topic that such a reader is given, to its end as it is now."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
    from confluent_kafka.cimpl import KafkaError

    reader: Any = Consumer({
        "bootstrap.servers": servers, "group.id": str(uuid4()), "isolation.level": isolation, "enable.partition.eof": True,
        "fetch.message.max.bytes": 30_000_000,
    })  # fmt: skip
    try:
        partitions = list(reader.list_topics(topic, timeout=20).topics[topic].partitions)
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found: list[Any] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message: Any = reader.poll(20)
            assert message is not None, "the broker does not answer"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        return found
    finally:
        reader.close()
