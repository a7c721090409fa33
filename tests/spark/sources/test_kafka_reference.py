"""The two pipelines that ship, fed by topics of a real Kafka, against the plain batch computation of
tests/oracle.py."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from onlyonce.api import load as declarations
from onlyonce.api.messages import Kafka
from onlyonce.local import feed_messages
from tests import oracle
from tests.spark.run.test_reference import FIRST, KEYS, LAST, same
from tests.support.broker import Broker
from tests.support.platform import Platform
from tests.support.reference import compare
from tests.support.topics import cuts

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = (
    "receive-registered",
    "receive-after-begin",
    "receive-after-delta",
    "receive-before-end",
    "receive-after-end",
)


@pytest.fixture
def fed(
    new_platform: Callable[..., Platform], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Platform, Kafka]]:
    """A platform whose pipeline's topic has the data set in it."""

    def make(pipeline: str, records: int, offsets: int) -> tuple[Platform, Kafka]:
        platform = new_platform("tests/support/topic_pipelines.py")
        platform.give(monkeypatch, TOPICS=uuid4().hex[:8], TOPIC_SERVERS=broker.servers, TOPIC_OFFSETS=str(offsets))
        source = declarations.load()[pipeline].source
        assert isinstance(source, Kafka)
        broker.make_topic(source.topic, partitions=4)
        feed_messages.feed_kafka(pipeline, source, duplicates=0.1, seed=1, files=None, records=records)
        return platform, source

    return make


def as_files(platform: Platform, broker: Broker, source: Kafka, pipeline: str) -> list[Path]:
    """What each batch had to read, by the offsets in the log, as a file for the oracle."""
    lines = {(one.partition(), one.offset()): one.value().decode() for one in broker.read(source.topic, 4)}
    read = cuts(platform, pipeline)
    assert sorted(place for cut in read for place in cut) == sorted(lines), "each offset is in one batch"
    files = []
    for number, cut in enumerate(read):
        file = platform.home / f"batch-{number:04}.jsonl"
        file.write_text("".join(f"{lines[place]}\n" for place in cut))
        files.append(file)
    return files


@pytest.mark.parametrize(("name", "records", "offsets"), [("user_counts", 6000, 1500), ("flights", 20_000, 6000)])
@pytest.mark.parametrize("kills", [(), KILLS], ids=["duplicates", "kills"])
def test_both_pipelines_from_a_topic(
    fed: Callable[..., tuple[Platform, Kafka]],
    spark: object,
    broker: Broker,
    name: str,
    records: int,
    offsets: int,
    kills: tuple[str, ...],
) -> None:
    """With re-deliveries, and with a kill at each step of a batch too: the batch over the rows in time."""
    platform, source = fed(name, records, offsets)
    for point in kills:
        code, output = platform.run_killed(point, name, "--close")
        assert platform.struck(point) >= 1, f"{point} was never passed:\n{output[-3000:]}"
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
    platform.run(name, "--close")
    compare(platform, name, [[file] for file in as_files(platform, broker, source, name)])


def test_a_bounded_run_and_a_backfill_of_a_topic_are_the_batch_over_everything(
    fed: Callable[..., tuple[Platform, Kafka]], spark: object, broker: Broker
) -> None:
    """Both have the rows that came too late for the stream."""
    platform, source = fed("user_counts", 6000, 1500)
    platform.run("user_counts", "--close")
    platform.run("user_counts", "--bounded")
    platform.backfill("user_counts", "--from", FIRST, "--to", LAST)

    rows = oracle.distinct(as_files(platform, broker, source, "user_counts"), oracle.USER_COUNTS)
    for suffix in ("@1", ""):
        per_user = platform.table(f"user_counts/per_user{suffix}")
        of_all = platform.sql(f'SELECT * FROM results."count_of_all{suffix}"')
        same(oracle.counts_per_user(rows), per_user, [*KEYS, "user", "count"], [])
        same(oracle.count_of_all(rows), of_all, [*KEYS, "count", "users"], [])
