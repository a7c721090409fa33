"""The manifest and the reader of a topic, on a real broker and Spark, without a platform around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from onlyonce.api.messages import Kafka
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.errors import Refused
from onlyonce.sources.source_kafka import Bounds, Ranges, Topic
from tests.support.broker import CLEANABLE, PATIENCE, Broker
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DRIVER = Driver("shop/receive/1", 1, 1, "test")


class Run:
    """What receive does with a topic: look, then read batch by batch."""

    def __init__(self, spark: Any, broker: Broker, folder: Path, name: str) -> None:
        self.spark, self.folder, self.name, self.instance = spark, folder, name, "shop"
        self.source = Kafka(topic=name, servers=broker.servers)

    def topic(self, bounds: Bounds | None = None, **options: Any) -> Topic:
        """The topic as it is declared now."""
        source = replace(self.source, **options)
        return Topic(replace(SHOP, source=source), source, self.instance, self.folder / self.instance, bounds)

    def batches(self, topic: Topic) -> list[Ranges]:
        """All batches of the manifest."""
        numbers = sorted(set(DeltaTable(str(topic.table)).to_pyarrow_table()["batch_no"].to_pylist()))
        table = self.spark.read.format("delta").load(str(topic.table))
        return [topic.listed(self.spark, table.where(f"batch_no = {number}")) for number in numbers]

    def read(self, batch: Ranges, facts: dict[str, Any] | None = None) -> Counter[tuple[str, str | None]]:
        """The (value, reason) of a batch; as many as there must be."""
        lines, must = batch.lines(facts or {})
        assert lines.rows is not None
        rows = [(row.oo_line, row.oo_refused) for row in lines.rows.collect()]
        assert must(len(rows)) == must(-1) == len(rows)
        return Counter(rows)


@pytest.fixture
def made(spark: Any, broker: Broker, tmp_path: Path) -> Callable[..., Run]:
    """A run over a new topic."""
    return lambda **options: Run(spark, broker, tmp_path, broker.topic("shop", **options))


def values(*texts: object) -> Counter[tuple[str, str | None]]:
    """What is read of these values."""
    return Counter((str(text), None) for text in texts)


def test_what_the_broker_has_lost_is_told(spark: Any, broker: Broker, made: Callable[..., Run]) -> None:
    """Before a look, after it, and with the whole topic: refused with the offsets; told to skip, one reason for each
    range."""
    run = made()
    broker.produce(run.name, *map(str, range(10)))
    topic, skipping = run.topic(), run.topic(on_loss="skip")
    assert topic.register(spark, DRIVER, NOON) == 1
    assert topic.register(spark, DRIVER, NOON) == 0
    broker.delete_before(run.name, 0, 4)  # registered and not read
    [first] = run.batches(topic)
    facts = first.unreadable()
    with pytest.raises(Refused, match=f"offsets 0 to 3 of {run.name}/0 were deleted"):
        first.lines(facts)
    gone = f"offsets 0 to 3 of {run.name}/0 were deleted by the broker before they were read"
    assert run.read(run.batches(skipping)[0], facts) == values(*range(4, 10)) + Counter([("", gone)])

    broker.produce(run.name, *map(str, range(10, 20)))
    broker.delete_before(run.name, 0, 15)  # not registered
    with pytest.raises(Refused, match=f"offsets 10 to 14 of {run.name}/0 were deleted"):
        topic.register(spark, DRIVER, NOON)
    assert skipping.register(spark, DRIVER, NOON) == 2
    reason = f"offsets 10 to 14 of {run.name}/0 were deleted by the broker before they were read"
    assert run.read(run.batches(topic)[1]) == values(*range(15, 20)) + Counter([("", reason)])

    broker.delete_topic(run.name)
    with pytest.raises(Refused, match="there is no topic"):
        topic.register(spark, DRIVER, NOON)
    broker.make_topic(run.name)
    broker.produce(run.name, *map(str, range(100, 130)))  # more than the old one had
    with pytest.raises(Refused, match="deleted and made again: what its partition 0 held from offset 20 on"):
        topic.register(spark, DRIVER, NOON)
    assert skipping.register(spark, DRIVER, NOON) == 2
    assert topic.register(spark, DRIVER, NOON) == 0
    again = run.batches(topic)[2]
    [told] = (run.read(again) - values(*range(100, 130))).elements()
    assert "was deleted and made again" in str(told[1])
    places = {one.place for one in again.ranges}
    assert all(place.startswith(f"{run.name}/0@") for place in places), "no id of the old topic"


def test_change_to_read_committed_waits_for_an_open_transaction(
    spark: Any, broker: Broker, made: Callable[..., Run]
) -> None:
    """Its messages were read before the change, and the broker has them: nothing is lost or read twice."""
    run = made()
    producer = broker.producer(transactional_id=run.name)
    producer.init_transactions(PATIENCE)
    broker.produce(run.name, "a")
    producer.begin_transaction()
    producer.produce(run.name, "b", partition=0)
    assert producer.flush(PATIENCE) == 0
    assert run.topic(isolation="read_uncommitted").register(spark, DRIVER, NOON) == 1
    topic = run.topic()

    assert not topic.waits()
    assert topic.register(spark, DRIVER, NOON) == 0
    producer.commit_transaction(PATIENCE)
    broker.produce(run.name, "c")
    assert topic.register(spark, DRIVER, NOON) == 1
    assert run.read(run.batches(topic)[1]) == values("c")


def test_transactions_keys_and_headers(spark: Any, broker: Broker, made: Callable[..., Run]) -> None:
    """Aborted messages are not read and not counted, an open transaction holds what is behind it; the last header
    counts."""
    run = made()
    producer = broker.producer(transactional_id=run.name)
    producer.init_transactions(30)
    for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(run.name, value)
        producer.flush(30)
        end(30)
    headers = [("shop", b"x"), ("shop", b"last")]
    broker.produce(run.name, "{}\r\n", key=b"k1", headers=headers)
    broker.produce(run.name, None, key=b"k2")
    broker.produce(run.name, "bad", key=b"\xff")
    producer.begin_transaction()
    producer.produce(run.name, "open")
    producer.flush(30)
    broker.produce(run.name, "behind")
    topic = run.topic(key="id", headers=("shop",))

    topic.register(spark, DRIVER, NOON)
    [batch] = run.batches(topic)
    lines, must = batch.lines({})
    assert lines.rows is not None
    rows = {(row.oo_line, row.oo_refused, row.oo_beside_id, row.oo_beside_shop) for row in lines.rows.collect()}
    assert rows == {
        ("committed", None, None, None), ("{}", None, "k1", "last"),
        ("", "the message has no value (a tombstone)", "k2", None),
        ("bad", "the message's key (column id) is no text that can be stored", "\ufffd", None),
    }  # fmt: skip
    assert must(4) == 4
    producer.commit_transaction(30)
    topic.register(spark, DRIVER, NOON)
    assert run.read(run.batches(topic)[1]) == values("open", "behind")


@pytest.mark.slow
def test_message_compacted_after_it_was_read_is_no_loss(spark: Any, broker: Broker, made: Callable[..., Run]) -> None:
    """Between the reading of a batch and its count; a message without a fate still shows, and so does a loss in a topic
    that is not compacted."""
    run = made(**CLEANABLE)
    producer = broker.producer(transactional_id=run.name)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(run.name, "aborted")
    producer.flush(30)
    producer.abort_transaction(30)
    for number in range(3):
        broker.produce(run.name, f'{{"id":"{number}"}}', key=b"same")
    topic = run.topic()
    topic.register(spark, DRIVER, NOON)
    [batch] = run.batches(topic)
    lines, must = batch.lines({})
    assert (lines.shrinks(), must(3), must(4)) == (False, 3, 3)

    broker.compact(run.name)

    there = len(broker.read(run.name, 1))
    assert there < 3
    assert (lines.shrinks(), must(3), must(there - 1)) == (True, 3, there)


def test_a_range_of_times_is_resolved_once(spark: Any, broker: Broker, made: Callable[..., Run]) -> None:
    """By the messages' own times; a second look adds nothing, and one for another range is refused.

    So is a start in time.
    """
    run = made(partitions=2)
    for minute in range(30):
        stamp = int((NOON + timedelta(minutes=minute)).timestamp() * 1000)
        broker.produce(run.name, str(minute), partition=minute % 2, timestamp=stamp)
    bounds = Bounds(NOON + timedelta(minutes=10), NOON + timedelta(minutes=20))
    run.instance = "shop@1"
    bounded = run.topic(bounds, max_offsets_a_batch=5)

    bounded.register(spark, DRIVER, NOON)
    broker.produce(run.name, "late", timestamp=int((NOON + timedelta(minutes=15)).timestamp() * 1000))
    assert bounded.register(spark, DRIVER, NOON) == 0
    with pytest.raises(Refused, match="is not finished"):
        run.topic(Bounds()).register(spark, DRIVER, NOON)
    batches = run.batches(bounded)
    assert len(batches) == 2
    assert sum((run.read(one) for one in batches), Counter()) == values(*range(10, 20))

    run.instance = "shop"
    started = run.topic(start=NOON + timedelta(minutes=20))
    assert started.register(spark, DRIVER, NOON) == 2
    assert run.topic().register(spark, DRIVER, NOON) == 0, "the start is stored"
    assert run.read(run.batches(started)[0]) == values(*range(20, 30), "late")
