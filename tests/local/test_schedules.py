"""Pause and resume tell Airflow about the DAGs of one pipeline, and say what is in progress. Against a stand-in of its API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from onlyonce.local.standalone import schedules
from onlyonce.local.standalone.airflow_api import AirflowApi
from onlyonce.model.errors import Refused

DAGS = ["stream_flights", "backfill_flights", "stream_user_counts", "audit"]


class Airflow(ThreadingHTTPServer):
    """The few answers of Airflow's API that are asked for."""

    paused: dict[str, bool]
    running: dict[str, list[str]]
    tasks: list[dict[str, str]]


class _Answers(BaseHTTPRequestHandler):
    server: Airflow

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/api/v2/dags").strip("/")
        if not path:
            self._say({"dags": [{"dag_id": name} for name in DAGS]})
            return
        if path.endswith("/taskInstances"):
            self._say({"task_instances": self.server.tasks if path.startswith("stream_") else []})
            return
        assert "state=running" in self.path
        runs = self.server.running.get(path.split("/")[0], [])
        self._say({"dag_runs": [{"dag_run_id": run} for run in runs]})

    def do_POST(self) -> None:
        self._body()
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
    server.paused, server.running, server.tasks = {}, {"stream_flights": ["scheduled__1"]}, []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def api(airflow: Airflow) -> AirflowApi:
    """A session with it."""
    return AirflowApi(f"http://127.0.0.1:{airflow.server_address[1]}", "user", "password")


def test_pause_holds_the_dags_of_the_pipeline_and_names_what_goes_on(airflow: Airflow) -> None:
    """Those of other pipelines are not touched."""
    report = schedules.hold("flights", held=True, api=api(airflow))

    assert airflow.paused == {"stream_flights": True, "backfill_flights": True}
    assert [(row["dag"], row["run"]) for row in report.tables["in progress"]] == [("stream_flights", "scheduled__1")]


def test_resume_lets_them_go_on(airflow: Airflow) -> None:
    """The same DAGs."""
    schedules.hold("flights", held=False, api=api(airflow))

    assert airflow.paused == {"stream_flights": False, "backfill_flights": False}


def test_a_pipeline_that_airflow_does_not_have_is_refused(airflow: Airflow) -> None:
    """And nothing is held."""
    with pytest.raises(Refused, match="no DAG of shop"):
        schedules.hold("shop", held=True, api=api(airflow))

    assert airflow.paused == {}
