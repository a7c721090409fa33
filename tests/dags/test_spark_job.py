"""The operator: what it starts, what it keeps secret, and what the driver's exit code means to it."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk import DAG, Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from onlyonce.airflow.jobs import WHO_ACTS, outcome
from onlyonce.airflow.log import url_of
from onlyonce.airflow.spark_job import IVY, SparkJobOperator, arguments, end_tree, places
from onlyonce.api import load as declarations
from onlyonce.core.errors import EXIT_CODES
from onlyonce.database.connect import Database
from onlyonce.settings import ROOT, within
from tests.dags.conftest import PASSWORD, TaskInstance

QUOTED = "p%40ss%2Fw%25rd%3A%C3%B6"


@pytest.fixture
def submit(submits: Callable[..., Any]) -> Callable[..., Any]:
    """Runs the operator's `execute` with a spark-submit that ends with `code`."""

    def run(code: int = 0, **params: Any) -> Any:
        context = {"params": params, "run_id": "manual__1", "ti": TaskInstance()}
        return submits(lambda: operator().execute(context), code)

    return run


def operator() -> SparkJobOperator:
    with DAG("d"):
        return SparkJobOperator(task_id="run", pipeline="flights")


@pytest.mark.parametrize("base, path", [
    ("http://airflow:8080", "/dags/flights_stream/runs/manual__1%2B00%3A00/plugin/commits"),
    ("https://host/some/path/", "/some/path/dags/flights_stream/runs/manual__1%2B00%3A00/plugin/commits"),
    ("", "/dags/flights_stream/runs/manual__1%2B00%3A00/plugin/commits"),
])  # fmt: skip
def test_a_task_links_to_the_commits_of_its_run_from_its_start(
    submits: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, base: str, path: str
) -> None:
    """Under the key at which Airflow looks for the link, as a path, whatever name Airflow is reached by."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base)
    task = TaskInstance(run_id="manual__1+00:00")
    submits(lambda: operator().execute({"params": {}, "run_id": "manual__1", "ti": task}), 0)

    [link] = operator().operator_extra_links
    assert task.kept == {link.xcom_key: path}
    assert link.get_link(operator(), ti_key=task) == path


def test_it_submits_the_installed_application_with_the_settings_of_the_jvm(submit: Callable[..., Any]) -> None:
    argv = submit(close=True).argv
    at = argv.index(str(ROOT / "onlyonce" / "run" / "stream.py"))
    assert argv[at + 1 :] == ["flights", "--run-id=manual__1", "--dag-id=flights_stream", "--close"]
    assert argv[1:3] == ["--master", "local[2,4]"]
    settings = {part.split("=")[0] for part in argv[:at] if part.startswith("spark.")}
    assert {"spark.driver.extraClassPath", "spark.driver.memory", "spark.sql.extensions"} <= settings


def test_the_driver_gets_its_python_and_its_master(submit: Callable[..., Any]) -> None:
    env = submit().env
    assert env["PYSPARK_PYTHON"] == env["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert env["ONLYONCE_MASTER"] == "local[2,4]"
    assert env["PYTHONSAFEPATH"] == "1"
    assert "PYTHONSAFEPATH" not in os.environ


def test_the_password_goes_by_the_environment_alone(
    submit: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    given = submit()
    log = "".join(capfd.readouterr())
    assert given.env["ONLYONCE_DATABASE_URL"] == f"postgresql+psycopg2://w:{QUOTED}@db:5432/d"
    assert "Spark-Submit cmd" in log
    assert "unit=a/receive/1/0 epoch=3" in log
    for text in (log, *given.argv):
        assert PASSWORD not in text
        assert QUOTED not in text
    assert "ONLYONCE_DATABASE_URL" not in os.environ


KEYS = {"login": "AKIAOURS", "password": "store-s3cret"}
EXTRA = {"region_name": "eu-central-1", "endpoint_url": "http://store:9000", "aws_session_token": "store-t0ken"}


def store_is(monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    """The connection of the object store."""
    monkeypatch.setenv("AIRFLOW_CONN_ONLYONCE_STORE", json.dumps({"conn_type": "aws", **KEYS} | more))


def test_the_keys_of_the_store_go_by_the_environment_alone(
    submit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    store_is(monkeypatch, extra=json.dumps(EXTRA))
    given = submit()
    log = "".join(capfd.readouterr())
    wanted = {
        "AWS_ACCESS_KEY_ID": "AKIAOURS", "AWS_SECRET_ACCESS_KEY": "store-s3cret", "AWS_SESSION_TOKEN": "store-t0ken",
        "AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "http://store:9000",
    }  # fmt: skip
    assert {name: given.env[name] for name in wanted} == wanted
    for text in (log, *given.argv):
        assert "store-s3cret" not in text
        assert "store-t0ken" not in text
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ


@pytest.mark.parametrize("wrong", [{"conn_type": "wasb"}, {"extra": json.dumps({"role_arn": "arn:aws:iam::1:role/r"})}])
def test_a_connection_that_not_all_clients_of_the_store_would_follow_starts_nothing(
    submit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str]
) -> None:
    store_is(monkeypatch, **wrong)
    with pytest.raises(AirflowFailException, match="onlyonce_store"):
        submit()


def test_without_the_connection_the_driver_inherits_the_url(
    submit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_ONLYONCE_DB")
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql+psycopg2://inherited")
    assert submit().env["ONLYONCE_DATABASE_URL"] == "postgresql+psycopg2://inherited"


@pytest.mark.parametrize("name, kind", [("spark_default", "spark"), ("onlyonce_db", "postgres")])
def test_a_missing_connection_is_named_with_the_command_that_adds_it(
    submit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, kind: str
) -> None:
    """Airflow's standalone mode has neither. Spark's is not taken for YARN's."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.delenv(f"AIRFLOW_CONN_{name.upper()}")
    with pytest.raises(AirflowFailException) as failure:
        submit()

    what, data, hint = str(failure.value).splitlines()
    assert f"no connection {name}" in what
    assert "nothing was started" in data
    assert f"airflow connections add {name} --conn-type {kind}" in hint


@pytest.mark.parametrize("code, fatal", [(1, False), (137, False), (75, False), (64, True), (69, True), (70, True)])
def test_the_exit_code_decides_whether_the_task_is_retried(submit: Callable[..., Any], code: int, fatal: bool) -> None:
    with pytest.raises(AirflowException, match=f"exit code {code}") as failure:
        submit(code)
    assert isinstance(failure.value, AirflowFailException) == fatal


def test_each_of_our_exit_codes_says_who_acts() -> None:
    assert set(WHO_ACTS) == set(EXIT_CODES.values())
    for code, kind in EXIT_CODES.items():
        assert kind.__name__ in str(outcome(AirflowException(f"Cannot execute: x. Error code is: {code}.")))


def test_ivys_list_of_jars_is_not_in_the_log_of_a_task() -> None:
    """Other lines are, and among them the dependencies that Ivy does not find."""
    ivy = """:: loading settings :: url = jar:file:/spark/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
    Ivy Default Cache set to: /root/.ivy2.5.2/cache
    The jars for the packages stored in: /root/.ivy2.5.2/jars
    io.delta#delta-spark_4.2_2.13 added as a dependency
    :: resolving dependencies :: org.apache.spark#spark-submit-parent-1;1.0
    confs: [default]
    found io.delta#delta-spark_4.2_2.13;4.4.0 in central
    :: resolution report :: resolve 153ms :: artifacts dl 5ms
    :: modules in use:
    io.delta#delta-spark_4.2_2.13;4.4.0 from central in [default]
    :: evicted modules:
    org.slf4j#slf4j-api;2.0.17 by [org.slf4j#slf4j-api;2.0.13] in [default]
    ---------------------------------------------------------------------
    |                  |            modules            ||   artifacts   |
    :: retrieving :: org.apache.spark#spark-submit-parent-1
    0 artifacts copied, 4 already retrieved (0kB/6ms)"""
    told = ":::: WARNINGS\n:: UNRESOLVED DEPENDENCIES ::\n:: io.delta#delta-spark;9: not found\na line | of ours"

    assert [line for line in ivy.splitlines() if not IVY.match(line.strip())] == []
    assert [line for line in told.splitlines() if IVY.match(line.strip())] == []


def test_only_the_hooks_own_words_are_read() -> None:
    error = (
        "Cannot execute: x --run-id=Error code is: 64.. Error code is: -9.\nLast spark-submit output:\nError "
        "code is: 70."
    )
    assert "exit code -9" in str(outcome(AirflowException(error)))
    other = AirflowException("something else")
    assert outcome(other) is other


def test_the_exception_begins_with_the_drivers_error() -> None:
    """With its three lines, which the log has between Spark's and without a level."""
    lines = (
        "a line\nmine.py:3: no table\ndata: nothing was written\nnext: make it\n26/11/30 INFO ShutdownHookManager: x"
    )
    error = f"Cannot execute: x. Error code is: 64.\nLast spark-submit output:\n{lines}"

    assert str(outcome(AirflowException(error))).splitlines()[:3] == lines.splitlines()[1:4]
    assert "Refused (the driver's exit code 64)" in str(outcome(AirflowException(error)))


@pytest.mark.parametrize(
    "params, expected",
    [
        ({}, []),
        ({"close": False, "bounded": False, "max_files": None, "dry_run": False}, []),
        ({"close": True, "max_files": 3}, ["--close", "--max-files=3"]),
        ({"bounded": True, "dry_run": True}, ["--bounded", "--dry-run"]),
    ],
)
def test_the_form_becomes_the_command_line(params: dict[str, Any], expected: list[str]) -> None:
    given = arguments("flights", params, "a b", "d")
    assert given == ["flights", "--run-id=a b", "--dag-id=d", *expected]


def test_the_driver_takes_every_argument() -> None:
    from onlyonce.run.stream import arguments as parsed

    everything = {"close": True, "bounded": True, "max_files": 3, "dry_run": True}
    asked = parsed(arguments("flights", everything, "-r", "-d"))
    assert (asked.pipeline, asked.run_id, asked.dag_id, asked.max_files) == ("flights", "-r", "-d", 3)
    assert asked.close
    assert asked.bounded
    assert asked.dry_run


@pytest.mark.parametrize(
    "connection",
    [
        Connection(
            conn_id="c", conn_type="postgres", host="db", port=5432, login="w@x", password=PASSWORD, schema="d/e"
        ),
        Connection(
            conn_id="c", conn_type="postgres", host="::1", login="w", schema="d", extra='{"sslmode": "require"}'
        ),
    ],
)
def test_the_url_says_what_the_connection_says(connection: Connection) -> None:
    from sqlalchemy.engine import make_url

    url = make_url(url_of(connection))
    assert (url.host, url.port, url.database) == (connection.host, connection.port, connection.schema)
    assert (url.username, url.password) == (connection.login, connection.password)
    assert dict(url.query) == connection.extra_dejson
    assert Database(url_of(connection)).url


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OO_OLD", "old")
    with within({"OO_OLD": "new", "OO_NEW": "new"}):
        assert os.environ["OO_OLD"] == os.environ["OO_NEW"] == "new"
    assert os.environ["OO_OLD"] == "old"
    assert "OO_NEW" not in os.environ


def test_a_whole_tree_of_processes_ends() -> None:
    # The grandchild does not listen, as a JVM in a long collection.
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {deaf!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as root:
        assert root.stdout is not None
        assert root.stdout.readline() == "ready\n"
        [child] = psutil.Process(root.pid).children()
        end_tree(root.pid)
        assert root.wait(timeout=60) == -signal.SIGTERM
        child.wait(60)
    end_tree(root.pid)


def test_openlineages_parent_is_among_what_is_submitted(
    submits: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the provider's own function."""
    monkeypatch.setattr(
        "onlyonce.airflow.spark_job.inject_parent_job_information_into_spark_properties",
        lambda conf, context: conf | {"spark.openlineage.parentJobName": context["run_id"]},
    )
    with DAG("d"):
        task = SparkJobOperator(task_id="run", pipeline="flights", openlineage_inject_parent_job_info=True)
    context = {"params": {}, "run_id": "manual__1", "ti": TaskInstance()}

    assert "spark.openlineage.parentJobName=manual__1" in submits(lambda: task.execute(context), 0).argv


@pytest.mark.parametrize("host, extra", [
    ("k8s://https://host:6443", {}), ("sc://host", {}), ("spark://host", {"deploy-mode": "cluster"}), ("local[2]", {"deploy-mode": "cluster"}),
])  # fmt: skip
def test_a_connection_that_cannot_work_fails_for_good_and_nothing_is_submitted(
    submits: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, host: str, extra: dict[str, str]
) -> None:
    """By its name; no retry helps."""
    refused: list[str] = []

    def work() -> None:
        monkeypatch.setenv(
            "AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": host, "extra": extra})
        )
        with pytest.raises(AirflowFailException, match="not supported") as failure:
            operator().execute({"params": {}, "run_id": "manual__1", "ti": TaskInstance()})
        refused.append(str(failure.value))

    assert submits(work) is None
    assert (extra.get("deploy-mode") or host) in refused[0]


def test_what_the_providers_operator_takes_is_passed_on(submits: Callable[..., Any], tmp_path: Any) -> None:
    """The connection of any name, and every word of the hook; ours is added to a team's own settings."""
    named = tmp_path / "theirs.conf"
    named.write_text("spark.driver.memory 12g\nspark.sql.extensions their.Extension\n")

    def work() -> None:
        with pytest.MonkeyPatch.context() as patch, DAG("d"):
            patch.setenv(
                "AIRFLOW_CONN_THEIRS", json.dumps({"conn_type": "spark", "host": "yarn", "extra": {"queue": "q"}})
            )
            task = SparkJobOperator(
                task_id="run", pipeline="flights", conn_id="theirs", packages="a:b:1", py_files="mine.zip", conf={"spark.x": "1"},
                env_vars={"MINE": "2"}, properties_file=str(named), executor_cores=3,
            )  # fmt: skip
            task.execute({"params": {}, "run_id": "manual__1", "ti": TaskInstance()})

    given = submits(work)
    pairs = set(zip(given.argv, given.argv[1:], strict=False))
    assert {
        ("--master", "yarn"), ("--queue", "q"), ("--packages", "a:b:1"), ("--py-files", "mine.zip"), ("--executor-cores", "3"),
        ("--properties-file", str(named)), ("--conf", "spark.x=1"),
        ("--conf", "spark.sql.extensions=their.Extension,io.delta.sql.DeltaSparkSessionExtension"),
    } <= pairs  # fmt: skip
    assert not [part for part in given.argv if part.startswith("spark.driver.memory=")]
    assert given.env["MINE"] == "2"


def test_lineage_tells_what_is_read_and_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """By OpenLineage's naming, without any secret; nothing is imported of its provider before it asks."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_CONN_ONLYONCE_DB", json.dumps({"conn_type": "postgres", "host": "db", "login": "w", "password": PASSWORD, "schema": "d"}))  # fmt: skip
    inputs, outputs = places(declarations.one("user_counts"))

    assert inputs == [("file", f"{tmp_path}/inbox/user_counts")]
    assert ("file", f"{tmp_path}/tables/user_counts/per_user") in outputs
    assert ("postgres://db:5432", "d.results.count_of_all") in outputs


def test_the_drivers_own_settings_decide_with_which_jars_it_starts(
    submits: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Its data is in a store, and the worker knows nothing of that."""
    for name in ("jars/delta-spark_4.2_2.13-4.4.0.jar", "jars-s3/hadoop-aws-3.5.0.jar"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.setenv("ONLYONCE_JARS", str(tmp_path / "jars"))
    monkeypatch.delenv("ONLYONCE_DATA", raising=False)
    with DAG("d"):
        task = SparkJobOperator(task_id="run", pipeline="flights", env_vars={"ONLYONCE_DATA": "s3://bucket/lake"})
    argv = submits(lambda: task.execute({"params": {}, "run_id": "manual__1", "ti": TaskInstance()}), 0).argv

    assert f"spark.driver.extraClassPath={tmp_path}/jars/*:{tmp_path}/jars-s3/*" in argv
    assert "ONLYONCE_DATA" not in os.environ


def test_the_dag_file_for_kubernetes_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the connection that it tells of; what it names of the image is in it."""
    found = runpy.run_path(str(ROOT / "docker" / "kubernetes" / "dags.py"))
    told = next(line for line in found["__doc__"].splitlines() if line.strip().startswith("{"))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_KUBERNETES", told.strip())
    drain = found["flights_stream"].task_dict["run"]

    assert drain.place() == ("k8s://https://kubernetes.default.svc:443", "cluster")
    templates = [value for name, value in drain.conf.items() if name.endswith("podTemplateFile")]
    assert len(templates) == 2
    assert [name for name in templates if not (ROOT / name.removeprefix("/opt/onlyonce/")).is_file()] == []
