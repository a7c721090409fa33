"""The supervision of a long run, on a real commit log; in the place of spark-submit stands a driver without Spark."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tests.dags.conftest  # noqa: F401 - gives Airflow a folder of its own

# isort: split
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred

from onlyonce.airflow.stream_job import StreamOperator
from onlyonce.commitlog import lineages, long_runs
from onlyonce.database.connect import Database, forget_connections, run
from onlyonce.database.migrate import migrate
from onlyonce.model.run.long_run import LongRun
from onlyonce.settings import ROOT
from tests.support.platform import Server

FOREVER = {"mode": "forever", "every": 2, "close": False, "bounded": False, "max_files": None, "dry_run": False}
BEAT = timedelta(minutes=1)

# Takes the place in the log as the driver does, or ends before with a code; tells how it was started.
SUBMIT = """#!{python}
import json, os, sys
sys.path.insert(0, {root!r})
from datetime import timedelta
from onlyonce.commitlog import long_runs
from onlyonce.database.connect import Database, run
with open({told!r}, "a") as file:
    print(json.dumps([sys.argv, os.getsid(0) == os.getpid()]), file=file)
if {code}:
    sys.exit({code})
beat = timedelta(minutes=1)
run(Database(os.environ["ONLYONCE_DATABASE_URL"]),
    lambda conn: long_runs.take(conn, "flights", "run", "driver:%s" % os.getpid(), every=beat, beat=beat))
"""


@dataclass
class Task:
    """What the operator asks of its task instance."""

    dag_id: str = "stream_flights"
    task_id: str = "drain"
    run_id: str = "manual__1"
    map_index: int = -1
    try_number: int = 1

    def xcom_push(self, *, key: str, value: Any) -> None:
        """Nobody reads it here."""


@dataclass
class World:
    """A log, and the drivers that were started."""

    database: Database
    folder: Path

    def drivers_end_with(self, code: int) -> None:
        """Before they take their place; 0: they take it."""
        script = self.folder / "spark-submit"
        script.write_text(
            SUBMIT.format(python=sys.executable, root=str(ROOT), told=str(self.folder / "told"), code=code)
        )
        script.chmod(0o755)

    def started(self) -> list[Any]:
        """The command line of each driver, and whether it leads a session."""
        told = self.folder / "told"
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

    def take(self, driver: str = "m:1:a") -> long_runs.Taken:
        """A driver that somebody else has started."""
        return self.log(lambda conn: long_runs.take(conn, "flights", "shell", driver, every=BEAT, beat=BEAT))

    def log(self, work: Callable[[Any], Any]) -> Any:
        """Something in the log."""
        return run(self.database, work)

    def known(self) -> LongRun:
        """The last long run."""
        found: LongRun = self.log(lambda conn: long_runs.look(conn, "flights"))
        return found


@pytest.fixture
def world(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    name = server.new_database()
    url = server.url("writer", name)
    for variable, value in {
        "ONLYONCE_DATABASE_URL": url,
        "ONLYONCE_HOME": str(tmp_path),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    }.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("AIRFLOW_CONN_ONLYONCE", raising=False)
    migrate(url)
    made = World(Database(url), tmp_path)
    made.log(lambda conn: lineages.add_instance(conn, "flights", "flights"))
    made.drivers_end_with(0)
    yield made
    forget_connections()
    server.drop(name)


def operator() -> StreamOperator:
    with DAG("stream_flights"):
        return StreamOperator(task_id="drain", pipeline="flights")


def execute(**params: Any) -> None:
    """A try of the task begins."""
    operator().execute({"params": {**FOREVER, **params}, "run_id": "manual__1", "ti": Task()})


def resume(**waited: Any) -> None:
    """The trigger has fired."""
    context = {"params": FOREVER, "run_id": "manual__1", "ti": Task()}
    operator().resume(context, {"problem": None}, **waited)


def deferred(work: Callable[[], None]) -> Any:
    """Does what ends in a wait; gives what Airflow is told of it, through its own serialization."""
    with pytest.raises(TaskDeferred) as waits:
        work()
    path, stored = waits.value.trigger.serialize()
    module, name = path.rsplit(".", 1)
    trigger = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(stored)))
    assert waits.value.method_name == "resume"
    return trigger, waits.value.kwargs


def test_it_starts_a_driver_that_outlives_the_task_and_waits_without_a_worker(world: World) -> None:
    """In a session of its own; and what Airflow stores of the wait holds no secret."""
    trigger, kwargs = deferred(execute)

    [(argv, leads)] = world.started()
    assert argv[argv.index(str(ROOT / "onlyonce" / "run" / "stream.py")) + 1 :] == [
        "flights", "--run-id=manual__1", "--forever", "--every=2"
    ]  # fmt: skip
    assert leads
    assert kwargs == {"ours": True}
    assert trigger.serialize()[1] == {"pipeline": "flights", "supervisor": "stream_flights/manual__1/1"}
    assert (world.folder / "logs" / "long-run-flights.log").exists()


def test_it_attaches_to_the_one_that_is_alive(world: World) -> None:
    """However often it is asked: after a clear, by a second run, beside a shell."""
    world.take()
    assert [deferred(execute)[1], deferred(execute)[1]] == [{"ours": True}] * 2
    assert world.started() == []
    assert world.known().attempt == 1


def test_it_waits_for_one_that_is_stopping_and_then_starts_its_own(world: World) -> None:
    """So a run that was cleared, which asks its driver to stop, really runs again, and never beside it."""
    taken = world.take()
    world.log(lambda conn: long_runs.ask_stop(conn, "flights"))
    assert deferred(execute)[1] == {"ours": False}
    assert deferred(lambda: resume(ours=False))[1] == {"ours": False}
    assert world.started() == []
    world.log(lambda conn: long_runs.end(conn, taken, 1, 0, None))

    assert deferred(lambda: resume(ours=False))[1] == {"ours": True}
    assert len(world.started()) == 1
    assert world.known().attempt == 2


@pytest.mark.parametrize("code, fatal", [(1, False), (75, False), (64, True), (70, True)])
def test_a_driver_that_ends_before_it_is_at_work_fails_the_task_as_that_of_a_drain(
    world: World, code: int, fatal: bool
) -> None:
    """By its exit code: with retries, or for good."""
    world.drivers_end_with(code)
    with pytest.raises(AirflowException, match=f"exit code {code}") as failure:
        execute()
    assert isinstance(failure.value, AirflowFailException) == fatal


def test_what_a_long_run_cant_do_is_refused_before_it_starts(world: World) -> None:
    """As the driver would refuse it."""
    with pytest.raises(AirflowFailException, match="close and bounded"):
        execute(close=True, bounded=True)
    assert world.started() == []


@pytest.mark.parametrize(
    "turns, code, asked, does",
    [
        (1, 0, True, "done"),
        (0, 0, False, "done"),
        (1, None, True, "done"),
        (1, None, False, "start"),
        (1, 75, False, "start"),
        (0, 75, False, AirflowException),
        (0, None, False, AirflowException),
        (1, 70, False, AirflowFailException),
    ],
)
def test_when_the_heartbeat_ends_the_log_decides(
    world: World, turns: int, code: int | None, asked: bool, does: Any
) -> None:
    """Stopped as asked: the task has succeeded. Died: it is started again. Never got to work: Airflow's retries bound it."""
    taken = world.take()
    world.log(lambda conn: long_runs.beat(conn, taken, turns))
    if asked:
        world.log(lambda conn: long_runs.ask_stop(conn, "flights"))
    if code is None:
        late = "UPDATE onlyonce_private.long_runs SET heartbeat_at = heartbeat_at - interval '1 day'"
        world.log(lambda conn: conn.exec_driver_sql(late))
    else:
        world.log(lambda conn: long_runs.end(conn, taken, turns, code, "why"))

    if does == "done":
        resume(ours=True)
    elif does == "start":
        assert deferred(lambda: resume(ours=True))[1] == {"ours": True}
    else:
        with pytest.raises(AirflowException, match=r"why|heartbeat") as failure:
            resume(ours=True)
        assert type(failure.value) is does
    assert len(world.started()) == (does == "start")


def test_one_that_somebody_else_started_meanwhile_is_watched(world: World) -> None:
    """The event is a look of some seconds ago; what counts is the log now."""
    world.take()
    assert deferred(lambda: resume(ours=True))[1] == {"ours": True}
    assert world.started() == []


def test_a_task_that_a_person_ends_asks_its_driver_to_stop_and_no_other_ones(world: World) -> None:
    """The second run attaches, so what ends the first does not end the driver; what ends the second does."""
    first, _ = deferred(execute)
    again = {"params": FOREVER, "run_id": "manual__2", "ti": Task(run_id="manual__2")}
    second, _ = deferred(lambda: operator().execute(again))

    asyncio.run(first.on_kill())
    still = world.known()
    asyncio.run(second.on_kill())

    assert not still.stop_asked
    assert world.known().stop_asked


def test_a_drain_beside_a_long_run_is_skipped(world: World) -> None:
    """The schedule goes on without red runs; what asks for more than a drain is the driver's to refuse."""
    trigger, _ = deferred(execute)
    with pytest.raises(AirflowSkipException, match="attempt 1"):
        execute(mode="drain")
    assert len(world.started()) == 1
    assert world.log(lambda conn: long_runs.ask_stop(conn, "flights", trigger.supervisor))
    world.drivers_end_with(69)
    with pytest.raises(AirflowFailException, match="exit code 69"):
        execute(mode="drain", close=True)
