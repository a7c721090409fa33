"""The transcripts of changes through the product: Debezium's messages from a real broker, or the feed of a Delta table,
into PostgreSQL and Delta, and a history.

Each step is a run. `make check` plays the same transcripts without Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce import settings
from tests.support import customers_table
from tests.support import debezium_messages as messages
from tests.support.broker import Broker
from tests.support.changes_of_a_table import Change
from tests.support.platform import Platform
from tests.transcripts import change_story
from tests.transcripts.change_story import FOLDER, Had, Story

pytestmark = pytest.mark.spark

TOLD = change_story.all_in(FOLDER)
WRONG = change_story.read(FOLDER / "wrong" / "comes_back.yaml")
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
Deliver = Callable[[tuple[Change, ...]], None]


@pytest.fixture
def feeds(
    new_platform: Callable[..., Platform],
    spark: object,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Callable[[str], tuple[Platform, Deliver]]:
    """By the name of a feed: a platform that reads it, and what puts changes into it."""

    def connector() -> tuple[Platform, Deliver]:
        broker: Broker = request.getfixturevalue("broker")
        platform, topic = new_platform("tests/support/customers.py"), broker.topic("customers")
        platform.give(monkeypatch, CUSTOMERS_TOPIC=topic, CUSTOMERS_SERVERS=broker.servers)

        def deliver(changes: tuple[Change, ...]) -> None:
            for change in changes:
                broker.produce(topic, messages.text(messages.of_postgres(change)), partition=0)

        return platform, deliver

    def table() -> tuple[Platform, Deliver]:
        platform = new_platform("tests/support/customers_table.py")
        return platform, lambda changes: commit(settings.tables_dir() / customers_table.TABLE, changes)

    return lambda name: {"connector": connector, "table": table}[name]()


def commit(path: Path, changes: tuple[Change, ...]) -> None:
    """One version of the table. All changes of a step are of one kind there."""
    [op] = {one.op for one in changes}
    for one in changes[:1] if op != "c" else ():
        assert DeltaTable(str(path)).version() == one.position - 1
    if op == "c":
        rows = pa.Table.from_pylist([{"key": one.key, "value": one.value} for one in changes], SCHEMA)
        write_deltalake(str(path), rows, mode="append", configuration={"delta.enableChangeDataFeed": "true"})
    elif op == "d":
        DeltaTable(str(path)).delete(f"key IN ({', '.join(repr(one.key) for one in changes)})")
    else:
        [one] = changes
        DeltaTable(str(path)).update(updates={"value": str(one.value)}, predicate=f"key = '{one.key}'")
    assert DeltaTable(str(path)).version() == changes[0].position


def played(told: Story, platform: Platform, deliver: Deliver) -> list[str]:
    """Run a transcript; gives what differs after the first step that is not as told."""
    known = 0
    for number, (changes, expected) in enumerate(told.steps, 1):
        deliver(changes)
        platform.run("customers")
        again = (
            int(
                platform.sql(
                    "SELECT coalesce(sum(duplicate), 0)::int AS n FROM onlyonce.totals WHERE query = 'receive'"
                )["n"][0]
            )
            - known
        )
        known += again
        said = change_story.differences(f"step {number}", expected, replace(in_postgres(platform), again=again))
        said += change_story.differences(
            f"step {number}, Delta", replace(expected, history=None), replace(in_delta(), again=again)
        )
        if said:
            return said
    return []


def in_postgres(platform: Platform) -> Had:
    """The rows, the deleted keys and, where there is one, the history."""
    rows = platform.sql("SELECT key, value FROM results.customers")
    deleted = platform.sql("SELECT key, position FROM results.customers_deleted")
    has = platform.sql("SELECT to_regclass('results.customers_history') IS NOT NULL AS has")["has"][0]
    return Had(
        frozenset(plain(rows)),
        frozenset((key, place(position)) for key, position in plain(deleted)),
        versions(platform) if has else None,
        0,
    )


def versions(platform: Platform) -> frozenset[tuple[Any, ...]]:
    """The history, times as positions: a change is as many milliseconds behind noon."""
    times = ", ".join(
        f"(extract(epoch FROM {name}) * 1000)::bigint - {messages.NOON}" for name in ("valid_from", "valid_to")
    )
    return frozenset(plain(platform.sql(f"SELECT key, value, {times} FROM results.customers_history")))


def in_delta() -> Had:
    """The same of the Delta table, and the one beside it."""
    rows, deleted = (
        DeltaTable(str(settings.tables_dir() / name)).to_pyarrow_table().to_pylist()
        for name in ("customers", "customers_deleted")
    )
    there = frozenset((one["key"], one["value"]) for one in rows)
    # An entry stays when its key is created again: positions are compared.
    gone = frozenset(
        (one["key"], place(one["position"])) for one in deleted if one["key"] not in {key for key, _ in there}
    )
    return Had(there, gone, None, 0)


def place(position: Any) -> int:
    """The number of a change: of Debezium's it is a text, with whether it is of the snapshot."""
    return int(position[:-1]) if isinstance(position, str) else int(position)


def plain(rows: Any) -> list[tuple[Any, ...]]:
    """Rows with None for what is missing."""
    return [
        tuple(
            None if value is None or value != value else int(value) if isinstance(value, float) else value
            for value in row
        )
        for row in rows.itertuples(index=False)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("told", TOLD, ids=lambda told: told.name)
def test_spark_tells_the_same_story(told: Story, feeds: Callable[[str], tuple[Platform, Deliver]]) -> None:
    """After each step both tables, what they remember as deleted, the history and the duplicates are those of the
    transcript."""
    platform, deliver = feeds(told.feed)

    assert played(told, platform, deliver) == []
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]
    if told.feed == "table":
        read = platform.sql("SELECT version, newest_version FROM onlyonce.inputs")
        assert [tuple(row) for row in read.itertuples(index=False)] == [(4, 4)]


@pytest.mark.slow
def test_a_wrong_transcript_fails_on_spark_too(feeds: Callable[[str], tuple[Platform, Deliver]]) -> None:
    """The control: real tables are compared, and what differs is named."""
    platform, deliver = feeds(WRONG.feed)
    assert WRONG.must_say in played(WRONG, platform, deliver)
