"""A topic whose messages are in a format that a schema registry knows: on a real broker, with the ecosystem's own
serializers."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.messages import Avro
from onlyonce.core.errors import Refused, Retryable
from onlyonce.database.connect import Database
from onlyonce.records import trace as tracing
from onlyonce.sources import schema_registry as asking
from onlyonce.sources.record_id import asked
from onlyonce.sources.source_kafka import Ranges, Topic
from tests.spark.sources.test_kafka import failing
from tests.spark.sources.test_kafka_source import DRIVER, NOON, Run
from tests.support import framed_messages as messages
from tests.support import schema_registry, shop_oracle
from tests.support.broker import Broker
from tests.support.check_shop import check_events, check_outputs
from tests.support.framed_messages import GROWN, KEY, SALE, avro, framed
from tests.support.platform import Platform
from tests.support.schema_registry import Registry
from tests.support.shop import SHOP
from tests.support.topics import Shop

pytestmark = pytest.mark.spark

PIPELINES = "tests/support/topic_formats.py"
POINTS = (
    "receive-registered", "receive-before-begin", "receive-after-begin", "receive-after-delta", "receive-before-end", "receive-after-end",
)  # fmt: skip
UNKNOWN = 4000


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry over HTTP. A follower's lag, and a client's patience, are short here."""
    monkeypatch.setattr(asking, "LAG_SECONDS", 0.01)
    monkeypatch.setattr(asking, "TRIES", 1)
    with schema_registry.running() as running:
        yield running


class Producer:
    """Sends sales of the oracle in a format, by one schema or the one that grew, and notes what has been sent."""

    def __init__(self, shop: Shop, registry: Registry, form: str, chance: random.Random) -> None:
        self.shop, self.form, self.chance = shop, form, chance
        self.write = messages.Serializers(registry.url, shop.topic)
        self.client = shop.broker.producer(linger_ms=5, enable_idempotence=True)
        self.reasons: Counter[str] = Counter()
        self.ids: Counter[tuple[str, int]] = Counter()

    def send(self, sales: list[dict[str, Any]]) -> None:
        """To either partition, some damaged ones among them."""
        for sale in sales:
            value, key = self._value(sale), None
            if self.form != "protobuf":
                key = self.write.avro(KEY, {"id": sale["id"]}, "key")
            self._put(value, key, sale)
            if self.chance.random() < 0.1:
                self._damaged(value, key)
        assert self.client.flush(60) == 0

    def _value(self, sale: dict[str, Any]) -> bytes:
        if self.form == "json":
            return self.write.json(sale | {"id": "stolen"})
        if self.form == "protobuf":
            return self.write.protobuf(sale | {"at": round(datetime.fromisoformat(sale["at"]).timestamp() * 1000)})
        typed = sale | {"at": datetime.fromisoformat(sale["at"]), "clerk": "c", "id": "stolen"}
        return self.write.avro(self.chance.choice([SALE, GROWN]), typed)

    def _damaged(self, value: bytes, key: bytes | None) -> None:
        number = int.from_bytes(value[1:5], "big")
        schema = {"json": f"the message's value by schema {number}: "}.get(
            self.form, f"the message's value is not what schema {number} says"
        )
        body = b'{"id":"a","cents":-1}' if self.form == "json" else value[5:-1]
        self._put(*self.chance.choice([
            (framed(number, body), key, None, schema),
            (b"no frame", key, None, "the message's value does not begin with a zero byte and the id of a schema"),
            (framed(UNKNOWN, value[5:]), key, None, f"the message's value has the schema id {UNKNOWN}, which the registry does not know"),
            (None, key, None, "the message has no value (a tombstone)"),
        ]))  # fmt: skip

    def _put(self, value: bytes | None, key: bytes | None, sale: dict[str, Any] | None, reason: str = "") -> None:
        def told(error: Any, message: Any) -> None:
            assert error is None, error
            self.shop.put[message.partition(), message.offset()] = sale

        self.client.produce(self.shop.topic, value, key, partition=self.chance.randrange(2), on_delivery=told)
        if reason:
            self.reasons[reason] += 1
        elif sale is not None:
            assert value is not None
            self.ids[sale["id"], int.from_bytes(value[1:5], "big")] += 1


def test_what_a_batch_did_not_find_it_does_not_find_again(
    spark: object, broker: Broker, tmp_path: Path, registry: Registry
) -> None:
    """A replay decides as the batch began, though the registry has the id by now; a later batch finds it.

    A schema that is gone since is waited for. A message that is too large, or whose key is not what its schema says, is
    told."""
    run = Run(spark, broker, tmp_path, broker.topic("shop"))
    known = registry.put("shop-value", SALE)
    sale = {"id": "a", "shop": None, "at": 0, "cents": 1, "weight": 1.0}
    declared = Avro(registry=registry.url)
    key_by = Avro(registry=registry.url, columns=("id",))
    source = replace(run.source, value=declared, key=key_by, max_record_bytes=200)
    pipeline = replace(SHOP, schema=f"{SHOP.schema}, schema_id int, key_schema_id int", source=source)
    topic = Topic(pipeline, source, "shop", tmp_path / "ranges")
    key = avro(KEY, {"id": "k"}, registry.put("shop-key", KEY))
    broker.produce(run.name, avro(SALE, sale, known), avro(SALE, sale, 7), key=key)
    broker.produce(run.name, avro(SALE, sale | {"shop": "x" * 200}, known), avro(SALE, sale, known), key=b"k")
    topic.register(spark, DRIVER, NOON)
    [batch] = run.batches(topic)
    facts = batch.unreadable()

    def rows(one: Ranges) -> list[tuple[Any, ...]]:
        lines = one.lines(facts)[0].rows
        assert lines is not None
        return [
            (row.id, row.cents, row.schema_id, row.key_schema_id, row.oo_refused)
            for row in lines.sort("oo_position").collect()
        ]

    wanted = [
        ("k", 1, known, 2, None), ("k", None, 7, 2, "the message's value has the schema id 7, which the registry does not know"),
        (None, None, None, None, f"the message of {run.name}/0 at offset 2 has 221 bytes, and max_record_bytes is 200; kept is how it " "begins"),
        (None, 1, known, None, "the message's key does not begin with a zero byte and the id of a schema"),
    ]  # fmt: skip
    assert rows(batch) == wanted
    registry.schemas[7] = registry.schemas[known]
    [again] = run.batches(topic)
    assert rows(again) == wanted
    facts = {}
    assert rows(again)[1] == ("k", 1, 7, 2, None)
    del registry.schemas[7]
    asking._client.cache_clear()
    with pytest.raises(Refused, match="the registry has no schema 7 any more"):
        rows(again)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("form", "killed"),
    [("avro", False), *(pytest.param(form, killed, marks=SLOW) for form, killed in (("protobuf", False), ("json", False), ("avro", True), ("protobuf", True), ("json", True)))],
)  # fmt: skip
def test_results_are_those_of_a_batch_whatever_failed(
    new_platform: Callable[..., Platform], spark: object, broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, registry: Registry, form: str, killed: bool,
) -> None:  # fmt: skip
    """Sales by two schemas with re-deliveries and damaged messages, over two partitions; failures or kills at steps at
    random, and a registry that is away: each message has one fate, and the outputs are the batch over the sales."""
    chance = random.Random(f"{form} {killed}")
    platform = new_platform(PIPELINES)
    shop = Shop(broker, broker.topic("shop", partitions=2))
    shop.name(platform, monkeypatch, SHOP_OFFSETS="90", SHOP_FORMAT=form, SHOP_REGISTRY=registry.url)
    producer = Producer(shop, registry, form, chance)
    first, second = shop_oracle.sales(240, 2, duplicates=0.2)
    producer.send(first)

    registry.always = (503, '{"error_code": 50301, "message": "away"}')
    with pytest.raises(Retryable, match="does not answer"):
        platform.run("shop")
    registry.always = None
    for at, point in enumerate(chance.sample(POINTS, 2)):
        if killed:
            code, output = platform.run_killed(point, "shop")
            assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
            continue
        with failing(monkeypatch, tmp_path / str(at), point):
            platform.run("shop")
    producer.send(second)
    platform.run("shop", "--close")

    events = platform.events()
    kept, invalid = (events[events.oo_kind == kind] for kind in ("kept", "invalid"))
    batches = [[one for one in batch if isinstance(one, dict)] for batch in shop.batches(platform)]
    records = shop_oracle.distinct(batches)
    check_events(platform, batches, records, "shop")
    check_outputs(platform, records[~records["late"]])
    assert {(row.id, int(row.schema_id)) for row in kept.itertuples()} <= set(producer.ids)
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]
    found = Counter(
        next((known for known in producer.reasons if reason.startswith(known)), reason) for reason in invalid.oo_reason
    )
    assert found == producer.reasons
    raw = set(invalid[invalid.oo_reason.str.contains("does not begin with")].oo_raw)
    assert raw <= {b"no frame".hex().upper()}
    if form == "json":
        assert {'{"id":"a","cents":-1}'} >= set(invalid[invalid.oo_reason.str.contains("by schema")].oo_raw), (
            "JSON stays readable"
        )
    if form == "avro":
        assert set(kept[kept.oo_unknown.notna()].oo_unknown) == {"clerk"}
        assert len(set(kept.key_schema_id)) == 1
        known = kept.iloc[0]
        pipeline = declarations.load()["shop"]
        told, _ = tracing.trace(Database(settings.database_url()), pipeline, "shop", asked(pipeline, [known.id]))
        assert str(int(known.schema_id)) in str(told)
