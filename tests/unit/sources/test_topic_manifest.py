"""What a topic's manifest has is known without Spark: `onlyonce lag` asks, and a run before it starts a JVM."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark import SparkContext

from onlyonce.api.pipeline import Delta, Kafka, Output, Pipeline
from onlyonce.core import stored_names
from onlyonce.sources import source_kafka

TIME = pa.timestamp("us", tz="UTC")
TYPES = {"long": pa.int64(), "int": pa.int32(), "string": pa.string(), "timestamp": TIME}


def test_ranges_are_read_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the next batch begins, by partition, up to a batch that is committed."""
    assert SparkContext._active_spark_context is None
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    source = Kafka(topic="t", servers="here:9092")
    pipeline = Pipeline(
        name="p", source=source, schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=Output(name="o", transform="m:f", sink=Delta()),
    )  # fmt: skip
    topic = source_kafka.topic_of(pipeline, source, "p")
    columns = dict(part.split() for part in stored_names.RANGES_COLUMNS.split(", "))
    schema = pa.schema([(name, TYPES[kind]) for name, kind in columns.items()])
    seen = datetime(2026, 1, 1, tzinfo=UTC)
    ranges = [(0, 0, 0, 5), (0, 1, 2, 4), (1, 0, 5, 9)]
    rows = [
        dict(zip(columns, (batch, f"t/{part}", "id", part, first, until, None, "", seen), strict=True))
        for batch, part, first, until in ranges
    ]
    write_deltalake(str(topic.table), pa.Table.from_pylist(rows, schema))

    read = topic.read_up_to(0)

    assert read is not None
    assert dict(read.next) == {0: 5, 1: 4}
    assert topic.last_batch() == 1
