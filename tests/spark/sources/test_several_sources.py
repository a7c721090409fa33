"""Several sources in one pipeline: the stream equals the batch over what is in time, and what is in time follows the
least source that is not idle."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, ClassVar

import pandas as pd
import pytest

from onlyonce import settings
from onlyonce.commitlog import drivers
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.operate import doctor, plan
from tests.support.broker import Broker
from tests.support.ended_runs import ended_at
from tests.support.long_run import QUICK, committed, meanwhile, out_of_order, until
from tests.support.platform import Platform, multiset
from tests.support.two_sources import IDLE, START, Model, Sale

pytestmark = pytest.mark.spark


class Clock(datetime):
    """The clock that the driver looks at."""

    shows: ClassVar[datetime]

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        """What is set."""
        return cls.shows


@pytest.fixture
def shop(new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform whose clock can be set."""
    from onlyonce.receive import loop

    monkeypatch.setattr(loop, "datetime", Clock)
    Clock.shows = START + timedelta(days=1)
    return new_platform("tests/support/two_sources.py")


def put(platform: Platform, step: int, files: dict[str, list[list[Sale]]]) -> None:
    """Each file into the inbox of its source."""
    for source, some in files.items():
        for number, sales in enumerate(some):
            platform.put(f"shop/{source}", f"{step}-{number}.txt", [sale.line for sale in sales])


def check(platform: Platform, model: Model) -> None:
    """What the outputs have once all windows are closed is the batch over what the model says is in time; the rest is
    late, and all of it is kept."""
    kept = model.in_time + model.late
    assert multiset(platform.sql("SELECT id, place, cents FROM results.each")) == Counter(sale.row for sale in kept)
    written = multiset(platform.table("shop/per_minute"), "window_start", "place", "cents", "sales")
    assert written == model.windows(model.in_time)
    late = platform.sql(
        "SELECT coalesce(sum(late), 0)::bigint AS late FROM onlyonce.batches WHERE query = 'per_minute'"
    )
    assert late["late"][0] == len(model.late)
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty


def test_a_source_that_is_ahead_makes_nothing_of_the_other_late(shop: Platform) -> None:
    """The web is an hour ahead of the till; what the till sends then is in time all the same, and the windows close
    when it has come as far.

    A bounded run has all of it."""
    model, ids = Model(["web", "till"]), itertools.count()
    steps = [
        {
            "web": [[Sale("web", f"w{next(ids)}", second, 1) for second in (0, 3600)]],
            "till": [[Sale("till", "t0", 10, 2)]],
        },
        {"till": [[Sale("till", f"t{next(ids)}", second, 3) for second in (20, 70)]]},
        {"till": [[Sale("till", "t1", 15, 4), Sale("till", "t2", 130, 5)]]},
    ]
    for number, files in enumerate(steps):
        put(shop, number, files)
        shop.run("shop")
        model.run(files, Clock.shows)
    assert len(model.late) == 1
    shop.run("shop", "--close")
    check(shop, model)
    shop.run("shop", "--bounded")
    whole = multiset(shop.table("shop/per_minute@1"), "window_start", "place", "cents", "sales")
    assert whole == model.windows(model.in_time + model.late)


@pytest.mark.parametrize("older", [False, True])
def test_each_own_table_that_lacks_vouched_rows_is_refused(shop: Platform, older: bool) -> None:
    """Each Delta table of the platform's own is deleted, or put back from before the last batch; the others stay."""
    put(shop, 0, {"web": [[Sale("web", "w0", 0, 1)]], "till": [[Sale("till", "t0", 0, 2)]]})
    shop.run("shop")
    data = settings.data_dir("shop")
    tables = {log.parent.relative_to(data) for log in data.rglob("_delta_log")}
    assert {str(table) for table in tables} == {
        "events", "source_batches", "sources/web/files", "sources/till/files",
    }  # fmt: skip
    before, now = shop.home / "before", shop.home / "now"
    shutil.copytree(data, before)
    put(shop, 1, {"web": [[Sale("web", "w1", 1, 1)]], "till": [[Sale("till", "t1", 1, 2)]]})
    shop.run("shop")
    put(shop, 2, {"web": [[Sale("web", "w2", 2, 1)]]})
    for table in tables:
        shutil.move(data / table, now)
        if older:
            shutil.copytree(before / table, data / table)
        with pytest.raises(InvariantBroken, match="the log vouches for") as refused:
            shop.run("shop")
        assert str(data / table) in refused.value.what
        assert (data / table).exists() == older
        if older:
            shutil.rmtree(data / table)
        shutil.move(now, data / table)
    shop.run("shop")
    assert len(multiset(shop.sql("SELECT id FROM results.each"))) == 5


def test_a_run_with_a_wrong_clock_registers_nothing(shop: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run with a right clock takes all of it in."""
    put(shop, 0, {"web": [[Sale("web", "w", 0, 1)]]})
    monkeypatch.setattr(drivers, "MOST_SECONDS", -1e9)
    with pytest.raises(Refused, match="the clock of this driver shows"):
        shop.run("shop")
    assert not list(shop.home.rglob("sources/web/files/*.parquet"))

    monkeypatch.setattr(drivers, "MOST_SECONDS", 300.0)
    shop.run("shop")
    assert len(multiset(shop.sql("SELECT id FROM results.each"))) == 1


def test_a_clock_that_was_ahead_is_corrected_for_what_comes_next(
    shop: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifests keep the wrong time.

    After the repair input arrives now, ids are known as before, and a source can be idle.
    """
    monkeypatch.setattr(drivers, "MOST_SECONDS", 1e9)
    real = datetime.now(UTC)
    Clock.shows = real + timedelta(days=365)
    put(shop, 0, {"web": [[Sale("web", "w", 0, 1)]], "till": [[Sale("till", "t", 0, 2)]]})
    shop.run("shop")
    monkeypatch.setattr(drivers, "MOST_SECONDS", 300.0)
    Clock.shows = real
    shop.run("shop")

    assert [one["finding"] for one in doctor.main(["--grace=0"]).tables["findings"]] == ["ingestion time ahead"]
    shop.end_sessions()  # as a driver that has ended, with its Python workers; the server may notice a moment later
    until(lambda: not doctor.main(["--fix", "--yes", "--grace=0"]).tables["findings"], "the repair")
    put(shop, 1, {"web": [[Sale("web", "w", 0, 1), Sale("web", "w2", 1, 1)]], "till": [[Sale("till", "t2", 1, 2)]]})
    shop.run("shop")

    times = shop.sql("SELECT ingestion_time FROM onlyonce.batches WHERE query = 'receive' ORDER BY batch")[
        "ingestion_time"
    ]
    assert all(time > real + timedelta(days=364) for time in times[:2])
    assert all(abs(time - real) < timedelta(hours=1) for time in times[2:])
    fates = shop.sql(
        "SELECT sum(duplicate)::int AS duplicate, sum(expired)::int AS expired, sum(kept)::int AS kept FROM "
        "onlyonce.batches WHERE query = 'receive'"
    )
    assert fates.iloc[0].to_dict() == {"duplicate": 1, "expired": 0, "kept": 4}
    assert doctor.main(["--grace=0"]).tables["findings"] == []


POINTS = [
    "receive-before-source-batches", "receive-registered", "receive-after-begin", "table-before-commit", "receive-after-delta", "receive-after-end",
    "marker-after-begin", "marker-after-delta", "output-after-begin", "output-after-end",
]  # fmt: skip


@pytest.mark.parametrize(
    ("seed", "runs"), [(1, 3), *(pytest.param(seed, 5, marks=pytest.mark.slow) for seed in range(2, 10))]
)
def test_the_stream_is_the_batch_over_what_is_in_time_at_any_pace_and_kill(
    shop: Platform, monkeypatch: pytest.MonkeyPatch, seed: int, runs: int
) -> None:
    """Each source has a pace of its own, sends again what it has sent, uses ids that the other uses too, and pauses for
    longer than its idle time; runs are killed.

    What is in time, by the rule said once more, is in the windows, once; the rest is late."""
    random = Random(seed)
    shared, by_place = seed % 2 == 0, seed % 3 == 0
    if by_place:
        monkeypatch.setenv("TEST_BY_PLACE", "yes")
    monkeypatch.setenv("TEST_ID_SPACE", "shared" if shared else "by_source")
    model = Model(["web", "till"], shared, by_place)
    pace = {"web": random.randint(20, 200), "till": random.randint(20, 200)}
    sent: list[Sale] = []
    for step in range(runs):
        files: dict[str, list[list[Sale]]] = {}
        for source in random.choice([["web"], ["till"], ["web", "till"], ["web", "till"]]):
            middle = step * pace[source]
            new = [
                Sale(source, f"{random.randint(0, 30)}", max(0, middle + random.randint(-60, 60)), random.randint(1, 9))
                for _ in range(random.randint(2, 12))
            ]
            # One id has one content: which of two in a file is kept would be another matter.
            by_id = {(sale.source if not shared else "", sale.id): sale for sale in [*new, *sent]}
            mine = [by_id[(source if not shared else "", sale.id)] for sale in new]
            some = [sale for sale in dict.fromkeys(mine) if sale.source == source]
            sent += [sale for sale in some if sale not in sent]
            files[source] = [part for part in (some[::2], some[1::2]) if part]
        put(shop, step, files)
        if random.random() < 0.7:
            ended_at(shop, monkeypatch, random.choice(POINTS), random.randint(1, 2))
        shop.run("shop")
        model.run(files, Clock.shows)
        Clock.shows += random.choice([timedelta(minutes=1), IDLE / 2, 2 * IDLE])
    shop.run("shop", "--close")
    check(shop, model)


def sources(platform: Platform) -> dict[str, tuple[int | None, bool, bool]]:
    """Of each source: how far it is, in seconds; whether it is idle; whether the watermark waits for it.

    As `lag` has it.
    """
    rows = platform.sql(
        "SELECT stage, max_event_time, idle, holds_watermark FROM onlyonce.lag WHERE stage LIKE 'receive/%'"
    )
    far = {
        row.stage: None if pd.isna(row.max_event_time) else int((row.max_event_time - START).total_seconds())
        for row in rows.itertuples()
    }
    return {
        row.stage.removeprefix("receive/"): (far[row.stage], row.idle, row.holds_watermark) for row in rows.itertuples()
    }


def closed_upto(platform: Platform) -> int:
    """The pipeline's max event time, in seconds."""
    [(found,)] = platform.sql("SELECT max_event_time FROM onlyonce.lag WHERE stage = 'receive'").values
    return int((found - START).total_seconds())


def test_the_watermark_waits_for_what_is_declared_and_not_idle(shop: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source falls idle, and wakes with old records, which are late; one is added, and the watermark waits for it;
    one is retired, not before all of it is taken in."""
    model = Model(["web", "till"])

    def step(number: int, after: timedelta, **files: list[Sale]) -> None:
        Clock.shows += after
        each = {source: [some] for source, some in files.items()}
        put(shop, number, each)
        shop.run("shop")
        model.run(each, Clock.shows)
        assert closed_upto(shop) == model.max_event_time

    step(0, timedelta(0), web=[Sale("web", "w0", 100, 1)], till=[Sale("till", "t0", 10, 2)])
    assert sources(shop) == {"web": (100, False, False), "till": (10, False, True)}
    step(1, IDLE, web=[Sale("web", "w1", 500, 3)])
    assert sources(shop) == {"web": (500, False, True), "till": (10, True, False)}
    step(2, timedelta(0), till=[Sale("till", "t1", 30, 4), Sale("till", "t2", 490, 5)])
    assert sources(shop) == {"web": (500, False, False), "till": (490, False, True)}
    assert [sale.id for sale in model.late] == ["t1"]

    monkeypatch.setenv("TEST_SOURCES", "web,till,kiosk")
    [change] = plan.main(["shop"]).tables["changes"]
    assert (change["what"], change["needs"]) == ("source kiosk", "nothing")
    assert "the watermark waits for it" in change["why"]
    model.sources.append("kiosk")
    step(3, timedelta(0), web=[Sale("web", "w2", 900, 6)], till=[Sale("till", "t3", 800, 7)])
    assert closed_upto(shop) == 500
    assert sources(shop)["kiosk"] == (None, False, True)

    shop.put("shop/till", "4.txt", [Sale("till", "t4", 810, 8).line])
    ended_at(shop, monkeypatch, "receive-registered", 1)
    monkeypatch.setenv("TEST_SOURCES", "web,kiosk")
    with pytest.raises(Refused, match="input of the source 'till' is to be read"):
        shop.run("shop")
    monkeypatch.setenv("TEST_SOURCES", "web,till,kiosk")
    shop.run("shop")
    model.run({"till": [[Sale("till", "t4", 810, 8)]]}, Clock.shows)

    assert trace(shop, "t4")  # by Spark's parser; below one of a block

    monkeypatch.setenv("TEST_SOURCES", "web,kiosk")
    [change] = plan.main(["shop"]).tables["changes"]
    assert (change["what"], change["after"]) == ("source till", None)
    assert "holds the watermark back no more" in change["why"]
    model.sources.remove("till")
    step(5, timedelta(0), kiosk=[Sale("kiosk", "k0", 880, 9)])
    assert sources(shop) == {"web": (900, False, False), "kiosk": (880, False, True)}
    shop.run("shop", "--close")
    check(shop, model)
    assert trace(shop, "k0")


def trace(platform: Platform, *given: str) -> Any:
    """What `onlyonce trace` tells of a record of any source."""
    from onlyonce.api import load
    from onlyonce.database.connect import Database
    from onlyonce.records import trace as traced
    from onlyonce.sources import record_id

    pipeline = load.one("shop")
    database = Database(platform.environment["ONLYONCE_DATABASE_URL"])
    report, there = traced.trace(database, pipeline, "shop", record_id.asked(pipeline, given))
    return report.facts if there else None


def test_a_topic_and_files_in_one_long_run(
    new_platform: Callable[..., Platform], broker: Broker, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come while it runs; nothing is late while both are awake, and once the topic is idle the files alone move
    the watermark."""
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    topic = broker.topic("web")
    monkeypatch.setenv("TEST_SOURCES", "topic,till")
    monkeypatch.setenv("TEST_TOPIC", topic)
    monkeypatch.setenv("TEST_SERVERS", broker.servers)
    platform = new_platform("tests/support/two_sources.py")
    web = [Sale("topic", f"w{number}", 30 * number, number) for number in range(20)]
    till = [Sale("till", f"w{number}", 20 * number, number) for number in range(60)]

    def feed() -> None:
        broker.produce(topic, *(json.dumps(sale.line).encode() for sale in web))
        platform.put("shop/till", "0.txt", [sale.line for sale in till[:30]])
        until(lambda: committed(platform) >= 3, "what came first")
        platform.put("shop/till", "1.txt", [sale.line for sale in till[30:]])
        until(lambda: committed(platform) >= 4 and closed_upto(platform) == 20 * 59, "the watermark without the topic")
        until(lambda: len(multiset(platform.table("shop/per_minute"))) >= 28, "its windows")

    with meanwhile(platform, feed):
        platform.run("shop", "--continuous", "--every", "0.2")

    platform.run("shop", "--close")
    check(platform, Model([], in_time=[*web, *till]))
    assert out_of_order(platform) == 0
