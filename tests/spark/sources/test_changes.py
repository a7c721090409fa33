"""Changes of a database by Debezium's envelope, from a real broker: each is a row and what happened to it, and the
table is what the source has."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from onlyonce import Avro, Debezium, settings
from onlyonce.api.messages import PLACEHOLDER
from onlyonce.sources import schema_registry as asking
from onlyonce.sources.source_kafka import Topic
from tests.spark.sources.test_kafka import failing
from tests.spark.sources.test_kafka_source import DRIVER, NOON, Run
from tests.support import changes_of_a_table as source
from tests.support import debezium_messages as messages
from tests.support import framed_messages, schema_registry
from tests.support.broker import Broker
from tests.support.changes_of_a_table import Change
from tests.support.customers import CUSTOMERS
from tests.support.debezium_messages import ENVELOPE, envelope, envelope_of, text
from tests.support.framed_messages import SALE, avro, framed
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

AT = datetime.fromtimestamp(messages.NOON / 1000, UTC)
PG = {"connector": "postgresql", "lsn": 24023128}
ROW = '{"key": "a", "value": 1, "price": 0.12345678901234567890, "note": "\\u00e9 \\"x\\""}'
READ = '{"key":"a","value":1,"price":0.12345678901234567890,"note":"é \\"x\\""}'
LSN = "00000000000024023128"
MYSQL = "0000000007" + "0" * 17 + "154" + "0000000002"
POINTS = {1: ("delta-after-deletes", "postgres-after-units")}
MORE = (
    "receive-after-begin",
    "receive-after-delta",
    "postgres-before-units",
    "delta-after-deletes",
    "postgres-after-units",
    "delta-before-deletes",
)


def exact(op: str, before: Any = None, after: Any = "ROW", **more: Any) -> str:
    """An envelope whose row is ROW, with a number that a double has not."""
    return text(envelope(op, before, after, PG | more)).replace('"ROW"', ROW)


CASES: list[tuple[bytes | str, str | None, str, tuple[str, str] | None]] = [
    (exact("c"), READ, "", ("c", f"{LSN}1")),
    (exact("r", snapshot="first"), READ, "", ("r", f"{LSN}0")),
    (exact("d", "ROW", None), READ, "", ("d", f"{LSN}1")),
    (text(envelope("u", {"key": "x"}, {"key": "a"}, PG), schema=True), '{"key":"a"}', "", ("u", f"{LSN}1")),
    (exact("u", connector="mysql", lsn=None, file="bin.log.000007", pos=154, row=2), READ, "", ("u", f"{MYSQL}1")),
    (exact("c", lsn=None), None, "the change has no place in the log of the database", None),
    (exact("c", connector="mysql", lsn=None, file="binlog", pos=1), None, "source.file is no name of a binlog file", None),
    (exact("c", connector="oracle", scn="1"), None, "the order of changes by this connector is not known: oracle", None),
    (exact("c", connector=None), None, "the order of changes by this connector is not known: null", None),
    (exact("t", None, None), None, "the table was truncated", None),
    (exact("m", None, None), None, "a message in the log of the database", None),
    (exact("x"), None, "the op of the change is not one of c, u, d and r: x", None),
    (exact("d", None, None), None, "the delete does not say which row", None),
    (exact("u", None, None), None, "the change has no row after it", None),
    (exact("u").replace('"a"', f'"{PLACEHOLDER}"'), None, "column key has Debezium's placeholder", None),
    (exact("u", {"key": "b"}).replace('"a"', f'"{PLACEHOLDER}"'), READ.replace('"a"', '"b"'), "", ("u", f"{LSN}1")),
    ('{"key": "a", "value": 1}', None, "the message is no envelope of Debezium", None),
    ('{"schema": {}, "payload": {"key": "a"}}', None, "the message is no envelope of Debezium", None),
    ("no JSON", None, "the message is no envelope of Debezium", None),
    (exact("c").replace("24023128", '"x"'), None, "source.lsn is no whole number of at most 20 digits", None),
    (exact("c").replace("\\u00e9", "\\ud800"), None, "a string has half of a surrogate pair", None),
    (exact("c").encode().replace(b"\\u00e9", b"\xff"), None, "the line is not UTF-8", None),
]  # fmt: skip


COLUMNS: list[dict[str, Any]] = [
    {"name": "key", "type": "string"}, {"name": "value", "type": ["null", "long"], "default": None}, {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "share", "type": ["null", "double"], "default": None},
]  # fmt: skip
KEY: dict[str, Any] = {
    "type": "record",
    "name": "Key",
    "namespace": "customers",
    "fields": [{"name": "key", "type": "string"}],
}
WHOLE = {"key": "a", "value": 2**60, "note": 'é "x"\n', "share": 0.1}
MY = {"connector": "mysql", "file": "bin.log.000007", "pos": 154, "row": 2}
EITHER = [
    envelope("c", None, WHOLE, PG), envelope("r", None, WHOLE, PG), envelope("d", WHOLE, None, PG), envelope("u", None, WHOLE, MY),
    envelope("c", None, WHOLE, PG | {"lsn": None}), envelope("c", None, WHOLE, MY | {"file": "binlog"}), envelope("c", None, WHOLE, PG | {"connector": "oracle"}),
    envelope("c", None, WHOLE, PG | {"connector": None}), envelope("t", None, None, PG), envelope("m", None, None, PG), envelope("x", None, WHOLE, PG),
    envelope("d", None, None, PG), envelope("u", None, None, PG),
]  # fmt: skip
"""Envelopes as both converters can write them."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A registry over HTTP. A follower's lag is short here."""
    monkeypatch.setattr(asking, "LAG_SECONDS", 0.01)
    with schema_registry.running() as running:
        yield running


def read(
    spark: Any,
    broker: Broker,
    folder: Path,
    value: Debezium,
    sent: list[bytes | str],
    key: Avro | None = None,
    of: bytes | None = None,
) -> dict[int, Any]:
    """The lines of a topic by their number; behind each message there is a tombstone. `of`: the key of all messages."""
    run = Run(spark, broker, folder, broker.topic("customers"))
    for one in sent:
        broker.produce(run.name, one, key=of)
        broker.produce(run.name, None, key=of or b"a")
    declared = replace(run.source, value=value, key=key)
    pipeline = replace(
        CUSTOMERS,
        source=declared,
        schema=CUSTOMERS.schema + "".join(f", {name} int" for name in declared.schema_ids.values()),
    )
    topic = Topic(pipeline, declared, "customers", folder / "ranges")
    topic.register(spark, DRIVER, NOON)
    [batch] = run.batches(topic)
    lines, must = batch.lines(batch.unreadable())
    assert lines.rows is not None
    assert lines.rows.schema.names == batch._gives().names or not declared.registered
    rows = {row.oo_position // 2: row for row in lines.rows.collect()}
    assert must(len(rows)) == len(rows) == len(sent)
    return rows


def test_an_envelope_in_avro_gives_what_the_same_in_json_gives(
    spark: Any, broker: Broker, tmp_path: Path, registry: Any
) -> None:
    """The row, what happened, its place and time, or the reason; and the id of its schema.

    What can't be decoded is kept in hexadecimal.
    """
    schema = envelope_of(COLUMNS)
    number, other = registry.put("customers-value", schema), registry.put("sales-value", SALE)
    whole = [avro(schema, one, number) for one in EITHER]
    sale = {"id": "a", "shop": None, "at": 0, "cents": 1, "weight": 1.0}
    bad = {
        avro(
            SALE, sale, other
        ): f"schema {other} of the message's value does not fit the declaration: it is no envelope of Debezium",
        framed(4000, whole[0][5:]): "the message's value has the schema id 4000, which the registry does not know",
        whole[0][:-1]: f"the message's value is not what schema {number} says",
        b"{}": "the message's value does not begin with a zero byte and the id of a schema",
    }
    for name in ("json", "avro"):
        (tmp_path / name).mkdir()
    in_json = read(spark, broker, tmp_path / "json", Debezium(), [text(one) for one in EITHER])
    in_avro = read(spark, broker, tmp_path / "avro", Debezium(format=Avro(registry=registry.url)), [*whole, *bad])

    beside = ("oo_beside_op", "oo_beside_position", "oo_beside_changed_at")
    for at in range(len(EITHER)):
        one, same = in_avro[at], in_json[at]
        assert [one[name] for name in ("oo_refused", *beside)] == [same[name] for name in ("oo_refused", *beside)]
        assert one.oo_beside_schema_id == number
        if same.oo_refused is None:
            assert one.oo_line == same.oo_line
        else:
            assert json.loads(one.oo_line)["op"] == EITHER[at]["op"], "of what is invalid all is kept"
    for at, (value, reason) in enumerate(bad.items(), len(EITHER)):
        assert in_avro[at].oo_refused.startswith(reason)
        assert in_avro[at].oo_line == value.hex().upper()


@pytest.mark.parametrize("form", ["json", pytest.param("avro", marks=pytest.mark.whole)])
def test_the_key_of_a_change_comes_from_the_key_of_its_message(
    spark: Any, broker: Broker, tmp_path: Path, registry: Any, form: str
) -> None:
    """So a delete that does not say its row is one: of the row of the key.

    Other parts of the message are read as without.
    """
    number, schema = registry.put("customers-key", KEY), envelope_of(COLUMNS)
    changes = [
        envelope("c", None, WHOLE, PG),
        envelope("d", None, None, PG),
        envelope("u", None, None, PG),
        envelope("c", None, WHOLE, PG | {"lsn": None}),
    ]
    values: list[bytes | str] = [text(one) for one in changes]
    if form == "avro":
        of = registry.put("customers-value", schema)
        values = [avro(schema, one, of) for one in changes]
    declared = Debezium(format=Avro(registry=registry.url) if form == "avro" else None)
    rows = read(
        spark,
        broker,
        tmp_path,
        declared,
        values,
        Avro(registry=registry.url, columns="key"),
        avro(KEY, {"key": "k"}, number),
    )
    assert [(rows[n].oo_beside_key, rows[n].oo_beside_key_schema_id, rows[n].oo_beside_op) for n in rows] == [
        ("k", number, op) for op in "cduc"
    ]
    assert [rows[n].oo_line for n in (0, 1)] == [json.dumps(WHOLE, ensure_ascii=False, separators=(",", ":")), "{}"]
    assert [(rows[n].oo_refused or "")[:30] for n in rows] == [
        "",
        "",
        "the change has no row after it",
        "the change has no place in the",
    ]


def test_a_change_is_its_row_and_what_happened_to_it(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """With all digits of a number, of both databases, with a schema and without; a tombstone is no record; what has no
    row or no place has its reason."""
    rows = read(spark, broker, tmp_path, Debezium(), [value for value, *_ in CASES])
    for number, (value, line, reason, beside) in enumerate(CASES):
        row = rows[number]
        assert (row.oo_refused or "").startswith(reason)
        assert bool(row.oo_refused) == bool(reason)
        if line is not None:
            assert row.oo_line == line
            assert (row.oo_beside_op, row.oo_beside_position) == beside
            assert row.oo_beside_changed_at.astimezone(UTC) == AT
        elif isinstance(value, str):
            assert row.oo_line == value, "of what is invalid all is kept"


def versions(platform: Platform) -> set[tuple[Any, ...]]:
    """The history, times as milliseconds since noon."""
    found = platform.sql(
        "SELECT key, position, value, extract(epoch FROM valid_from) * 1000, extract(epoch FROM valid_to) * 1000, "
        "is_current FROM results.customers_history"
    )
    return {
        (
            key,
            position,
            value,
            int(since) - messages.NOON,
            None if until is None else int(until) - messages.NOON,
            current,
        )
        for key, position, value, since, until, current in found.astype(object)
        .where(found.notna(), None)
        .itertuples(index=False)
    }


def versions_of(seen: list[Change]) -> set[tuple[Any, ...]]:
    """What it must be."""
    text_of = {(one.key, one.position): messages.position(one) for one in seen}
    return {(key, text_of[key, position], *rest) for key, position, *rest in source.history(seen)}


@pytest.mark.parametrize(
    ("seed", "form"),
    [
        (1, "json"),
        *(pytest.param(seed, form, marks=pytest.mark.slow) for seed, form in ((2, "json"), (3, "avro"), (4, "avro"))),
    ],
)
def test_a_table_by_a_topic_of_changes_is_what_the_source_has(
    new_platform: Callable[..., Platform],
    spark: object,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    registry: Any,
    seed: int,
    form: str,
) -> None:
    """A snapshot and the changes after it are one stream: delivered again, out of order, cut in batches, with a failure
    at each step; duplicates are told."""
    chance = random.Random(seed)
    platform = new_platform("tests/support/customers.py")
    topic = broker.topic("customers", partitions=2)
    if form == "avro":
        platform.give(monkeypatch, CUSTOMERS_REGISTRY=registry.url)
    serializers = framed_messages.Serializers(registry.url, topic)
    platform.give(monkeypatch, CUSTOMERS_TOPIC=topic, CUSTOMERS_SERVERS=broker.servers)
    changes = source.made(chance, keys=9, changes=70)
    delivered = source.delivered(chance, changes)
    make = messages.of_postgres if seed % 2 else messages.of_mysql
    client = broker.producer()
    seen: list[Change] = []
    points = POINTS.get(seed, MORE)
    for number, part in enumerate((delivered[:50], delivered[50:])):
        for change in part:
            value = (
                serializers.avro(ENVELOPE, make(change))
                if form == "avro"
                else text(make(change), schema=chance.random() < 0.3)
            )
            client.produce(topic, value, partition=change.value % 2)
            if change.deleted:
                client.produce(topic, None, change.key, partition=0)
        assert client.flush(60) == 0
        for point in points[number::2]:
            (tmp_path / point).mkdir()
            with failing(monkeypatch, tmp_path / point, point):
                platform.run("customers")
        platform.run("customers")
        seen += part
        there = platform.sql("SELECT key, value, position FROM results.customers")
        in_lake = DeltaTable(str(settings.tables_dir() / "customers")).to_pyarrow_table().to_pylist()
        assert sorted((row["key"], row["value"], row["position"]) for row in in_lake) == sorted(
            zip(there.key, there.value, there.position, strict=True)
        )
        wanted = source.newest(seen)
        assert {(row.key, row.value) for row in there.itertuples()} == {
            (key, value) for key, _, value in source.table(seen)
        }
        assert len(there) == len(source.table(seen))
        if make is messages.of_postgres:
            assert versions(platform) == versions_of(seen)
            assert {(row.key, row.position) for row in there.itertuples()} == {
                (one.key, messages.position(one)) for one in wanted.values() if not one.deleted
            }
    fates = platform.sql(
        "SELECT sum(kept)::int, sum(duplicate)::int, bool_and(conserved) FROM onlyonce.conservation WHERE query = "
        "'receive'"
    )
    assert [*fates.iloc[0]] == [len(changes), len(delivered) - len(changes), True]
    deleted = platform.sql("SELECT key FROM results.customers_deleted")
    assert {*deleted.key} == {one.key for one in source.newest(changes).values() if one.deleted}
