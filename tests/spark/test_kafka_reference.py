"""The two pipelines that ship, fed by topics of a real Kafka, against the plain batch computation of tests/oracle.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from jobs import declarations
from jobs.feed import produce
from jobs.model.kafka import Kafka
from tests import oracle
from tests.spark.test_reference import FIRST, KEYS, LAST, same
from tests.support.broker import Broker
from tests.support.platform import Platform
from tests.support.topics import cuts

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def fed(
    new_platform: Callable[..., Platform], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Platform, Kafka]]:
    """A platform whose pipeline's topic has the data set in it."""

    def make(pipeline: str, records: int, offsets: int) -> tuple[Platform, Kafka]:
        platform = new_platform("tests/support/topic_pipelines.py")
        environment = {"TOPICS": uuid4().hex[:8], "TOPIC_SERVERS": broker.servers, "TOPIC_OFFSETS": str(offsets)}
        platform.environment.update(environment)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        source = declarations.load()[pipeline].source
        assert isinstance(source, Kafka)
        broker.make_topic(source.topic, partitions=4)
        produce.feed(pipeline, source, duplicates=0.1, seed=1, files=None, records=records)
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


def test_user_counts_from_a_topic(fed: Callable[..., tuple[Platform, Kafka]], spark: object, broker: Broker) -> None:
    """Per-user counts and the count of all equal the batch over the rows in time; backfilled and bounded, over all."""
    platform, source = fed("user_counts", 6000, 1500)

    platform.run("user_counts", "--close")
    platform.run("user_counts", "--bounded")

    files = as_files(platform, broker, source, "user_counts")
    records = oracle.distinct(files, oracle.USER_COUNTS)
    fates = oracle.lateness_by_cut([[file] for file in files], "2min", "1min", of=oracle.USER_COUNTS)
    in_time = oracle.only(records, fates[~fates["late"]], oracle.USER_COUNTS)
    for rows, suffix in ((in_time, ""), (records, "@1"), (records, "")):
        if rows is records and not suffix:
            platform.backfill("user_counts", "--from", FIRST, "--to", LAST)
        per_user = platform.table(f"user_counts/per_user{suffix}")
        of_all = platform.sql(f'SELECT * FROM results."count_of_all{suffix}"')
        same(oracle.counts_per_user(rows), per_user, [*KEYS, "user", "count"], [])
        same(oracle.count_of_all(rows), of_all, [*KEYS, "count", "users"], [])


def test_flights_from_a_topic(fed: Callable[..., tuple[Platform, Kafka]], spark: object, broker: Broker) -> None:
    """Flights per carrier and hour and over all equal the batch over the rows in time, on real disorder."""
    platform, source = fed("flights", 20_000, 6000)

    platform.run("flights", "--close")

    files = as_files(platform, broker, source, "flights")
    records = oracle.distinct(files, oracle.FLIGHTS)
    fates = oracle.lateness_by_cut([[file] for file in files], "2h", "1h")
    rows = oracle.only(records, fates[~fates["late"]], oracle.FLIGHTS)
    exact = ["flights", "delay_minutes"]
    per_carrier, per_hour = (
        platform.table("flights/per_carrier"),
        platform.sql("SELECT * FROM results.flights_per_hour"),
    )
    same(oracle.flights_per_carrier(rows), per_carrier, [*KEYS, "carrier", *exact], ["mean_delay"])
    same(oracle.flights_per_hour(rows), per_hour, [*KEYS, *exact], ["mean_delay"])
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]
