"""Pause and resume tell Airflow about the DAGs of one pipeline, and say what is in progress.

Against a stand-in of its API.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from onlyonce.core.errors import Refused, Retryable
from onlyonce.local import airflow_api
from onlyonce.local.airflow_api import Address, AirflowApi, of_environment

DAGS = ["flights_stream", "flights_backfill", "user_counts_stream", "audit"]


class Airflow(ThreadingHTTPServer):
    """The few answers of Airflow's API that are asked for."""

    paused: dict[str, bool]
    running: dict[str, list[str]]
    tasks: list[dict[str, str]]
    logins: list[Any]


class _Answers(BaseHTTPRequestHandler):
    server: Airflow

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/api/v2/dags").strip("/")
        if not path:
            asked = parse_qs(urlsplit(self.path).query).get("tags", [""])[0].removeprefix("pipeline:")
            self._say({"dags": [{"dag_id": name} for name in DAGS if name.rpartition("_")[0] == asked]})
            return
        if path.endswith("/taskInstances"):
            self._say({"task_instances": self.server.tasks if path.split("/")[0].endswith("_stream") else []})
            return
        assert "state=running" in self.path
        runs = self.server.running.get(path.split("/")[0], [])
        self._say({"dag_runs": [{"dag_run_id": run} for run in runs]})

    def do_POST(self) -> None:
        self.server.logins.append(self._body())
        self._say({"access_token": "token"})

    def do_PATCH(self) -> None:
        self.server.paused[self.path.rsplit("/", 1)[1]] = self._body()["is_paused"]
        self._say({})

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _say(self, answer: Any) -> None:
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


@pytest.fixture
def airflow() -> Iterator[Airflow]:
    """It listens until the test ends."""
    server = Airflow(("127.0.0.1", 0), _Answers)
    server.paused, server.running, server.tasks = {}, {"flights_stream": ["scheduled__1"]}, []
    server.logins = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def api(airflow: Airflow) -> AirflowApi:
    """A session with it."""
    return AirflowApi(Address(f"http://127.0.0.1:{airflow.server_address[1]}", "user", "password"))


def test_pause_holds_the_dags_of_the_pipeline_and_names_what_goes_on(airflow: Airflow) -> None:
    """Those of other pipelines are not touched."""
    report = airflow_api.hold_schedules("flights", held=True, api=api(airflow))

    assert airflow.paused == {"flights_stream": True, "flights_backfill": True}
    assert [(row["dag"], row["run"]) for row in report.tables["in progress"]] == [("flights_stream", "scheduled__1")]


def test_resume_lets_them_go_on(airflow: Airflow) -> None:
    """The same DAGs."""
    airflow_api.hold_schedules("flights", held=False, api=api(airflow))

    assert airflow.paused == {"flights_stream": False, "flights_backfill": False}


def test_a_pipeline_that_airflow_does_not_have_is_refused(airflow: Airflow) -> None:
    """And nothing is held."""
    with pytest.raises(Refused, match="no DAG of shop"):
        airflow_api.hold_schedules("shop", held=True, api=api(airflow))

    assert airflow.paused == {}


def test_any_airflow_is_asked_with_a_token_or_a_login(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its URL. Who has a token does not log in; who has neither is refused before anything is sent."""
    monkeypatch.setenv("ONLYONCE_AIRFLOW_URL", f"http://127.0.0.1:{airflow.server_address[1]}/")
    for name in ("ONLYONCE_AIRFLOW_TOKEN", "AIRFLOW_CLI_TOKEN", "ONLYONCE_AIRFLOW_PASSWORD", "ONLYONCE_AIRFLOW_USER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Refused, match="no login is known"):
        of_environment()

    monkeypatch.setenv("ONLYONCE_AIRFLOW_USER", "ops")
    monkeypatch.setenv("ONLYONCE_AIRFLOW_PASSWORD", "secret")
    airflow_api.hold_schedules("flights", held=True)
    assert airflow.logins == [{"username": "ops", "password": "secret"}]

    monkeypatch.setenv("AIRFLOW_CLI_TOKEN", "token")
    airflow_api.hold_schedules("flights", held=False)
    assert len(airflow.logins) == 1
    assert airflow.paused["flights_stream"] is False
    assert "secret" not in repr(of_environment())


@pytest.mark.parametrize(
    ("named", "url", "hint"),
    [
        ({}, "http://127.0.0.1:1", "`onlyonce up` starts it"),
        ({"ONLYONCE_AIRFLOW_URL": "http://127.0.0.1:2/"}, "http://127.0.0.1:2", "ONLYONCE_AIRFLOW_URL"),
        ({"ONLYONCE_READER_URL": "postgresql://r:s@postgres/onlyonce"}, "http://127.0.0.1:1", "ONLYONCE_AIRFLOW_URL"),
    ],
)
def test_only_a_homes_own_airflow_is_started_by_up(
    named: dict[str, str], url: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the address that was asked, also in a container that has the browser's address alone."""
    for name, value in {
        "ONLYONCE_HOME": str(tmp_path), "ONLYONCE_AIRFLOW_PORT": "1", "ONLYONCE_AIRFLOW_PASSWORD": "secret",
        "AIRFLOW__API__BASE_URL": "http://127.0.0.1:1", "ONLYONCE_DATABASE_URL": "", "ONLYONCE_READER_URL": "", **named,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)

    with pytest.raises(Retryable) as refused:
        airflow_api.hold_schedules("flights", held=True)

    assert f"Airflow at {url} does not answer" in refused.value.what
    assert hint in refused.value.hint
    assert ("onlyonce up" in refused.value.hint) == (not named)
