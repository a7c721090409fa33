"""The whole platform up and down: quick the second time, nothing left at the end, no run lost on the way."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from onlyonce import settings
from onlyonce.core.errors import Refused
from onlyonce.local import airflow_server, platform, postgres, processes
from onlyonce.local.airflow_api import AirflowApi

pytestmark = [pytest.mark.airflow]

# A driver that never ends by itself at the first attempt; no retries, so nothing but `up` runs it again.
DAG = """
from airflow.sdk import DAG, task
with DAG("unfinished", schedule=None):
    @task
    def long(marker):
        import os, subprocess, sys
        from airflow.sdk import BaseHook
        print("spark master", BaseHook.get_connection("spark_default").host)
        print("database login", BaseHook.get_connection("onlyonce_db").login)
        print("password in the log:", BaseHook.get_connection("onlyonce_db").password)
        if not os.path.exists(marker):
            open(marker, "w").close()
            subprocess.run([sys.executable, "-c", "import time; time.sleep(900)"], start_new_session=True, check=True)
        print("finished at last")
    long("{{ dag_run.conf['marker'] }}")
"""


@pytest.fixture(scope="module")
def api(home: Path) -> Iterator[AirflowApi]:
    folder = home.parent / "dags"
    folder.mkdir()
    (folder / "unfinished.py").write_text(DAG)
    bundle = {
        "name": "test",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(folder)},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))
        platform.up()
        with AirflowApi() as session:
            yield session


def test_up_again_starts_nothing_anew(api: AirflowApi, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second `up` leaves every server as it is; Airflow's own children come and go meanwhile."""
    before = {name: processes.find(name, home) for name in airflow_server.COMMANDS}
    assert None not in before.values()
    login = platform.up()
    assert "PostgreSQL starts" not in capsys.readouterr().err
    assert {name: processes.find(name, home) for name in airflow_server.COMMANDS} == before
    assert httpx.get(login.url, trust_env=False, timeout=120).status_code == 200


def test_the_log_of_airflow_does_not_hold_its_password(api: AirflowApi, home: Path) -> None:
    password = platform.login().password
    assert not any(password in log.read_text(errors="replace") for log in home.glob("logs/*.log"))


def test_a_killed_process_is_started_again_alone(api: AirflowApi) -> None:
    triggerer = processes.find("triggerer", settings.home())
    scheduler = processes.find("scheduler", settings.home())
    assert triggerer is not None
    assert scheduler is not None
    triggerer.send_signal(signal.SIGKILL)
    processes.wait_until(lambda: not processes.is_alive(triggerer), 60, "its end")
    assert not airflow_server.is_running()
    platform.up()
    assert airflow_server.is_running()
    assert processes.find("scheduler", settings.home()) == scheduler


def test_down_leaves_nothing_and_up_goes_on_with_the_run(api: AirflowApi, home: Path) -> None:
    marker = home.parent / "attempted"
    api.wait_for_dag("unfinished")
    run = api.trigger("unfinished", {"marker": str(marker)})
    processes.wait_until(marker.exists, 60, "the task")
    everything = [*processes.ours(home), *_servers(home)]
    assert len(everything) > 8

    platform.down()
    assert not [process for process in everything if processes.is_alive(process)]
    assert processes.ours(home) == []
    assert not _servers(home)
    assert list((home / "run").glob("*.pid")) == []

    platform.up()
    assert api.wait_for_run("unfinished", run, patience=120) == "success"
    log = api.task_log("unfinished", run, "long", attempt=2)
    assert "finished at last" in log
    assert "spark master local[*]" in log
    assert "database login onlyonce_writer" in log
    assert settings.database_url().split(":")[2].split("@")[0] not in log


def test_a_taken_port_is_refused_before_anything_starts(api: AirflowApi, home: Path) -> None:
    platform.down()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", settings.airflow_port()))
        taken.listen()
        with pytest.raises(Refused, match=f"port {settings.airflow_port()} .* is taken") as refusal:
            platform.up()
    assert "ONLYONCE_AIRFLOW_PORT" in refusal.value.hint
    assert not postgres.is_running()
    assert processes.ours(home) == []


def _servers(home: Path) -> list[psutil.Process]:
    """PostgreSQL's processes: they carry no mark, but work in their data folder."""
    return postgres._sessions(home / "postgres" / "data")
