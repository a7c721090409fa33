"""The DAGs on a real Airflow: what a person does in the UI, done through the API. The tests follow one another."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg2
import pytest
from deltalake import DeltaTable

from onlyonce import settings
from onlyonce.core.errors import Refused
from onlyonce.local import processes
from onlyonce.local.airflow_api import AirflowApi
from onlyonce.local.airflow_server import airflow_url
from tests.airflow.conftest import RECORDS
from tests.support.platform import multiset
from tests.support.soak_driver import PYTHONS_OF_SPARK

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(900)]

DAG = "user_counts_stream"
PATIENCE = 400


@pytest.fixture(scope="module")
def run(api: AirflowApi) -> str:
    """A run by hand with `close`; the passwords were on no command line while it went on."""
    seen: set[str] = set()
    run = api.trigger(DAG, {"close": True, "max_files": 3})
    state = api.wait_for_run(DAG, run, PATIENCE, watch=lambda _: seen.update(command_lines()))
    assert state == "success", api.task_log(DAG, run, "run")[-3000:]
    assert any("org.apache.spark.deploy.SparkSubmit" in line and run in line for line in seen)
    assert not [line for line in seen if password() in line]
    return run


def test_a_run_that_is_marked_failed_leaves_no_driver(api: AirflowApi, home: Path) -> None:
    run = api.trigger(DAG)
    processes.wait_until(lambda: bool(stream_processes(home)), 120, "the driver")
    task = f"dags/{DAG}/dagRuns/{run}/taskInstances/run"
    api._call("PATCH", task, json={"new_state": "failed"})
    processes.wait_until(lambda: not stream_processes(home), 60, "the end of the driver")
    assert api.wait_for_run(DAG, run, 60) == "failed"


def test_the_log_of_the_task_says_what_was_committed(api: AirflowApi, run: str) -> None:
    lines = api.task_log(DAG, run, "run").splitlines()
    [received] = [line for line in lines if "event='fates'" in line and "query='receive'" in line]
    assert f"kept={RECORDS}" in received
    assert f"run_id='{run}'" in received
    committed = [line for line in lines if "event='commits'" in line]
    for sink in ("events", "per_user", "of_all"):
        assert any(f"sink='{sink}'" in line for line in committed)
    assert all("epoch=" in line for line in committed)
    batches = [line for line in lines if "event='batch committed'" in line]
    assert batches
    assert all("unit='user_counts/" in line and "epoch=" in line for line in batches)


def test_the_run_left_an_event_of_each_table_that_it_wrote(api: AirflowApi, run: str) -> None:
    """By the names that a following DAG asks for, with what the log and the table say."""
    found = api._call("GET", "assets/events", params={"source_dag_id": DAG, "source_run_id": run})["asset_events"]
    extra = {event["name"]: event["extra"] for event in found}
    table = DeltaTable(str(settings.tables_dir() / "user_counts" / "per_user"))
    assert set(extra) == {"user_counts/per_user", "user_counts/of_all"}
    assert all(told["run_id"] == run and told["rows"] > 0 for told in extra.values())
    assert extra["user_counts/per_user"]["delta_version"] == table.version()
    assert extra["user_counts/of_all"]["delta_version"] is None


def test_no_log_holds_the_password(api: AirflowApi, home: Path, run: str) -> None:
    assert password() not in api.task_log(DAG, run, "run")
    logs = [path for path in [*home.glob("logs/**/*"), *home.glob("airflow/logs/**/*")] if path.is_file()]
    assert len(logs) > 4
    assert not [path for path in logs if password() in path.read_text(errors="replace")]


def test_no_row_of_airflows_own_database_has_a_value_of_a_record(api: AirflowApi, run: str) -> None:
    """Neither XCom nor a task's rendered fields, events of assets or the audit log: so a receipt of an erasure says
    that onlyonce writes no record there."""
    records = DeltaTable(str(settings.data_dir("user_counts") / "events")).to_pandas(filters=[("oo_kind", "=", "kept")])
    url, words = airflow_url("postgresql"), set[str]()
    for (table,) in rows("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'", url):
        for (row,) in rows(f"SELECT one::text FROM {table} AS one", url):
            words |= set(re.findall(r"[\w-]+", row))

    assert {DAG, "run"} <= words
    assert words & {*records["user"], *records["event_id"]} == set()


def test_a_cleared_run_asks_again_and_changes_nothing(api: AirflowApi, run: str) -> None:
    """It finds nothing to do, and so takes no epoch."""
    before, epochs = results(), epochs_of()
    assert sum(before["of_all"].values()) > 0
    api.clear(DAG, run)
    assert api.wait_for_run(DAG, run, PATIENCE) == "success"
    [task] = api.tasks(DAG, run)
    assert task["try_number"] == 2
    assert "event='report'" in api.task_log(DAG, run, "run", attempt=2)
    assert epochs_of() == epochs
    assert results() == before


def test_the_audit_finds_nothing(api: AirflowApi, run: str) -> None:
    audit = api.trigger("onlyonce_audit")
    assert api.wait_for_run("onlyonce_audit", audit, 120) == "success", api.task_log(
        "onlyonce_audit", audit, "conservation"
    )
    log = api.task_log("onlyonce_audit", audit, "conservation")
    assert "audit: every record has one fate" in log
    assert "pipeline=user_counts, stage=receive" in log
    assert f"kept={RECORDS}" in log
    assert "conserved=False" not in log
    assert password() not in log


def test_the_api_refuses_a_wrong_form(api: AirflowApi) -> None:
    with pytest.raises(Refused, match="max_files"):
        api.trigger(DAG, {"max_files": 0})


def test_every_dag_file_is_imported(api: AirflowApi) -> None:
    assert api.import_errors() == []


def password() -> str:
    """The writer's."""
    return settings.database_url().split(":")[2].split("@")[0]


def stream_processes(home: Path) -> list[str]:
    """The command lines of the JVMs and Pythons that run the job."""
    of_a_run = ("stream.py", *PYTHONS_OF_SPARK)
    return [line for line in command_lines(home) if any(name in line for name in of_a_run)]


def command_lines(home: Path | None = None) -> list[str]:
    """Those of every process of the platform."""
    found = []
    for process in processes.ours(home or settings.home()):
        with suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
    return found


def results() -> dict[str, Counter[Any]]:
    """Every row of both outputs."""
    table = DeltaTable(str(settings.tables_dir() / "user_counts" / "per_user")).to_pandas()
    return {"per_user": multiset(table), "of_all": Counter(rows("SELECT t::text FROM results.count_of_all t"))}


def epochs_of() -> dict[str, int]:
    """How often each query of the pipeline was started."""
    return dict(rows("SELECT incarnation, epoch FROM onlyonce.incarnations WHERE pipeline = 'user_counts'"))


def rows(statement: str, url: str | None = None) -> list[tuple[Any, ...]]:
    """What the platform's database says, or another one."""
    session = psycopg2.connect((url or settings.database_url()).replace("+psycopg2", ""))
    try:
        with session, session.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()
    finally:
        session.close()
