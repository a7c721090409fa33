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
from sqlalchemy.engine import make_url

import tests.dags.conftest  # noqa: F401 - gives Airflow a folder of its own

# isort: split
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors

from onlyonce.airflow import log as airflow_log
from onlyonce.airflow.stream_job import StreamOperator
from onlyonce.commitlog import drivers
from onlyonce.commitlog.drivers import DriverRun, DriverRuns, LongRuns
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.core.errors import DatabaseAway
from onlyonce.core.runs import LongRun
from onlyonce.database.connect import Database, forget_connections, run
from onlyonce.database.migrate import migrate
from onlyonce.operate import assets
from onlyonce.settings import ROOT
from tests.support.platform import Server

FOREVER = {"mode": "continuous", "every": 2, "close": False, "bounded": False, "max_files": None, "dry_run": False}
BEAT = timedelta(minutes=1)

# Takes the place in the log as the driver does, or ends before with a code; tells how it was started.
SUBMIT = """#!{python}
import json, os, sys
sys.path.insert(0, {root!r})
from datetime import timedelta
from onlyonce.commitlog.drivers import LongRuns
from onlyonce.database.connect import Database
with open({told!r}, "a") as file:
    print(json.dumps([sys.argv, os.getsid(0) == os.getpid()]), file=file)
if {code}:
    sys.exit({code})
beat = timedelta(minutes=1)
LongRuns(Database(os.environ["ONLYONCE_DATABASE_URL"])).take(
    "flights", "run", "driver:%s" % os.getpid(), every=beat, beat=beat)
"""


@dataclass
class Task:
    """What the operator asks of its task instance."""

    dag_id: str = "flights_stream"
    task_id: str = "run"
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

    def take(self, driver: str = "m:1:a") -> drivers.Taken:
        """A driver that somebody else has started."""
        return self.log(lambda conn: LongRuns(conn).take("flights", "shell", driver, every=BEAT, beat=BEAT))

    def log(self, work: Callable[[Any], Any]) -> Any:
        """Something in the log."""
        return run(self.database, work)

    def known(self) -> LongRun:
        """The last long run."""
        found: LongRun = self.log(lambda conn: LongRuns(conn).look("flights"))
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
    monkeypatch.delenv("AIRFLOW_CONN_ONLYONCE_DB", raising=False)
    migrate(url)
    made = World(Database(url), tmp_path)
    made.log(lambda conn: Incarnations(conn).add_instance("flights", "flights"))
    made.drivers_end_with(0)
    yield made
    forget_connections()
    server.drop(name)


def operator() -> StreamOperator:
    with DAG("flights_stream"):
        return StreamOperator(task_id="run", pipeline="flights")


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
    """In a session of its own; and what Airflow stores of the wait holds no password."""
    trigger, kwargs = deferred(execute)

    [(argv, leads)] = world.started()
    assert argv[argv.index(str(ROOT / "onlyonce" / "run" / "stream.py")) + 1 :] == [
        "flights", "--run-id=manual__1", "--dag-id=flights_stream", "--continuous", "--every=2"
    ]  # fmt: skip
    assert leads
    assert kwargs == {"ours": True}
    stored = trigger.serialize()[1]
    assert stored.keys() == {"pipeline", "supervisor"}
    assert stored["supervisor"].startswith("flights_stream/manual__1/1/")
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
    world.log(lambda conn: LongRuns(conn).ask_stop("flights"))
    assert deferred(execute)[1] == {"ours": False}
    assert deferred(lambda: resume(ours=False))[1] == {"ours": False}
    assert world.started() == []
    world.log(lambda conn: LongRuns(conn).end(taken, 1, 0, None))

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
    "rounds, code, asked, does",
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
    world: World, rounds: int, code: int | None, asked: bool, does: Any
) -> None:
    """Stopped as asked: the task has succeeded.

    Died: it is started again. Never got to work: Airflow's retries bound it.
    """
    taken = world.take()
    world.log(lambda conn: LongRuns(conn).beat(taken, rounds))
    if asked:
        world.log(lambda conn: LongRuns(conn).ask_stop("flights"))
    if code is None:
        late = "UPDATE onlyonce_private.long_runs SET heartbeat_at = heartbeat_at - interval '1 day'"
        world.log(lambda conn: conn.exec_driver_sql(late))
    else:
        world.log(lambda conn: LongRuns(conn).end(taken, rounds, code, "why"))

    if does == "done":
        resume(ours=True)
    elif does == "start":
        assert deferred(lambda: resume(ours=True))[1] == {"ours": True}
    else:
        with pytest.raises(AirflowException, match=r"why|heartbeat") as failure:
            resume(ours=True)
        assert type(failure.value) is does
    assert len(world.started()) == (does == "start")


@pytest.mark.parametrize("away", [False, True])
def test_the_tables_of_a_stopped_run_are_told_and_a_silent_log_does_not_start_it_again(
    world: World, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    """Those of the run whose driver it was, too. What is not told is noted, and told with the next good end."""
    asked: list[tuple[str, ...]] = []

    def committed(*of: str) -> list[dict[str, Any]]:
        asked.append(of)
        if away:
            raise DatabaseAway("the database did not answer")
        return [{"output": "per_carrier"}]

    monkeypatch.setattr(assets, "committed", committed)
    taken = world.take()
    attempt, _ = DriverRuns(world.database).begin("flights_stream", "manual__1", "flights")
    DriverRuns(world.database).end("flights_stream", "manual__1", "flights", DriverRun(attempt, 0, None))
    world.log(lambda conn: LongRuns(conn).ask_stop("flights"))
    world.log(lambda conn: LongRuns(conn).end(taken, 1, 0, None))
    events = OutletEventAccessors()

    operator().resume(
        {"params": FOREVER, "run_id": "manual__1", "ti": Task(), "outlet_events": events}, {"problem": None}, ours=True
    )

    told = [event.dest_asset_key.name for event in events[airflow_log.alias("flights")].asset_alias_events]
    known = DriverRuns(world.database).look("flights_stream", "manual__1", "flights")
    assert asked == [("flights", "flights_stream", "manual__1", world.known().run_id)]
    assert (told, known and known.exit_code) == (([], 75) if away else (["flights/per_carrier"], 0))
    assert world.started() == []


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
        execute(mode="once")
    assert len(world.started()) == 1
    assert world.log(lambda conn: LongRuns(conn).ask_watched_to_stop(trigger.supervisor))
    world.drivers_end_with(69)
    with pytest.raises(AirflowFailException, match="exit code 69"):
        execute(mode="once", close=True)


# Where a pod ends with its task.

LIVES = """#!{python}
import os, sys
sys.path.insert(0, {root!r})
from datetime import timedelta
from onlyonce.commitlog import drivers
from onlyonce.commitlog.drivers import LongRuns
from onlyonce.database.connect import Database
print("the driver says this")
database, beat = Database(os.environ.get("ONLYONCE_DATABASE_URL") or {url!r}), timedelta(minutes=1)
with drivers.noted_run(database, "flights_stream", "manual__1", "flights"):
    long_runs = LongRuns(database)
    taken = long_runs.take("flights", "manual__1", "driver:%s" % os.getpid(), every=beat, beat=beat)
    long_runs.beat(taken, 1)
    count = int(open({count!r}).read() or 0) + 1 if os.path.exists({count!r}) else 1
    open({count!r}, "w").write(str(count))
    long_runs.end(taken, 1, 1 if count < {deaths} else 0, None)
sys.exit({code} if {code} is not None else (1 if count < {deaths} else 0))
"""


def drivers_live(world: World, deaths: int, code: int | None = None) -> Path:
    """Each takes its place and ends; the one after so many deaths as it was asked to. Gives where they are counted."""
    counted = world.folder / "counted"
    script = world.folder / "spark-submit"
    script.write_text(
        LIVES.format(
            python=sys.executable, root=str(ROOT), url=world.database.url, count=str(counted), deaths=deaths, code=code
        )
    )
    script.chmod(0o755)
    return counted


def test_where_a_pod_ends_with_its_task_the_task_stays_with_its_driver(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is the task's own child, whose output is in the task's log; when it dies it is started again, until it was
    asked to stop."""
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "KubernetesExecutor")
    counted = drivers_live(world, deaths=3)
    execute()

    assert counted.read_text() == "3"
    assert world.known().attempt == 3
    assert "the driver says this" in "".join(capfd.readouterr())


def test_a_task_that_stays_looks_at_a_driver_that_is_not_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And has succeeded when that one was stopped; it starts none beside it.

    Who ends the task asks that one to stop.
    """
    taken = world.take()
    task = operator()
    task.workers_outlive_tasks = False

    def looked(_: float) -> None:
        task.on_kill()
        assert world.known().stop_asked
        world.log(lambda conn: LongRuns(conn).end(taken, 1, 0, None))

    monkeypatch.setattr("onlyonce.airflow.stream_job.time.sleep", looked)
    task.execute({"params": FOREVER, "run_id": "manual__1", "ti": Task()})
    assert world.started() == []


# Where the driver is in a cluster.


@pytest.mark.parametrize("submitted", [0, 1])
def test_the_end_of_a_driver_in_a_cluster_is_the_logs_word(
    world: World, monkeypatch: pytest.MonkeyPatch, submitted: int
) -> None:
    """Whatever becomes of the process that submitted it."""
    in_cluster(world, monkeypatch)
    counted = drivers_live(world, deaths=1, code=submitted)
    drain()

    assert counted.read_text() == "1"


def test_a_driver_in_a_cluster_that_failed_by_the_log_fails_the_task(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its exit code, also where the submission succeeded; and one that never began by that of the submission."""
    in_cluster(world, monkeypatch)
    world.drivers_end_with(64)
    with pytest.raises(AirflowFailException, match="exit code 64"):
        drain()


def test_the_secrets_of_a_driver_in_a_cluster_go_by_a_file_of_this_account_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It exists only while the driver is submitted; what spark-submit would have found is in it too.

    Executors get the store's keys, not the database's URL. The driver also gets each variable that the declaration
    names."""
    in_cluster(world, monkeypatch)
    declared = world.folder / "declared.py"
    declared.write_text(NAMES_VARIABLES)
    named = {
        "MAIL_URL": "https://mail.example/h00k",
        "MAIL_KEY": "whsec_c2VjcmV0",
        "TEST_MYSQL": "mysql://u:sh0p@db/shop",
    }
    for name, value in {**named, "ONLYONCE_PIPELINES": str(declared), "UNNAMED": "x"}.items():
        monkeypatch.setenv(name, value)
    store = {
        "conn_type": "aws",
        "login": "AKIAOURS",
        "password": "store-s3cret",
        "extra": {"region_name": "eu-central-1"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_ONLYONCE_STORE", json.dumps(store))
    (world.folder / "spark-defaults.conf").write_text("spark.theirs  1\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(world.folder))
    (world.folder / "spark-submit").write_text(
        f"#!{sys.executable}\nimport json, os, sys\npath = sys.argv[sys.argv.index('--properties-file') + 1]\n"
        "json.dump([sys.argv, path, oct(os.stat(path).st_mode), open(path).read()], "
        f"open({str(world.folder / 'told')!r}, 'w'))\n"
        "sys.exit(64)\n"
    )
    with pytest.raises(AirflowFailException):
        drain()

    argv, path, mode, text = json.loads((world.folder / "told").read_text())
    secret = world.database.url
    assert mode.endswith("600")
    assert f"spark.yarn.appMasterEnv.ONLYONCE_DATABASE_URL {secret}" in text.replace(
        "postgres://", "postgresql+psycopg2://"
    )
    assert "spark.theirs 1" in text
    of_executors = {
        line.split(" ")[0].rpartition(".")[2] for line in text.splitlines() if line.startswith("spark.executorEnv.")
    }
    assert of_executors == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"}
    assert [word for word in (secret, "store-s3cret", *named.values()) if word in " ".join(argv)] == []
    assert {f"spark.yarn.appMasterEnv.{name} {value}" for name, value in named.items()} <= {*text.splitlines()}
    assert "UNNAMED" not in text
    assert not Path(path).exists()


NAMES_VARIABLES = """
from dataclasses import replace
from onlyonce import Webhook
from tests.support.mysql_shop import PIPELINES as OF_MYSQL
mails = replace(OF_MYSQL[0].outputs[2], name="mails", sink=Webhook(connection="MAIL_URL", secret="MAIL_KEY"))
PIPELINES = [replace(OF_MYSQL[0], name="flights", outputs=(*OF_MYSQL[0].outputs, mails))]
"""


def test_a_driver_of_kubernetes_has_its_application_in_its_image(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the place that it has here, and nothing is uploaded.

    Where the worker has no connections, Secrets of the cluster are all that has a secret.
    """
    in_cluster(world, monkeypatch, "k8s://https://host:6443")
    monkeypatch.delenv("AIRFLOW_CONN_ONLYONCE_DB")
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", object(), raising=False)
    (world.folder / "spark-submit").write_text(
        f"#!{sys.executable}\nimport json, sys\npath = sys.argv[sys.argv.index('--properties-file') + 1]\n"
        f"json.dump([sys.argv, open(path).read()], open({str(world.folder / 'told')!r}, 'w'))\nsys.exit(64)\n"
    )
    task = operator()
    task.env_vars = {"ONLYONCE_HOME": "/tmp/onlyonce"}
    with pytest.raises(AirflowFailException):
        task.execute({"params": {**FOREVER, "mode": "once"}, "run_id": "manual__1", "ti": Task()})

    argv, text = json.loads((world.folder / "told").read_text())
    assert f"local://{ROOT / 'onlyonce' / 'run' / 'stream.py'}" in argv
    assert "spark.kubernetes.driverEnv.ONLYONCE_HOME=/tmp/onlyonce" in argv
    assert "DATABASE_URL" not in text.replace("database_url", "")
    assert world.database.url not in text


def in_cluster(world: World, monkeypatch: pytest.MonkeyPatch, master: str = "yarn") -> None:
    """Spark's connection asks for it, and the database is an Airflow connection."""
    url = make_url(world.database.url)
    database = {"conn_type": "postgres", "host": url.host, "port": url.port, "login": url.username, "password": url.password, "schema": url.database, "extra": dict(url.query)}  # fmt: skip
    spark = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    monkeypatch.setenv("AIRFLOW_CONN_ONLYONCE_DB", json.dumps(database))
    monkeypatch.setattr("onlyonce.airflow.spark_job.LOOK_SECONDS", 0.0)


def drain() -> None:
    """A drain of the pipeline."""
    operator().execute({"params": {**FOREVER, "mode": "once"}, "run_id": "manual__1", "ti": Task()})


def test_a_try_that_fails_after_its_drivers_good_end_has_not_ended_well(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver of the next try continues its work. After a good end it would begin it again, as in a cleared run."""

    def away(*_: str) -> None:
        raise DatabaseAway("the store did not answer")

    monkeypatch.setattr(assets, "committed", away)
    drivers_live(world, deaths=1)
    once = {"params": FOREVER | {"mode": "once"}, "run_id": "manual__1", "outlet_events": OutletEventAccessors()}
    with pytest.raises(DatabaseAway):
        operator().execute(once | {"ti": Task()})

    known = drivers.DriverRuns(world.database).look("flights_stream", "manual__1", "flights")
    assert known == drivers.DriverRun(1, DatabaseAway.exit_code, "the store did not answer")
