"""What a topic's manifest has is known without Spark: `onlyonce lag` asks, and a run before it starts a JVM."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark import SparkContext

from onlyonce.api.pipeline import Delta, Kafka, Output, Pipeline
from onlyonce.core import stored_names
from onlyonce.sources import source_kafka
from onlyonce.sources.kafka_offsets import Known

TIME = pa.timestamp("us", tz="UTC")
START = datetime(2026, 1, 1, tzinfo=UTC)
TYPES = {"long": pa.int64(), "int": pa.int32(), "string": pa.string(), "timestamp": TIME}


Range = tuple[int, int, int, int]
"""Batch, partition, and the offsets [first, until)."""


@pytest.fixture
def topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> source_kafka.Topic:
    """A topic as a continuous run has it, whose manifest is not made."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    source = Kafka(topic="t", servers="here:9092")
    pipeline = Pipeline(
        name="p", source=source, schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=Output(name="o", transform="m:f", sink=Delta()),
    )  # fmt: skip
    return source_kafka.topic_of(pipeline, source, "p", None, {})


def append(topic: source_kafka.Topic, *ranges: Range, topic_id: str = "id") -> None:
    """Append entries to the manifest, as one commit."""
    columns = dict(part.split() for part in stored_names.RANGES_COLUMNS.split(", "))
    schema = pa.schema([(name, TYPES[kind]) for name, kind in columns.items()])
    rows = [
        dict(
            zip(
                columns,
                (batch, f"t/{part}", topic_id, part, first, until, None, "", START + timedelta(seconds=batch)),
                strict=True,
            )
        )
        for batch, part, first, until in ranges
    ]
    write_deltalake(str(topic.table), pa.Table.from_pylist(rows, schema), mode="append")


def test_ranges_are_read_without_spark(topic: source_kafka.Topic) -> None:
    """Where the next batch begins, by partition, up to a batch that is committed."""
    assert SparkContext._active_spark_context is None
    append(topic, (0, 0, 0, 5), (0, 1, 2, 4), (1, 0, 5, 9))

    read = topic.read_up_to(0)

    assert read is not None
    assert dict(read.next) == {0: 5, 1: 4}
    assert topic.last_batch() == 1


def test_continuous_run_keeps_no_more_after_many_polls(topic: source_kafka.Topic) -> None:
    """Only where each partition continues, whatever the number of ranges: a poll costs the same after a year."""
    append(topic, (0, 0, 0, 10_000), (0, 1, 0, 10_000))
    sizes = []
    for number in range(1, 41):
        read = topic.read_up_to(number - 1)
        assert read is not None
        assert read.next[0] == 10_000 + number - 1
        assert topic.readings is not None
        sizes.append(len(pickle.dumps(topic.readings[str(topic.table)].look())))
        append(topic, (number, 0, 10_000 + number - 1, 10_000 + number))

    assert max(sizes) <= sizes[0] + 8


def test_kept_state_is_that_of_the_whole_manifest(topic: source_kafka.Topic) -> None:
    """Also after a partition was added, and after the topic was made again."""
    commits: list[tuple[str, list[Range]]] = [
        ("id", [(0, 0, 0, 5), (0, 1, 2, 4)]), ("id", [(1, 0, 5, 9), (2, 0, 9, 12), (2, 2, 0, 1)]), ("other", [(3, 0, 0, 0), (3, 0, 0, 3)]), ("other", [(4, 1, 0, 7)]),
    ]  # fmt: skip
    for topic_id, ranges in commits:
        append(topic, *ranges, topic_id=topic_id)
        for batch in (None, 0, 1, 2, 3, 4):
            assert topic.read_up_to(batch) == replace(topic, readings=None).read_up_to(batch)
        kept = source_kafka._reading(topic).look()
        assert kept == source_kafka._reading(replace(topic, readings=None)).look()
        assert (kept.last, kept.seen_at) == (ranges[-1][0], START + timedelta(seconds=ranges[-1][0]))

    assert topic.read_up_to(2) == Known("id", "other", {0: 0, 1: 0})
    assert topic.read_up_to(4) == Known("id", "other", {0: 3, 1: 7})
