"""A topic of a real Kafka as the source: each message has one fate, and nothing is lost without a word."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onlyonce import failpoints, settings
from onlyonce.api import load as declarations
from onlyonce.core.errors import Refused
from onlyonce.database.connect import Database
from onlyonce.receive import batch_files
from onlyonce.records import trace as tracing
from onlyonce.sources.record_id import asked
from tests.support import shop_oracle
from tests.support.broker import CLEANABLE, PATIENCE, Broker
from tests.support.check_shop import check
from tests.support.platform import Platform, multiset
from tests.support.topics import Shop, ids

pytestmark = pytest.mark.spark

SHOP = "tests/support/topic_shop.py"


def sale(number: int, **more: Any) -> dict[str, Any]:
    """One sale, of the first minute."""
    return {"id": f"n{number}", "shop": "a", "at": "2026-01-01T00:00:10Z", "cents": number, "weight": 1.0} | more


@contextmanager
def failing(patch: pytest.MonkeyPatch, folder: Path, point: str) -> Iterator[None]:
    """The driver fails at a fail-point, once."""
    with patch.context() as inner:
        inner.setattr(failpoints, "_POINTS", {point: (1, "raise")})
        inner.setenv("ONLYONCE_FAILPOINT_DIR", str(folder))
        with pytest.raises(Exception, match=point):
            yield


def test_each_message_is_a_record_by_its_offset(
    new_platform: Callable[..., Platform], spark: object, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches over two partitions, transactions, a tombstone, what is no record, an added partition: each message has
    one fate and is known by its place; aborted ones have none; a bounded run by time reads its range and no more, also
    again."""
    platform = new_platform(SHOP)
    shop = Shop(broker, broker.topic("shop", partitions=2))
    shop.name(platform, monkeypatch, SHOP_BY="place")
    [sales] = shop_oracle.sales(230, 1, duplicates=0.1)
    shop.send_sales(sales[:200], 2)
    bad = [None, b"no record", b"\xff\xfe", b'{"a":1}{"b":2}']
    shop.send(1, *bad)
    shop.send(0, (json.dumps(sale(1), indent=1) + "\r\n").encode())
    producer = broker.producer(transactional_id=shop.topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    shop.add(producer, 0, sale(2))
    producer.abort_transaction(30)
    producer.begin_transaction()
    committed = shop.add(producer, 0, sale(3))
    producer.commit_transaction(30)
    shop.put |= committed

    platform.run("shop")
    producer.begin_transaction()
    unsure = shop.add(producer, 1, sale(4))
    behind = shop.send(1, sale(5), keep=False)  # behind an open transaction: not to be read before its end
    platform.run("shop")
    assert ids(platform) == shop.ids()
    producer.commit_transaction(30)
    shop.put |= unsure | behind
    broker.add_partitions(shop.topic, 3)
    shop.send(2, *sales[200:])
    platform.run("shop", "--close")

    assert ids(platform) == shop.ids(), f"lost {shop.ids() - ids(platform)}, more {ids(platform) - shop.ids()}"
    events = platform.events()
    reasons = events[events.oo_kind == "invalid"].oo_reason
    assert Counter(re.split("[:;]| \\(", reason)[0] for reason in reasons) == {
        "the message has no value": 1, "the line is no JSON object of the declared types": 1,
        "the line is not UTF-8": 1, "there is more on the line than one JSON object": 1,
    }  # fmt: skip
    batches = shop.batches(platform)
    assert sum(map(len, batches)) == len(shop.put)
    assert len(batches) > 3
    kept = [[one for one in batch if isinstance(one, dict)] for batch in batches]
    kept = [
        [*batch, *([sale(1)] if any(isinstance(one, bytes) and b"n1" in one for one in raw) else [])]
        for batch, raw in zip(kept, batches, strict=True)
    ]
    records = shop_oracle.every(kept)
    assert multiset(records, "id", "shop", "cents") == multiset(events[events.oo_kind == "kept"], "id", "shop", "cents")
    log = platform.sql("SELECT * FROM onlyonce.conservation WHERE instance = 'shop'")
    assert log["conserved"].all()
    pipeline = declarations.load()["shop"]
    found, _ = tracing.trace(Database(settings.database_url()), pipeline, "shop", asked(pipeline, ["2", "7"]))
    assert found.tables["fates"][0]["fate"] == "kept"


@pytest.mark.slow
def test_a_start_in_time_and_a_bounded_range_are_resolved_once(
    new_platform: Callable[..., Platform],
    spark: object,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A bounded run by message times reads these messages, and its retry the same, though others of that time have
    come."""
    platform = new_platform(SHOP)
    shop = Shop(broker, broker.topic("shop", partitions=2))
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    shop.name(platform, monkeypatch, SHOP_BY="place", SHOP_START=(begin + timedelta(minutes=20)).isoformat())
    for minute in range(30):
        stamp = int((begin + timedelta(minutes=minute)).timestamp() * 1000)
        shop.send(minute % 2, sale(minute), timestamp=stamp)
    bounded = ["shop", "--bounded", "--from", "2026-01-01T00:10:00Z", "--to", "2026-01-01T00:20:00Z"]

    with failing(monkeypatch, tmp_path, "receive-before-begin"):
        platform.run(*bounded)
    shop.send(0, sale(100), timestamp=int((begin + timedelta(minutes=15)).timestamp() * 1000))
    with pytest.raises(Refused, match="is not finished"):
        platform.run("shop", "--bounded")
    platform.run(*bounded)
    platform.run("shop")

    kept = platform.events("shop@1")
    assert Counter(kept[kept.oo_kind == "kept"].cents) == Counter(range(10, 20))
    kept = platform.events("shop")
    assert Counter(kept[kept.oo_kind == "kept"].cents) == Counter([*range(20, 30), 100])


def test_batch_goes_on_after_one_of_its_messages_was_compacted(
    new_platform: Callable[..., Platform], spark: object, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units of it are committed and hold the message: they are withdrawn, and what is in the topic now is kept once."""
    platform = new_platform(SHOP)
    shop = Shop(broker, broker.topic("shop", **CLEANABLE))
    shop.name(platform, monkeypatch, SHOP_BY="id", SHOP_OFFSETS="100")
    for number in range(4):
        shop.send(0, sale(number), key=f"k{number % 2}")

    write = batch_files._made

    def interrupted(*given: Any) -> None:
        write(*given)
        raise RuntimeError("after the units")

    with monkeypatch.context() as patch:
        patch.setattr(batch_files, "_made", interrupted)
        with pytest.raises(Exception, match="after the units"):
            platform.run("shop")
    first = platform.sql("SELECT count(*) AS n FROM onlyonce_private.units WHERE sink = 'events'")["n"][0]
    broker.compact(shop.topic)
    there = {json.loads(one.value())["id"] for one in broker.read(shop.topic, 1)}
    platform.run("shop", "--close")

    assert first >= 1
    kept = platform.events()
    assert Counter(kept[kept.oo_kind == "kept"].id) == Counter(there)
    assert len(there) < 4
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]


@pytest.mark.slow
def test_lost_messages_are_told_and_never_skipped_in_silence(
    new_platform: Callable[..., Platform],
    spark: object,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Retention before a look, retention after it, and a topic made again: a run is refused and names the offsets; told
    to skip, each lost range is one invalid record, and what is there is kept once."""
    platform = new_platform(SHOP)
    shop = Shop(broker, broker.topic("shop", partitions=1))
    shop.name(platform, monkeypatch, SHOP_BY="place")
    shop.send(0, *map(sale, range(10)))
    platform.run("shop")
    shop.send(0, *map(sale, range(10, 20)))
    broker.delete_before(shop.topic, 0, 15)

    with pytest.raises(Refused, match=f"offsets 10 to 14 of {shop.topic}/0 were deleted"):
        platform.run("shop")
    assert ids(platform) == Counter(list(shop.ids())[:10])
    monkeypatch.setenv("SHOP_ON_LOSS", "skip")
    platform.run("shop")

    monkeypatch.setenv("SHOP_ON_LOSS", "stop")
    shop.send(0, *map(sale, range(20, 30)))
    with failing(monkeypatch, tmp_path, "receive-registered"):
        platform.run("shop")
    broker.delete_before(shop.topic, 0, 25)
    with pytest.raises(Refused, match=f"offsets 20 to 24 of {shop.topic}/0 were deleted"):
        platform.run("shop")
    monkeypatch.setenv("SHOP_ON_LOSS", "skip")
    platform.run("shop")

    monkeypatch.setenv("SHOP_ON_LOSS", "stop")
    broker.delete_topic(shop.topic)
    with pytest.raises(Refused, match="there is no topic"):
        platform.run("shop")
    broker.make_topic(shop.topic)
    shop.send(0, *map(sale, range(30, 70)), keep=False)  # more than the old one had
    with pytest.raises(Refused, match="was deleted and made again: what its partition 0 held from offset 30 on"):
        platform.run("shop")
    monkeypatch.setenv("SHOP_ON_LOSS", "skip")
    platform.run("shop", "--close")
    monkeypatch.setenv("SHOP_ON_LOSS", "stop")
    platform.run("shop")

    events = platform.events()
    kept = events[events.oo_kind == "kept"]
    assert Counter(kept.cents) == Counter([*range(10), *range(15, 20), *range(25, 70)])
    assert len(set(zip(kept.oo_high, kept.oo_low, strict=True))) == len(kept)
    assert sorted(events[events.oo_kind == "invalid"].oo_reason) == [
        f"offsets 10 to 14 of {shop.topic}/0 were deleted by the broker before they were read",
        f"offsets 20 to 24 of {shop.topic}/0 were deleted by the broker before they were read",
        f"topic {shop.topic} was deleted and made again: what its partition 0 held from offset 30 on was not read",
    ]
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]


@pytest.mark.slow
def test_a_producer_that_sends_twice_is_recognised(
    new_platform: Callable[..., Platform], spark: object, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the message's key, with a column from a header: a message sent again is a duplicate, one without key is
    invalid, and a value's own field of that name gives no record another id."""
    platform = new_platform(SHOP)
    shop = Shop(broker, broker.topic("shop", partitions=3))
    shop.name(platform, monkeypatch, SHOP_BY="key", SHOP_OFFSETS="40")
    for number in range(30):
        for copy in range(2):
            value = sale(number, id="stolen", shop="stolen")
            shop.send((number + copy) % 3, value, key=f"k{number}", headers=[("shop", b"x"), ("shop", b"from-header")])
    shop.send(0, sale(99))
    shop.send(0, sale(98), key=b"\xff")

    platform.run("shop", "--close")

    events = platform.events()
    kept = events[events.oo_kind == "kept"]
    assert multiset(kept, "id", "shop", "cents") == Counter({(f"k{n}", "from-header", n): 1 for n in range(30)})
    assert sorted(events[events.oo_kind == "invalid"].oo_reason) == [
        "the message's key (column id) is no text that can be stored", "the record id column id is missing or null",
    ]  # fmt: skip
    fates = platform.sql("SELECT sum(kept), sum(invalid), sum(duplicate) FROM onlyonce.batches WHERE query = 'receive'")
    assert [int(n) for n in fates.iloc[0]] == [30, 2, 30]


@pytest.mark.slow
def test_by_a_column_the_results_are_those_of_files(
    new_platform: Callable[..., Platform], spark: object, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sales with re-deliveries and late ones over four partitions: events, outputs and the log are what the oracle
    says."""
    platform = new_platform(SHOP)
    shop = Shop(broker, broker.topic("shop", partitions=4))
    shop.name(platform, monkeypatch, SHOP_OFFSETS="150")
    first, second = shop_oracle.sales(400, 2, duplicates=0.2)
    shop.send_sales(first, 4)
    platform.run("shop")
    shop.send_sales(second, 4)
    platform.run("shop", "--close")

    check(platform, shop.batches(platform))


def committed_to_group(broker: Broker, group: str) -> dict[int, int]:
    """The offsets of a consumer group by partition, as Kafka's own tools show them."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    found = broker.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(PATIENCE)
    return {place.partition: place.offset for place in found.topic_partitions}


def test_offsets_are_committed_to_declared_group(
    new_platform: Callable[..., Platform], spark: object, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each committed batch of the stream, and not by a bounded run, which reads all of it again."""
    platform = new_platform(SHOP)
    shop = Shop(broker, broker.topic("shop", partitions=2))
    group = shop.topic
    shop.name(platform, monkeypatch, SHOP_BY="place", SHOP_GROUP=group)
    assert committed_to_group(broker, group) == {}  # this makes the broker's own topic of groups, which takes seconds
    shop.send(0, *(sale(number) for number in range(5)))
    shop.send(1, *(sale(number) for number in range(5, 8)))

    platform.run("shop")
    first = committed_to_group(broker, group)
    shop.send(1, sale(8))
    platform.run("shop", "--bounded")
    bounded = committed_to_group(broker, group)
    platform.run("shop")

    assert first == bounded == {0: 5, 1: 3}
    assert committed_to_group(broker, group) == {0: 5, 1: 4}
