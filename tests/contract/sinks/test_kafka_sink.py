"""The Kafka sink on a real broker: the conformance suite, and what is Kafka's own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from onlyonce.api.pipeline import KafkaSink
from onlyonce.core import erasure
from onlyonce.core.delivery import Row
from onlyonce.core.erasure import Mentions
from onlyonce.core.errors import InvariantBroken, Refused, Superseded
from onlyonce.failpoints import FailPoint
from onlyonce.operate import erase_search
from onlyonce.sinks.outbox import deliver, send_kafka
from onlyonce.sinks.outbox.sink_outbox import StoredOutside
from onlyonce.testing import suite
from onlyonce.testing.scratch import Processes
from onlyonce.testing.suite import CASES, ODD_NAMES, Case, make_rows, odd_names_mean_only_themselves
from tests.contract.conformance_kafka import VARIABLE, ToKafka, read
from tests.contract.conftest import Log
from tests.contract.outboxes import Outbox, ids, sales
from tests.support.broker import Broker
from tests.support.erasure_places import plants

QUICK = {suite.each_row_is_there_once, suite.a_lost_answer_does_not_show}
CHECKPOINT = "00000000-0000-0000-0000-000000000001"


@pytest.fixture(autouse=True)
def of_broker(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sinks under test write to the session's broker."""
    monkeypatch.setattr(ToKafka, "broker", broker, raising=False)
    monkeypatch.setenv(VARIABLE, broker.servers)


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_kafka_does_what_it_promises(case: Case, shared: Log, tmp_path: Path) -> None:
    """Exactly once for readers of what is committed, in every case of the suite."""
    name = ODD_NAMES[0] if case is odd_names_mean_only_themselves else "text"
    case(ToKafka(shared, name), Processes(shared, tmp_path))


def test_a_message_has_its_declared_key_and_headers(shared: Log, tmp_path: Path) -> None:
    """The key is the text of the column; a header is text; unit and number are there, so that each message is told
    apart."""
    sink = ToKafka(shared)
    sink.write(0, [*make_rows(0), {"id": "x", "key": None, "n": None, "text": ""}])

    messages = read(sink.broker.servers, sink.topic)

    assert {message.key() for message in messages} == {b"key 0", b"key 1", b"key 2", None}
    assert len({(dict(m.headers())["onlyonce-unit"], dict(m.headers())["onlyonce-seq"]) for m in messages}) == 7
    for message in messages:
        row, found = json.loads(message.value()), dict(message.headers())
        assert found["id"] == row["id"].encode()
        assert found["n"] == (None if row["n"] is None else str(row["n"]).encode())
    units = read(sink.broker.servers, f"{sink.topic}.onlyonce-units")
    assert Counter(json.loads(unit.value())["rows"] for unit in units).total() == 2


def test_a_newer_deliverer_fences_the_one_that_is_writing(broker: Broker) -> None:
    """The old one has sent its rows and stands before its commit; the new one opens; the old commit fails, the new
    one's rows are the only ones that a reader of what is committed sees."""
    topic, unit = broker.topic("fenced"), f"shop/kept/1/0/kept/0@{CHECKPOINT}"
    sink = KafkaSink(topic=topic, connection=VARIABLE, timeout=timedelta(seconds=20))

    def overtaken() -> Iterator[Row]:
        yield from rows_of("old")
        old._producer.flush(20)
        with send_kafka.opened_producer(sink, "shop/kept") as new:
            assert not new.committed(unit)
            new.write(unit, iter(rows_of("new")))

    with send_kafka.opened_producer(sink, "shop/kept") as old, pytest.raises(Superseded):
        old.write(unit, overtaken())

    assert [message.value() for message in read(broker.servers, topic)] == [b'"new"']
    assert Counter(message.value() for message in read(broker.servers, topic, "read_uncommitted")) == {
        b'"new"': 1,
        b'"old"': 1,
    }


def test_a_unit_of_a_transaction_that_was_undone_is_not_committed(broker: Broker) -> None:
    """Its name reached the compacted topic, and its deliverer died before the commit: the next one must write it."""
    topic, unit = broker.topic("undone"), f"shop/kept/1/0/kept/0@{CHECKPOINT}"
    sink = KafkaSink(topic=topic, connection=VARIABLE, timeout=timedelta(seconds=20))
    with send_kafka.opened_producer(sink, "shop/kept") as dead:
        dead._producer.begin_transaction()
        dead._produce(unit, iter(rows_of("first")))
        with send_kafka.opened_producer(sink, "shop/kept") as next_one:
            assert not next_one.committed(unit)
            next_one.write(unit, iter(rows_of("second")))
    assert [message.value() for message in read(broker.servers, topic)] == [b'"second"']


def test_a_log_that_is_older_than_the_topic_is_refused(broker: Broker) -> None:
    """A restored backup would send batches that the topic has: it is a person's matter, and nothing is sent."""
    sink = KafkaSink(topic=broker.topic("restored"), connection=VARIABLE, timeout=timedelta(seconds=20))
    with send_kafka.opened_producer(sink, "shop/kept") as target:
        for batch in range(3):
            target.write(f"shop/kept/1/{batch}/kept/0@{CHECKPOINT}", iter(rows_of(f"{batch}")))
    with send_kafka.opened_producer(sink, "shop/kept") as target:
        assert target.committed(f"shop/kept/1/2/kept/0@{CHECKPOINT}")
        assert not target.committed(f"shop/kept/1/3/kept/0@{CHECKPOINT}")
        assert not target.committed("shop/kept/1/0/kept/0@another")
        with pytest.raises(InvariantBroken, match="older backup"):
            target.committed(f"shop/kept/1/1/kept/0@{CHECKPOINT}")


def test_a_units_topic_that_forgets_is_refused(broker: Broker) -> None:
    """After its retention a restart would send again what is there."""
    topic = broker.topic("kept")
    broker.make_topic(f"{topic}.onlyonce-units", cleanup_policy="delete")
    sink = KafkaSink(topic=topic, connection=VARIABLE, timeout=timedelta(seconds=20))
    with pytest.raises(Refused, match="forget"), send_kafka.opened_producer(sink, "shop/kept"):
        pass


def test_another_units_topic_waits_for_a_begun_unit(
    broker: Broker, shared: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deliverer was killed after Kafka's commit: the other topic does not have the unit's name, and would get the
    unit again. Once nothing waits it is taken."""
    topic, box = broker.topic("renamed"), Outbox(shared, "renamed")
    before = KafkaSink(topic=topic, connection=VARIABLE, timeout=timedelta(seconds=20))
    after = replace(before, units_topic=f"{topic}.units")
    box.put(sales(3))
    monkeypatch.setattr(deliver, "passing", killed_after_write)
    with pytest.raises(FailPoint):
        box.deliver(before)
    monkeypatch.setattr(deliver, "passing", lambda _point: None)

    with pytest.raises(Refused, match=rf"Its name would be in topic {topic}.onlyonce-units") as refused:
        box.deliver(after)
    assert refused.value.hint.startswith(f'KafkaSink(units_topic="{topic}.onlyonce-units")')
    assert box.deliver(before)
    box.put([row | {"id": f"b{row['id']}"} for row in sales(2)])
    assert box.deliver(after)

    seen = Counter(json.loads(message.value())["id"] for message in read(broker.servers, topic))
    assert seen == ids(sales(3)) + Counter(f"b{row['id']}" for row in sales(2))


def killed_after_write(point: str) -> None:
    """End the deliverer before it records that the target has the unit."""
    if point == "deliver-unit-after-write":
        raise FailPoint(point)


def rows_of(text: str) -> list[Row]:
    """One row."""
    return [Row(1, "unit", 0, CHECKPOINT, None, json.dumps(text), "", 0)]


@plants("messages of a sink", "messages of a transaction that was undone")
def test_undone_messages_stay_as_long_as_the_topic_says(broker: Broker) -> None:
    """A reader that takes uncommitted messages sees them; no program can take one out."""
    sink = KafkaSink(
        topic=broker.topic("undone", retention_ms="86400000", segment_ms="3600000"),
        connection=VARIABLE,
        timeout=timedelta(seconds=20),
    )
    mentions = Mentions(erasure.read_conditions("id = 'u17-secret'", {"id": "string"}))
    with send_kafka.opened_producer(sink, "shop/kept") as target:
        target.write(f"shop/kept/1/0/kept/0@{CHECKPOINT}", iter(rows_of("u17-secret")))
        target._producer.begin_transaction()
        target._produce(f"shop/kept/1/1/kept/0@{CHECKPOINT}", iter(rows_of("u17-secret, undone")))
        target._producer.flush()
        target._producer.abort_transaction()

    found = [
        sum(
            erase_search.count_mentions(message.value(), mentions)
            for message in read(broker.servers, sink.topic, *level)
        )
        for level in ((), ("read_uncommitted",))
    ]

    assert found == [1, 2]
    assert (
        f"messages of the topic {sink.topic}, including those of transactions that were undone, are gone by "
        in StoredOutside(sink).stays()
    )


def test_receipt_of_an_erasure_says_when_messages_are_gone(broker: Broker) -> None:
    """By the retention of the topic, which the broker is asked for; it tells nothing of a topic that is not there."""
    topics = [
        broker.topic("a", retention_ms="86400000", segment_ms="3600000"),
        broker.topic("b", cleanup_policy="compact"),
        "missing",
    ]
    said = [StoredOutside(KafkaSink(topic=topic, connection=VARIABLE)).stays() for topic in topics]

    by = datetime.now(UTC) + timedelta(hours=25)
    assert f"gone by {by:%Y-%m-%dT%H}" in said[0] or f"gone by {by - timedelta(minutes=1):%Y-%m-%dT%H}" in said[0]
    assert "gone never by themselves (cleanup.policy=compact)" in said[1]
    assert "does not tell" in said[2]
