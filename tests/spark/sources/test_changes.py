"""Changes of a database by Debezium's envelope, from a real broker: each is a row and what happened to it, and the table is what the source has."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onlyonce import Debezium
from onlyonce.sources.kafka.source_kafka import Topic
from tests.spark.sources.test_kafka import failing
from tests.spark.sources.test_kafka_source import DRIVER, NOON, Run
from tests.support import changes_of_a_table as source
from tests.support import debezium_messages as messages
from tests.support.broker import Broker
from tests.support.changes_of_a_table import Change
from tests.support.customers import CUSTOMERS
from tests.support.debezium_messages import envelope, text
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

AT = datetime.fromtimestamp(messages.NOON / 1000, UTC)
PG = {"connector": "postgresql", "lsn": 24023128}
ROW = '{"key": "a", "value": 1, "price": 0.12345678901234567890, "note": "\\u00e9 \\"x\\""}'
READ = '{"key":"a","note":"é \\"x\\"","price":0.1234567890123456789,"value":1}'
LSN = "00000000000024023128"
MYSQL = "0000000007" + "0" * 17 + "154" + "0000000002"
POINTS = {1: ("receive-after-delta", "postgres-after-units")}
MORE = ("receive-after-begin", "receive-after-delta", "postgres-before-units", "postgres-after-units")


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
    (exact("c", connector="mysql", lsn=None, file="binlog", pos=1), None, "the change has no place in the log of the database", None),
    (exact("c", connector="oracle", scn="1"), None, "the order of changes by this connector is not known: oracle", None),
    (exact("c", connector=None), None, "the order of changes by this connector is not known: null", None),
    (exact("t", None, None), None, "the table was truncated", None),
    (exact("m", None, None), None, "a message in the log of the database", None),
    (exact("x"), None, "the op of the change is not one of c, u, d and r: x", None),
    (exact("d", None, None), None, "the delete does not say which row", None),
    (exact("u", None, None), None, "the change has no row after it", None),
    ('{"key": "a", "value": 1}', None, "the message is no envelope of Debezium", None),
    ('{"schema": {}, "payload": {"key": "a"}}', None, "the message is no envelope of Debezium", None),
    ("no JSON", None, "the message is no envelope of Debezium", None),
    (exact("c").replace("24023128", '"x"'), None, "the change has no place in the log of the database", None),
    (exact("c").replace("\\u00e9", "\\ud800"), None, "the message is no envelope of Debezium", None),
    (exact("c").encode().replace(b"\\u00e9", b"\xff"), None, "the message is not UTF-8", None),
]  # fmt: skip


def test_a_change_is_its_row_and_what_happened_to_it(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """With all digits of a number, of both databases, with a schema and without; a tombstone is no record; what has no row or no place has its reason."""
    run = Run(spark, broker, tmp_path, broker.topic("customers"))
    for value, *_ in CASES:
        broker.produce(run.name, value)
        broker.produce(run.name, None, key=b"a")
    declared = replace(run.source, value=Debezium())
    topic = Topic(replace(CUSTOMERS, source=declared), declared, "customers", tmp_path / "ranges")
    topic.register(spark, DRIVER, NOON)
    [batch] = run.batches(topic)

    lines, must = batch.lines({})
    assert lines.rows is not None
    rows = {row.oo_position // 2: row for row in lines.rows.collect()}
    assert must(len(rows)) == len(rows) == len(CASES)
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
        "SELECT key, position, value, extract(epoch FROM valid_from) * 1000, extract(epoch FROM valid_to) * 1000, is_current FROM results.customers_history"
    )
    return {
        (key, position, value, int(since) - messages.NOON, None if until is None else int(until) - messages.NOON, current)
        for key, position, value, since, until, current in found.astype(object).where(found.notna(), None).itertuples(index=False)
    }


def versions_of(seen: list[Change]) -> set[tuple[Any, ...]]:
    """What it must be."""
    text_of = {(one.key, one.position): messages.position(one) for one in seen}
    return {(key, text_of[key, position], *rest) for key, position, *rest in source.history(seen)}


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
def test_a_table_by_a_topic_of_changes_is_what_the_source_has(
    new_platform: Callable[..., Platform], spark: object, broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    """A snapshot and the changes after it are one stream: delivered again, out of order, cut in batches, with a failure at each step; duplicates are told."""
    chance = random.Random(seed)
    platform = new_platform("tests/support/customers.py")
    topic = broker.topic("customers", partitions=2)
    platform.give(monkeypatch, CUSTOMERS_TOPIC=topic, CUSTOMERS_SERVERS=broker.servers)
    changes = source.made(chance, keys=9, changes=70)
    delivered = source.delivered(chance, changes)
    make = messages.of_postgres if seed % 2 else messages.of_mysql
    client = broker.producer()
    seen: list[Change] = []
    points = POINTS.get(seed, MORE)
    for number, part in enumerate((delivered[:50], delivered[50:])):
        for change in part:
            client.produce(topic, text(make(change), schema=chance.random() < 0.3), partition=change.value % 2)
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
        wanted = source.newest(seen)
        assert {(row.key, row.value) for row in there.itertuples()} == {(key, value) for key, _, value in source.table(seen)}
        assert len(there) == len(source.table(seen))
        if make is messages.of_postgres:
            assert versions(platform) == versions_of(seen)
            assert {(row.key, row.position) for row in there.itertuples()} == {(one.key, messages.position(one)) for one in wanted.values() if not one.deleted}
    fates = platform.sql("SELECT sum(kept)::int, sum(duplicate)::int, bool_and(conserved) FROM onlyonce.conservation WHERE query = 'receive'")
    assert [*fates.iloc[0]] == [len(changes), len(delivered) - len(changes), True]
    deleted = platform.sql("SELECT key FROM results.customers_deleted")
    assert {*deleted.key} == {one.key for one in source.newest(changes).values() if one.deleted}
