"""The DAG files: what they make of the declarations, and what they do without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import ParamValidationError

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
from onlyonce.declare.pipeline import Delta, Files, Output, Pipeline
PIPELINES = [Pipeline(name="mine", source=Files(), schema="id string, at timestamp", record_id=("id",), event_time="at",
                      outputs=(Output(name="all", transform="mine:all", sink=Delta()),))]
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
    assert "onlyonce.spark_options" in done.stdout
    assert "onlyonce.session" not in done.stdout
    assert "onlyonce.commitlog" not in done.stdout


def test_there_is_a_dag_for_each_pipeline(bag: DagBag) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) == {
        "audit", "collect", "finalize", "maintain", "stream_flights", "stream_user_counts", "backfill_flights", "backfill_user_counts"
    }  # fmt: skip


def test_dag_files_are_short() -> None:
    assert all(len(path.read_text().splitlines()) < 60 for path in DAGS.glob("*.py"))


def test_one_run_at_a_time_and_none_made_up_for(bag: DagBag) -> None:
    for dag in bag.dags.values():
        assert (dag.catchup, dag.start_date) == (False, None)
        assert dag.max_active_runs == 1 or dag.dag_id.startswith("backfill_")
        assert "onlyonce" in dag.tags


def test_a_cleared_run_runs_again_and_a_failed_one_is_retried(bag: DagBag) -> None:
    drain = bag.dags["stream_flights"].get_task("drain")
    assert drain.durable is False
    assert drain.retries == 2


def test_where_files_are_written_finalize_is_a_task_of_its_own_after_the_stream(bag: DagBag) -> None:
    for dag, first in (("stream_flights", "drain"), ("backfill_flights", "recompute")):
        assert bag.dags[dag].get_task(first).downstream_task_ids == {"finalize"}
    assert [task.task_id for task in bag.dags["stream_user_counts"].tasks] == ["drain"]
    assert [task.task_id for task in bag.dags["finalize"].tasks] == ["finalize"]


def test_messages_are_landed_before_the_stream_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where there are any; and the page names the subscription."""
    mine = GOOD.replace("Files", "PubSub").replace("PubSub()", "PubSub(subscription='projects/p/subscriptions/s')")
    (tmp_path / "mine.py").write_text(
        mine.replace("id string", "message_id string").replace('("id",)', '("message_id",)')
    )
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"{tmp_path / 'mine.py'}:{ROOT / 'jobs' / 'pipelines.py'}")
    bag = DagBag(str(DAGS))

    assert bag.import_errors == {}
    stream = bag.dags["stream_mine"]
    assert stream.task_dict["land"].downstream_task_ids == {"drain"}
    assert set(bag.dags["stream_user_counts"].task_dict) == {"drain"}
    assert "Pub/Sub, `projects/p/subscriptions/s`, landed in" in str(stream.doc_md)


def test_the_page_tells_the_declaration(bag: DagBag) -> None:
    text = bag.dags["stream_user_counts"].doc_md
    assert "<ONLYONCE_HOME>/inbox/user_counts" in text
    assert "| `per_user` | `jobs.transforms:counts_per_user` | fixed: size 0:01:00 | 0:02:00 |" in text
    assert "`jobs.transforms:count_of_all` from `per_user` | fixed: size 0:01:00 | 0:02:00 | Postgres" in text


def test_the_form_has_a_title_and_a_description_for_each_param(bag: DagBag) -> None:
    params = bag.dags["stream_flights"].params
    assert params.dump() == {
        "mode": "drain",
        "every": 5,
        "close": False,
        "bounded": False,
        "max_files": None,
        "dry_run": False,
    }
    for name in params:
        assert params.get_param(name).schema["title"]
        assert params.get_param(name).description


@pytest.mark.parametrize(
    "name, value",
    [("close", "yes"), ("max_files", 0), ("max_files", "4"), ("dry_run", None), ("mode", "always"), ("every", -1)],
)
def test_the_form_refuses_a_wrong_value(bag: DagBag, name: str, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        bag.dags["stream_flights"].params.get_param(name).resolve(value)


@pytest.mark.parametrize(
    "name, value",
    [("close", True), ("max_files", 1), ("max_files", None), ("bounded", True), ("mode", "forever"), ("every", 0.5)],
)
def test_the_form_takes_a_right_value(bag: DagBag, name: str, value: Any) -> None:
    assert bag.dags["stream_flights"].params.get_param(name).resolve(value) == value


def test_the_schedule_is_a_setting(monkeypatch: pytest.MonkeyPatch, bag: DagBag) -> None:
    assert "*/10 * * * *" in str(bag.dags["stream_flights"].timetable)
    monkeypatch.setenv("ONLYONCE_SCHEDULE", "5 4 * * *")
    assert "5 4 * * *" in str(DagBag(str(DAGS)).dags["stream_flights"].timetable)
    monkeypatch.setenv("ONLYONCE_SCHEDULE", "none")
    assert DagBag(str(DAGS)).dags["stream_flights"].schedule is None


def test_a_broken_file_is_an_import_error_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"{tmp_path / 'broken.py'}:{tmp_path / 'good.py'}")
    bag = DagBag(str(DAGS))
    assert set(bag.dags) == {"audit", "collect", "finalize", "maintain", "stream_mine"}
    [message] = bag.import_errors.values()
    assert "broken.py:3: Files: unknown option 'max_file_a_batch'" in message
    assert "did you mean 'max_files_a_batch'?" in message


SENDING = GOOD.replace("Delta,", "Webhook,").replace("sink=Delta()", "sink=Webhook(url='https://example.org')")


def test_a_pipeline_that_sends_delivers_after_its_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a task of its own, retried by itself, and in a DAG for what is left; one that sends nothing has no such task."""
    (tmp_path / "mine.py").write_text(SENDING)
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"{tmp_path / 'mine.py'}:{ROOT / 'jobs' / 'pipelines.py'}")
    bag = DagBag(str(DAGS / "stream.py"))
    assert bag.import_errors == {}
    deliver = bag.dags["stream_mine"].get_task("deliver")
    assert [task.task_id for task in DagBag(str(DAGS / "deliver.py")).dags["deliver"].tasks] == ["deliver_mine"]
    assert deliver.upstream_task_ids == {"drain"}
    assert deliver.retries == 2
    assert [task.task_id for task in bag.dags["stream_user_counts"].tasks] == ["drain"]
