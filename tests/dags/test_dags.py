"""The DAG files: what they make of the declarations, and what they do without."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from onlyonce.airflow import stream_job
from onlyonce.airflow.jobs import AuditOperator, JobOperator
from onlyonce.settings import ROOT

DAGS = ROOT / "dags"

# What `import airflow.sdk` itself imports is Airflow's business.
PARSE = """
import json, runpy, sys
import airflow.sdk
before = set(sys.modules)
for path in sys.argv[1:]:
    runpy.run_path(path)
json.dump(sorted(set(sys.modules) - before), sys.stdout)
"""

GOOD = """
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
PIPELINES = [Pipeline(name="mine", source=Files(), schema="id string, at timestamp", record_id=("id",), event_time="at",
                      outputs=(Output(name="all", transform="json:loads", sink=Delta()),))]
"""
BROKEN = GOOD.replace("Files()", "Files(max_file_a_batch=3)").replace('"mine"', '"other"')


@pytest.fixture(scope="module")
def bag() -> DagBag:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ONLYONCE_PIPELINES", "ONLYONCE_SCHEDULE"):
            patch.delenv(name, raising=False)
        return DagBag(str(DAGS))


def test_dag_files_import_neither_spark_nor_a_database() -> None:
    files = [str(path) for path in DAGS.glob("[!_]*.py")]
    done = subprocess.run([sys.executable, "-c", PARSE, *files], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    assert not imported & {"pyspark", "delta", "deltalake", "sqlalchemy", "psycopg2", "asyncpg", "pandas", "numpy"}
    assert "onlyonce.engine.options" in done.stdout
    assert "onlyonce.engine.session" not in done.stdout
    assert "onlyonce.commitlog" not in done.stdout


def test_there_is_a_dag_for_each_pipeline(bag: DagBag) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) == {
        "onlyonce_audit", "onlyonce_catalog_gc", "onlyonce_finalize_files", "onlyonce_compact_tables", "onlyonce_ask_sources", "flights_stream", "user_counts_stream", "flights_backfill", "user_counts_backfill"
    }  # fmt: skip


def test_owner_of_each_dag_is_onlyonce(bag: DagBag) -> None:
    """Airflow's own default is `airflow`; `default_args` name another one."""
    assert {dag.owner for dag in bag.dags.values()} == {"onlyonce"}


def test_dag_files_are_short() -> None:
    assert all(len(path.read_text().splitlines()) < 60 for path in DAGS.glob("*.py"))


def test_one_run_at_a_time_and_none_made_up_for(bag: DagBag) -> None:
    for dag in bag.dags.values():
        assert (dag.catchup, dag.start_date) == (False, None)
        assert dag.max_active_runs == 1 or dag.dag_id.endswith("_backfill")
        assert "onlyonce" in dag.tags


def test_a_cleared_run_runs_again_and_a_failed_one_is_retried(bag: DagBag) -> None:
    drain = bag.dags["flights_stream"].get_task("run")
    assert drain.retries == 2


def test_where_files_are_written_finalize_is_a_task_of_its_own_after_the_stream(bag: DagBag) -> None:
    for dag, first in (("flights_stream", "run"), ("flights_backfill", "backfill")):
        assert bag.dags[dag].get_task(first).downstream_task_ids == {"finalize"}
    assert [task.task_id for task in bag.dags["user_counts_stream"].tasks] == ["run"]
    assert [task.task_id for task in bag.dags["onlyonce_finalize_files"].tasks] == ["finalize"]


def test_messages_are_pulled_before_the_stream_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where there are any; and the page names the subscription."""
    mine = GOOD.replace("Files", "PubSub").replace("PubSub()", "PubSub(subscription='projects/p/subscriptions/s')")
    (tmp_path / "mine.py").write_text(
        mine.replace("id string", "message_id string").replace('("id",)', '("message_id",)')
    )
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"{tmp_path / 'mine.py'}:{ROOT / 'jobs' / 'pipelines.py'}")
    bag = DagBag(str(DAGS))

    assert bag.import_errors == {}
    stream = bag.dags["mine_stream"]
    assert stream.task_dict["pull"].downstream_task_ids == {"run"}
    assert set(bag.dags["user_counts_stream"].task_dict) == {"run"}
    assert "Pub/Sub, `projects/p/subscriptions/s`, pulled in" in str(stream.doc_md)


def test_the_page_tells_the_declaration(bag: DagBag) -> None:
    text = bag.dags["user_counts_stream"].doc_md
    assert "<ONLYONCE_HOME>/inbox/user_counts" in text
    assert "| `per_user` | `jobs.transforms:counts_per_user` | fixed: size 1 minute | 2 minutes |" in text
    assert "`jobs.transforms:count_of_all` from `per_user` | fixed: size 1 minute | 2 minutes | Postgres" in text


def test_the_form_has_a_title_and_a_description_for_each_param(bag: DagBag) -> None:
    params = bag.dags["flights_stream"].params
    assert params.dump() == {
        "mode": "once",
        "every": 5,
        "close": False,
        "bounded": False,
        "max_files": None,
        "dry_run": False,
    }
    for name in params:
        assert params.get_param(name).schema["title"]
        assert "null" in params.get_param(name).schema["type"]  # Airflow's form stars each other one as required
        assert params.get_param(name).description


@pytest.mark.parametrize(
    "name, value",
    [("close", "yes"), ("max_files", 0), ("max_files", "4"), ("dry_run", 1), ("mode", "always"), ("every", -1)],
)
def test_the_form_refuses_a_wrong_value(bag: DagBag, name: str, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        bag.dags["flights_stream"].params.get_param(name).resolve(value)


@pytest.mark.parametrize(
    "name, value",
    [
        ("close", True),
        ("max_files", 1),
        ("max_files", None),
        ("bounded", True),
        ("mode", "continuous"),
        ("every", 0.5),
        ("mode", None),
    ],
)
def test_the_form_takes_a_right_value(bag: DagBag, name: str, value: Any) -> None:
    assert bag.dags["flights_stream"].params.get_param(name).resolve(value) == value


def test_the_schedule_is_a_setting(monkeypatch: pytest.MonkeyPatch, bag: DagBag) -> None:
    assert "*/10 * * * *" in str(bag.dags["flights_stream"].timetable)
    monkeypatch.setenv("ONLYONCE_SCHEDULE", "5 4 * * *")
    assert "5 4 * * *" in str(DagBag(str(DAGS)).dags["flights_stream"].timetable)
    monkeypatch.setenv("ONLYONCE_SCHEDULE", "none")
    assert DagBag(str(DAGS)).dags["flights_stream"].schedule is None


def test_a_broken_file_is_an_import_error_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"{tmp_path / 'broken.py'}:{tmp_path / 'good.py'}")
    bag = DagBag(str(DAGS))
    assert set(bag.dags) == {
        "onlyonce_audit",
        "onlyonce_catalog_gc",
        "onlyonce_finalize_files",
        "onlyonce_compact_tables",
        "onlyonce_ask_sources",
        "mine_stream",
    }
    [message] = bag.import_errors.values()
    assert_ends_in_three_lines(message, "broken.py:3: Files: unknown option 'max_file_a_batch'")
    assert "did you mean 'max_files_a_batch'?" in message


def assert_ends_in_three_lines(message: str, what: str) -> None:
    """Before the error's lines Airflow prints at most two frames, and none of a cause."""
    *frames, first, data, hint = message.rstrip().splitlines()
    assert first.startswith("onlyonce.core.errors.Refused: ")
    assert what in first
    assert (data[:8], hint[:8]) == ("  data: ", "  next: ")
    assert sum(line.startswith("  File ") for line in frames) <= 2
    assert "The above exception" not in message


SENDING = GOOD.replace("Delta,", "Webhook,").replace("sink=Delta()", "sink=Webhook(url='https://example.org')")


def test_a_pipeline_that_sends_delivers_after_its_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a task of its own, retried by itself, and in a DAG for what is left; one that sends nothing has no such
    task."""
    (tmp_path / "mine.py").write_text(SENDING)
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"{tmp_path / 'mine.py'}:{ROOT / 'jobs' / 'pipelines.py'}")
    bag = DagBag(str(DAGS))
    assert bag.import_errors == {}
    deliver = bag.dags["mine_stream"].get_task("deliver")
    assert [task.task_id for task in bag.dags["onlyonce_deliver_outbox"].tasks] == ["deliver_mine"]
    assert deliver.upstream_task_ids == {"run"}
    assert deliver.retries == 2
    assert [task.task_id for task in bag.dags["user_counts_stream"].tasks] == ["run"]


THREE_LINES = """
from onlyonce.airflow import dags

globals().update(dags("my_project.pipelines"{keywords}))
"""


def project(folder: Path, keywords: str = "") -> DagBag:
    """A team's repository: a package with declarations, and a DAG file of three lines."""
    (folder / "my_project").mkdir(exist_ok=True)
    (folder / "my_project" / "__init__.py").touch()
    (folder / "my_project" / "names.py").write_text('NAME = "mine"\n')
    declared = GOOD.replace('name="mine"', "name=NAME").replace(
        "from onlyonce", "from .names import NAME\nfrom onlyonce", 1
    )
    (folder / "my_project" / "pipelines.py").write_text(declared)
    (folder / "team_dags.py").write_text(THREE_LINES.format(keywords=keywords))
    return DagBag(str(folder / "team_dags.py"))


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the team's package is imported from, as Airflow has its DAGs folder on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_project"]:
        del sys.modules[name]


def test_three_lines_make_the_dags_of_a_teams_own_project(team: Path) -> None:
    """By the name of its module, which the driver and the tasks are told."""
    bag = project(team)

    assert bag.import_errors == {}
    assert set(bag.dags) == {
        "mine_stream", "onlyonce_audit", "onlyonce_catalog_gc", "onlyonce_finalize_files", "onlyonce_compact_tables", "onlyonce_ask_sources"
    }  # fmt: skip
    drain = bag.dags["mine_stream"].get_task("run")
    assert drain.declarations.variables() == {"ONLYONCE_PIPELINES": "my_project.pipelines"}
    assert drain.declarations.import_path()["PYTHONPATH"].split(":")[0] == str(team)


def test_broken_project_is_an_import_error_in_three_lines(team: Path) -> None:
    project(team)
    declared = team / "my_project" / "pipelines.py"
    declared.write_text(declared.read_text().replace("source=Files(", "source=Files(max_file=1, "))

    [message] = DagBag(str(team / "team_dags.py")).import_errors.values()

    assert_ends_in_three_lines(message, "Files: unknown option 'max_file'")


def test_the_keywords_reach_dags_and_tasks(team: Path) -> None:
    """In the words of Airflow and of its Spark provider; a wrong one is the import error of the file."""
    bag = project(
        team,
        ", prefix='team_', schedule=None, pool='spark', queue='big', tags=['team'], housekeeping=['audit'],"
        "default_args={'owner': 'us', 'retries': 7}, spark={'conn_id': 'yarn_cluster', 'packages': 'a:b:1'}",
    )

    assert bag.import_errors == {}
    assert set(bag.dags) == {"team_mine_stream", "team_audit"}
    dag = bag.dags["team_mine_stream"]
    drain = dag.get_task("run")
    assert dag.schedule is None
    assert {"onlyonce", "pipeline:mine", "team"} <= dag.tags
    assert (drain.pool, drain.queue, drain.owner, drain.retries) == ("spark", "big", "us", 7)
    assert (drain.conn_id, drain.packages) == ("yarn_cluster", "a:b:1")
    [message] = project(team, ", housekeeping=['audits']").import_errors.values()
    assert "no housekeeping DAG 'audits'" in message


def test_default_args_reach_every_housekeeping_task(team: Path) -> None:
    bag = project(team, ", default_args={'retries': 7}")

    housekeeping = [dag for name, dag in bag.dags.items() if not name.startswith("mine_")]
    assert len(housekeeping) > 3
    assert {task.retries for dag in housekeeping for task in dag.tasks} == {7}


def test_airflow_finds_the_provider_and_the_plugin_by_their_entry_points() -> None:
    """Nothing is copied into a folder of plugins; the metadata is what Airflow's schema asks for."""
    from airflow import plugins_manager
    from airflow.providers_manager import ProvidersManager

    assert "onlyonce-pipelines" in ProvidersManager().providers
    [ours] = [plugin for plugin in plugins_manager._get_plugins()[0] if plugin.name == "onlyonce"]
    assert {view["url_route"] for view in ours.external_views} == {"exactly-once", "commits"}


def test_a_task_stays_with_its_driver_where_a_pod_ends_with_it() -> None:
    """By the task's own executor, else Airflow's first, in each way of naming one."""
    assert stream_job.may_outlive(None, "LocalExecutor")
    celery = "airflow.providers.celery.executors.celery_executor.CeleryExecutor"
    assert stream_job.may_outlive(None, f"LocalExecutor;team1=mine:{celery},KubernetesExecutor")
    assert not stream_job.may_outlive(None, "LocalExecutor;team1=CeleryExecutor;team2=KubernetesExecutor")
    assert not stream_job.may_outlive(None, "KubernetesExecutor,LocalExecutor")
    assert not stream_job.may_outlive("KubernetesExecutor", "LocalExecutor")
    assert stream_job.may_outlive("LocalExecutor", "KubernetesExecutor,LocalExecutor")


@pytest.mark.parametrize("operator", JobOperator.__subclasses__())
def test_each_job_of_an_operator_is_there(operator: type[JobOperator]) -> None:
    """They are named, so that a DAG file imports none of them."""
    assert callable(getattr(importlib.import_module(f"onlyonce.{operator.module}"), operator.entry))


def test_a_task_refuses_a_home_of_another_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its job, and not to be tried again."""
    (tmp_path / "format").write_text("dev-0\n")
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))

    with pytest.raises(AirflowFailException, match="has the format dev-0,"):
        AuditOperator(task_id="audit").execute({"params": {}, "run_id": "one"})
