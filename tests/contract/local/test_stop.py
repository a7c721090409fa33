"""Stop holds the schedules and waits for the run in work; it kills nothing.

A real PostgreSQL, a stand-in of Airflow's API.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import cast

import psutil
import pytest
from rich.console import Console

from onlyonce.commitlog.drivers import LongRuns
from onlyonce.core.errors import OnlyonceError, Refused, Retryable
from onlyonce.local import airflow_api, airflow_server, platform, postgres, processes
from onlyonce.local.airflow_api import AirflowApi
from tests.contract.shop import Shop, at, shop
from tests.local import test_schedules
from tests.local.test_schedules import Airflow, airflow

__all__ = ["airflow", "shop"]


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks nothing is waited for."""
    monkeypatch.setattr(airflow_api, "LOOK_EVERY_SECONDS", 0.0)


@pytest.fixture
def api(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> Callable[[], AirflowApi]:
    """Airflow has the DAGs of the shop, with a run whose tasks are done."""
    monkeypatch.setattr(test_schedules, "DAGS", ["shop_stream", "shop_backfill", "mill_stream"])
    airflow.running = {"shop_stream": ["scheduled__1"]}
    return lambda: test_schedules.api(airflow)


def test_it_returns_when_the_driver_has_ended(shop: Shop, airflow: Airflow, api: Callable[[], AirflowApi]) -> None:
    """Its schedules are held from the start; what it waits for is told, with how far the driver is."""
    shop.receive(("a", at(0)))
    shop.work()
    told: list[list[str]] = []

    def watch(working: list[str]) -> None:
        told.append(working)
        assert airflow.paused == {"shop_stream": True, "shop_backfill": True}
        if len(told) == 3:
            shop.die()  # as it does at the end of its run

    report = airflow_api.stop_runs("shop", patience_seconds=60, airflow=api, watch=watch)

    assert len(told) == 3
    assert "shop/receive/1 has committed batch 0" in told[0]
    assert report.title == "shop: stopped"


@pytest.mark.parametrize(
    "state, waits", [("running", True), ("queued", False), ("deferred", False), ("up_for_retry", False)]
)
def test_a_task_at_work_is_waited_for_and_one_that_is_held_is_not(
    shop: Shop, airflow: Airflow, api: Callable[[], AirflowApi], state: str, waits: bool
) -> None:
    """A driver that was just submitted has no session yet."""
    airflow.tasks = [{"task_id": "run", "state": state}]
    told: list[list[str]] = []

    def watch(working: list[str]) -> None:
        told.append(working)
        airflow.tasks = []

    airflow_api.stop_runs("shop", patience_seconds=60, airflow=api, watch=watch)

    assert told == ([["task run of shop_stream, scheduled__1"]] if waits else [])


def test_when_the_patience_ends_the_run_goes_on(shop: Shop) -> None:
    """It says so, with the command to go on waiting; the driver keeps its session."""
    shop.receive(("a", at(0)))
    shop.work()

    with pytest.raises(Retryable, match="still running") as late:
        airflow_api.stop_runs("shop", patience_seconds=0, airflow=None)

    assert "was not killed" in late.value.data
    assert shop.log.rows("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'onlyonce/%%/%%'") != [(0,)]


def test_a_long_run_is_asked_to_stop_and_its_end_is_waited_for(shop: Shop) -> None:
    """It lives by its heartbeat, also between two rounds, where it has no session."""
    shop.receive(("a", at(0)))
    beat = timedelta(minutes=1)
    taken = LongRuns(shop.log.database).take("shop", "run", "driver 1", every=beat, beat=beat)
    told: list[list[str]] = []

    def watch(working: list[str]) -> None:
        told.append(working)
        if LongRuns(shop.log.database).beat(taken, 3) and len(told) == 2:
            LongRuns(shop.log.database).end(taken, 3, 0, None)
            shop.die()

    report = airflow_api.stop_runs("shop", patience_seconds=60, airflow=None, watch=watch)

    assert [working[0] for working in told] == [f"the continuous run on driver 1 has done {n} rounds" for n in (0, 3)]
    assert report.facts["long run"] == "asked to stop"


@pytest.mark.parametrize("error", [Retryable("Airflow does not answer"), Refused("Airflow has no DAG of shop")])
def test_a_continuous_run_at_a_shell_is_stopped_without_airflow(shop: Shop, error: OnlyonceError) -> None:
    """The report says that no schedule was held. Without such a run the error is raised, and names the option."""

    def airflow() -> AirflowApi:
        raise error

    beat = timedelta(minutes=1)
    taken = LongRuns(shop.log.database).take("shop", "run", "driver 1", every=beat, beat=beat)

    def watch(_: list[str]) -> None:
        assert LongRuns(shop.log.database).beat(taken, 1)  # it is asked to stop
        LongRuns(shop.log.database).end(taken, 1, 0, None)

    report = airflow_api.stop_runs("shop", patience_seconds=60, airflow=airflow, watch=watch)

    assert report.facts["long run"] == "asked to stop"
    assert report.warnings[0].startswith(f"no schedule was held: {error.what}. ")
    with pytest.raises(type(error)) as raised:
        airflow_api.stop_runs("shop", patience_seconds=60, airflow=airflow)
    assert "onlyonce stop shop --shell" in raised.value.hint


@pytest.mark.parametrize("of_airflow", [False, True])
def test_down_asks_a_continuous_run_of_a_shell_to_stop(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, of_airflow: bool
) -> None:
    """A run of Airflow's is not asked: it would not be started again by `up`. Another run at work is named."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.setattr(platform, "_by_log", lambda work: work(shop.log.database))
    monkeypatch.setattr(platform, "_RUN_PATIENCE", 0.0)  # the process is this one
    monkeypatch.setattr(processes, "ours", lambda _: [psutil.Process()] if of_airflow else [])
    for module, name in ((airflow_server, "stop"), (postgres, "stop"), (postgres, "last_resort_kill")):
        monkeypatch.setattr(module, name, lambda *_: None)
    shop.receive(("a", at(0)))
    shop.work()
    beat = timedelta(minutes=1)
    name = f"host:{os.getpid()}:abc"
    taken = LongRuns(shop.log.database).take("shop", "run", name, every=beat, beat=beat)
    out = Console(file=StringIO(), width=1000)

    platform.down(out)

    said = cast(StringIO, out.file).getvalue()
    assert (f"the continuous run of shop (process {os.getpid()}) stops after its current batch" in said) != of_airflow
    assert LongRuns(shop.log.database).beat(taken, 1) != of_airflow
    assert "! a run of shop is at work" in said
    LongRuns(shop.log.database).end(taken, 1, 0, None)
    shop.die()


def test_another_pipelines_driver_is_not_waited_for(shop: Shop) -> None:
    """Only its own incarnations count."""
    shop.work()

    assert airflow_api.stop_runs("mill", patience_seconds=0, airflow=None).title == "mill: stopped"
