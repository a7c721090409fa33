"""Arrivals that a driver with a wrong clock has dated are corrected, whatever the source: what comes next arrives now,
and no id is forgotten."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onlyonce.commitlog import drivers
from onlyonce.operate import doctor
from tests.spark.sources import test_delta_source, test_kafka
from tests.spark.sources.test_several_sources import Clock
from tests.support.broker import Broker
from tests.support.platform import Platform
from tests.support.topics import Shop

pytestmark = [pytest.mark.spark, pytest.mark.whole]

Put = Callable[[list[dict[str, Any]]], object]
YEAR = timedelta(days=365)


def of_topic(platform: Platform, request: pytest.FixtureRequest, patch: pytest.MonkeyPatch) -> Put:
    """Send sales to a topic."""
    broker: Broker = request.getfixturevalue("broker")
    shop = Shop(broker, broker.topic("shop"))
    shop.name(platform, patch)
    return lambda sales: shop.send(0, *sales)


def of_table(platform: Platform, request: pytest.FixtureRequest, patch: pytest.MonkeyPatch) -> Put:
    """Append sales to a Delta table."""
    chance = random.Random(1)
    return lambda sales: test_delta_source.append(sales, chance)


SOURCES = {"topic": (test_kafka.SHOP, of_topic, True), "table": (test_delta_source.PIPELINES, of_table, False)}
"""The declarations, what puts sales into the source, and whether a sale is known by its id or by its place."""


@pytest.mark.parametrize("kind", SOURCES)
def test_arrival_that_was_ahead_is_corrected(
    kind: str,
    new_platform: Callable[..., Platform],
    spark: object,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """In a topic, and in a Delta table."""
    declared, of, by_id = SOURCES[kind]
    platform = new_platform(declared)
    assert_corrected(platform, of(platform, request, monkeypatch), monkeypatch, by_id=by_id)


def assert_corrected(platform: Platform, put: Put, monkeypatch: pytest.MonkeyPatch, *, by_id: bool) -> None:
    """The manifest keeps the wrong time.

    After the repair a batch arrives now, and one that was registered before it, too.
    """
    from onlyonce.receive import loop

    monkeypatch.setattr(loop, "datetime", Clock)
    monkeypatch.setattr(drivers, "MOST_SECONDS", 1e9)
    real = datetime.now(UTC)
    Clock.shows = real + YEAR
    put([test_kafka.sale(1)])
    platform.run("shop")
    monkeypatch.setattr(drivers, "MOST_SECONDS", 300.0)
    Clock.shows = real
    put([test_kafka.sale(2)])
    platform.run("shop")
    assert [one["finding"] for one in doctor.main(["--grace=0"]).tables["findings"]] == ["ingestion time ahead"]

    platform.end_sessions()
    assert doctor.main(["--fix", "--yes", "--grace=0"]).tables["findings"] == []
    put([test_kafka.sale(1), test_kafka.sale(3)])
    platform.run("shop")

    times = platform.sql("SELECT ingestion_time FROM onlyonce.batches WHERE query = 'receive' ORDER BY batch")[
        "ingestion_time"
    ]
    assert [time > real + YEAR / 2 for time in times] == [True, True, False]
    assert abs(times.iloc[-1] - real) < timedelta(hours=1)
    fates = platform.sql(
        "SELECT sum(duplicate)::int AS duplicate, sum(expired)::int AS expired, sum(kept)::int AS kept FROM "
        "onlyonce.batches WHERE query = 'receive'"
    )
    assert fates.iloc[0].to_dict() == {"duplicate": int(by_id), "expired": 0, "kept": 4 - int(by_id)}
    assert doctor.main(["--grace=0"]).tables["findings"] == []
