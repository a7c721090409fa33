"""The view `lag` tells the slow stage, from the log alone: what waits, for how long, and how fresh what is committed
is."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from onlyonce.cli import operate
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.core.batch import Outcome
from tests.contract.conftest import Log, plan_of

KEPT = 10


class Stages:
    """Receive and two outputs of one instance, batch by batch; times are told as ages against the server's clock."""

    def __init__(self, log: Log, instance: str = "shop") -> None:
        self.log, self.instance = log, instance
        self.drivers = {query: log.start(instance, query) for query in ("receive", "quick", "slow")}
        self.next = dict.fromkeys(self.drivers, 0)
        [(self.now,)] = log.rows("SELECT clock_timestamp()")

    def receive(self, age: int, *, ends: bool = True, max_event_time: datetime | None = None) -> None:
        """A receive batch whose input was first seen so many seconds ago; it is the next version of `events`."""
        number, driver = self._number("receive")
        seen_at = self.now - timedelta(seconds=age)
        plan = plan_of(driver, number, ingestion_time=seen_at, source_to={"batch_no": number, "lines": KEPT + 2})
        batch = Batches(self.log.database).begin(driver, self.instance, plan, None)
        done = Outcome(
            read=KEPT + 2,
            kept=KEPT,
            invalid=1,
            expired=0,
            duplicate=1,
            max_event_time_after=max_event_time,
            delta_version=number + 1,
        )
        if ends:
            Batches(self.log.database).end(driver, batch, done)

    def output(self, query: str, upto: int, *, ends: bool = True, inside: bool = False) -> None:
        """An output batch that has read `events` up to a version."""
        number, driver = self._number(query)
        offset = {"reservoirVersion": upto, "index": 5} if inside else {"reservoirVersion": upto + 1, "index": -1}
        plan = plan_of(driver, number, source_to=offset)
        batch = Batches(self.log.database).begin(driver, self.instance, plan, None)
        if ends:
            Batches(self.log.database).end(driver, batch, Outcome(in_time=0, late=0))

    def lag(self) -> dict[str, dict[str, Any]]:
        """The rows of the view, by stage."""
        rows = Views(self.log.database).rows("lag")
        return {row["stage"]: row for row in rows if row["pipeline"] == self.instance}

    def _number(self, query: str) -> tuple[int, Driver]:
        self.next[query] += 1
        return self.next[query] - 1, self.drivers[query]


@pytest.fixture
def stages(log: Log) -> Stages:
    """A pipeline that has not read anything yet."""
    return Stages(log)


def seconds(row: dict[str, Any], age: int) -> bool:
    """Whether a lag is this age; it grows while the test runs, and by an hour at most."""
    return bool(age <= row["system_lag_seconds"] < age + 3600)


def test_nothing_waits_nothing_lags(stages: Stages) -> None:
    """Before the first batch, and when all is committed."""
    stages.receive(50_000)
    for query in ("quick", "slow"):
        stages.output(query, upto=1)

    assert {stage: row["system_lag_seconds"] for stage, row in stages.lag().items()} == {
        "receive": 0, "quick": 0, "slow": 0,
    }  # fmt: skip
    assert not any(row["slowest"] for row in stages.lag().values())


def test_the_output_that_has_not_read_is_the_slow_stage(stages: Stages) -> None:
    """By the oldest batch that it has not committed; the quick one waits only for the newest."""
    for age in (50_000, 40_000, 20_000):
        stages.receive(age)
    stages.output("slow", upto=1)
    stages.output("quick", upto=2, inside=True)
    lag = stages.lag()

    assert seconds(lag["slow"], 40_000)
    assert seconds(lag["quick"], 20_000)
    assert {stage for stage, row in lag.items() if row["slowest"]} == {"slow"}
    assert [(lag[s]["batches_waiting"], lag[s]["records_waiting"]) for s in ("receive", "quick", "slow")] == [
        (0, 0), (1, KEPT), (2, 2 * KEPT),
    ]  # fmt: skip


def test_the_command_shows_the_view_to_a_reader(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As rows for a script, by the role that can change nothing."""
    monkeypatch.setenv("ONLYONCE_READER_URL", stages.log.server.url("reader", stages.log.name))
    for age in (50_000, 40_000):
        stages.receive(age)
    stages.output("quick", upto=2)

    operate.lag(as_json=True)

    told = {row["stage"]: row for row in json.loads(capsys.readouterr().out) if row["pipeline"] == "shop"}
    assert {stage: (row["batches_waiting"], row["slowest"]) for stage, row in told.items()} == {
        "receive": (0, False), "quick": (0, False), "slow": (2, True),
    }  # fmt: skip


def test_a_begun_batch_is_what_waits_for_receive_and_not_yet_for_the_outputs(stages: Stages) -> None:
    """With all of its lines; what is begun of an output is not committed."""
    stages.receive(50_000)
    stages.receive(30_000, ends=False)
    stages.output("quick", upto=1)
    stages.output("slow", upto=1, ends=False)
    lag = stages.lag()

    assert seconds(lag["receive"], 30_000)
    assert seconds(lag["slow"], 50_000)
    assert lag["quick"]["system_lag_seconds"] == 0
    assert (lag["receive"]["batches_begun"], lag["receive"]["records_waiting"]) == (1, KEPT + 2)
    assert (lag["slow"]["batches_begun"], lag["slow"]["batches_waiting"]) == (1, 1)
    assert [lag[s]["last_batch"] for s in ("receive", "quick", "slow")] == [0, 0, None]


def test_freshness_is_the_max_event_time_of_what_the_stage_has_committed(stages: Stages) -> None:
    """The same max event time as the frontier's for receive; that of the versions read for an output."""
    early, late = stages.now - timedelta(days=3), stages.now - timedelta(days=1)
    stages.receive(50_000, max_event_time=early)
    stages.receive(40_000, max_event_time=late)
    stages.output("slow", upto=1)
    stages.output("quick", upto=2)
    lag = stages.lag()

    assert {stage: row["max_event_time"] for stage, row in lag.items()} == {
        "receive": late,
        "quick": late,
        "slow": early,
    }
    assert (
        lag["receive"]["max_event_time"]
        == stages.log.rows("SELECT max(max_event_time_after) FROM onlyonce_private.batches")[0][0]
    )
    assert 3 * 86_400 <= lag["slow"]["freshness_seconds"] < 3 * 86_400 + 3600


def test_input_from_the_future_is_no_negative_lag(stages: Stages) -> None:
    """The clock was set back since."""
    stages.receive(-50_000)

    assert stages.lag()["slow"]["system_lag_seconds"] == 0
    assert stages.lag()["slow"]["batches_waiting"] == 1


def test_only_live_incarnations_are_shown_and_a_new_incarnation_begins_where_it_was_told(stages: Stages) -> None:
    """A closed one lags no more; the next counts from its start, not from the beginning of `events`."""
    for age in (50_000, 40_000):
        stages.receive(age)
    old = stages.drivers["slow"]
    Incarnations(stages.log.database).set_state(old.incarnation, "closed")
    stages.log.start("shop", "slow")
    stages.log.rows(
        "UPDATE onlyonce_private.incarnations SET start_from = '{\"version\": 2}' WHERE incarnation = 'shop/slow/2'"
    )
    bounded = Stages(stages.log, "shop@1")
    Incarnations(stages.log.database).close_instance("shop@1")
    lag = stages.lag()

    assert lag["slow"]["incarnation"] == "shop/slow/2"
    assert lag["slow"]["batches_waiting"] == 1
    assert bounded.lag() == {}
