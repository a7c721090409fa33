"""Spark's own Kafka sink beside ours: the same kill, between the write and the note that it was made."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onlyonce.testing.scratch import Processes
from onlyonce.testing.suite import make_rows, multiset
from tests.contract.conformance_kafka import VARIABLE, ToKafka, read
from tests.contract.conftest import Log, shared  # noqa: F401 - a fixture
from tests.support.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_sparks_own_sink_writes_again_what_a_killed_run_has_written(
    spark: Any, broker: Broker, shared: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    """A run that dies before `commits/0` is there leaves its messages; the restart sends them again.

    Ours are there once.
    """
    rows, topic = make_rows(0), broker.topic("spark")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("\n".join(json.dumps(row) for row in rows))

    def drain() -> None:
        lines = spark.readStream.text(str(tmp_path / "in"))
        query = (
            lines.writeStream.format("kafka").option("kafka.bootstrap.servers", broker.servers).option("topic", topic)
        )
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    drain()
    # What a kill leaves between the effect and its note; no process need die for it.
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    drain()

    theirs = multiset([json.loads(message.value()) for message in read(broker.servers, topic)])
    assert theirs == Counter(dict.fromkeys(multiset(rows), 2))

    monkeypatch.setattr(ToKafka, "broker", broker, raising=False)
    monkeypatch.setenv(VARIABLE, broker.servers)
    ours, passes = ToKafka(shared), tmp_path / "passes"
    passes.mkdir()
    Processes(shared, passes).killed(lambda: ours.write(0, rows), "deliver-unit-after-write")
    ours.restart()
    ours.write(0, rows)

    assert multiset(ours.seen()) == multiset(rows)
