"""A unit that is too large for one transaction of Kafka is refused by its name, before brokers end it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from onlyonce.api.pipeline import KafkaSink
from onlyonce.core.delivery import Row
from onlyonce.core.errors import Refused
from onlyonce.sinks.outbox.send_kafka import KafkaTarget


class Producer:
    """Takes whatever is sent, and notes how transactions ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def begin_transaction(self) -> None:
        """Nothing."""

    def produce(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def poll(self, _: float) -> None:
        """Nothing."""

    def flush(self, _: float) -> int:
        """All is there."""
        return 0

    def commit_transaction(self, _: float) -> None:
        """Done."""
        self.ended.append("committed")

    def abort_transaction(self, _: float) -> None:
        """Undone."""
        self.ended.append("undone")


def rows(number: int) -> Iterator[Row]:
    """Some rows of a unit."""
    return (Row(n, "shop/kept/1/0/kept/0", n, "incarnation", None, "{}", "i", 0) for n in range(number))


def test_a_unit_that_outlasts_its_transaction_is_undone_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting that allows more; one that is quick enough is written."""
    sink = KafkaSink(topic="t", connection="BROKERS")
    clock = count(step=10)
    monkeypatch.setattr("onlyonce.sinks.outbox.send_kafka.time.monotonic", lambda: float(next(clock)))
    producer = Producer()
    target = KafkaTarget(sink, producer, {}, seconds=100)
    target.write("shop/kept/1/0/kept/0@incarnation", rows(3))
    with pytest.raises(Refused, match="too large for one transaction") as refused:
        target.write("shop/kept/1/1/kept/0@incarnation", rows(30))

    assert producer.ended == ["committed", "undone"]
    assert "transaction.timeout.ms in the JSON of BROKERS" in refused.value.hint
