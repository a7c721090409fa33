"""Call the REST API of any Airflow, by its URL and a token or a login. The default is the Airflow of this platform's
folder.

ONLYONCE_AIRFLOW_URL, else AIRFLOW__API__BASE_URL   the address of Airflow's API server
ONLYONCE_AIRFLOW_TOKEN, else AIRFLOW_CLI_TOKEN      a token of its API, which makes a login unnecessary
ONLYONCE_AIRFLOW_USER, ONLYONCE_AIRFLOW_PASSWORD    a login, for auth managers that have `/auth/token`
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from onlyonce import settings
from onlyonce.commitlog.drivers import LongRuns
from onlyonce.commitlog.health import Health
from onlyonce.core.errors import OnlyonceError, Refused, Retryable
from onlyonce.core.runs import Report
from onlyonce.core.stored_names import pipeline_tag
from onlyonce.database.connect import Database
from onlyonce.environment import variable
from onlyonce.local import airflow_server


@dataclass(frozen=True)
class Address:
    """An Airflow: its URL, and a token, or a user with a password.

    The secrets are never printed. `own`: it is the embedded one.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    own: bool = False

    @property
    def on_loopback(self) -> bool:
        """Return whether the Airflow is on this machine: a proxy from the environment does not know that address."""
        return "://127.0.0.1" in self.url or "://localhost" in self.url or "://[::1]" in self.url


def of_environment() -> Address:
    """Return the Airflow that the environment names, or the embedded one.

    Raise Refused if another one's login is missing.
    """
    given = settings.airflow_login()
    token, user, password = given.token or variable("AIRFLOW_CLI_TOKEN") or "", given.user, given.password
    named = airflow_server.named()
    url = named[1] if named else airflow_server.own_url()
    if named and not token and not password:
        raise Refused(
            f"no login is known for Airflow at {url}",
            data="nothing was changed",
            hint="set ONLYONCE_AIRFLOW_TOKEN, or ONLYONCE_AIRFLOW_USER and ONLYONCE_AIRFLOW_PASSWORD; if its API has "
            "another address, ONLYONCE_AIRFLOW_URL too",
        )
    if not token and not password:
        password = airflow_server.password()
    return Address(url, user or airflow_server.USER, password, token, own=named is None)


# A small client: only what the demo, `onlyonce pause` and the tests need.
#
# It does not use `apache-airflow-client`, which fits only the Airflow of its own version: it checks each answer against
# its models. Version 3.3.2 requires fields of a DAG (`is_backfillable`, `timetable_periodic`) that an Airflow 3.2 does
# not send, so `pause` would fail there.


FINAL_STATES = frozenset({"success", "failed"})


class AirflowApi:
    """A session with an Airflow. By default the environment names it, or else it is the Airflow of this platform's
    folder.

    It logs in at its first call, unless it has a token. Its lists hold at most 100 entries. Its calls raise Retryable
    if Airflow does not answer or is not ready in time, and Refused if Airflow refuses.
    """

    def __init__(self, address: Address | None = None) -> None:
        self._address = address or of_environment()
        self.base_url = self._address.url
        self.own = self._address.own
        # A proxy from the environment does not know this machine's loopback address.
        self._client = httpx.Client(base_url=self.base_url, timeout=30, trust_env=not self._address.on_loopback)
        if self._address.token:
            self._client.headers["Authorization"] = f"Bearer {self._address.token}"
        self._logged_in = bool(self._address.token)

    def __enter__(self) -> AirflowApi:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def dags(self) -> list[dict[str, Any]]:
        """Return the DAGs that Airflow has parsed."""
        return list(self._call("GET", "dags", params={"limit": 100})["dags"])

    def dags_with(self, tag: str) -> list[str]:
        """Return the ids of the DAGs with a tag, however many other DAGs there are."""
        return [str(dag["dag_id"]) for dag in self._call("GET", "dags", params={"limit": 100, "tags": tag})["dags"]]

    def import_errors(self) -> list[dict[str, Any]]:
        """Return the DAG files that could not be imported, with the reason."""
        return list(self._call("GET", "importErrors")["import_errors"])

    def wait_for_dag(self, dag_id: str, patience: float = 120) -> None:
        """Return when the DAG is parsed. Raise Retryable with the import error of DAG files, if any."""
        end = time.monotonic() + patience
        while dag_id not in {dag["dag_id"] for dag in self.dags()}:
            if time.monotonic() > end:
                errors = self.import_errors()
                reason = errors[0]["stack_trace"].strip().splitlines()[-1] if errors else "no import error"
                raise Retryable(
                    f"Airflow has not parsed the DAG {dag_id} within {patience:.0f} s ({reason})",
                    data="nothing was started",
                    hint="look at <ONLYONCE_HOME>/logs/dag-processor.log",
                )
            time.sleep(0.5)

    def unpause(self, dag_id: str, paused: bool = False) -> None:
        """Let the schedule of a DAG run, or hold it."""
        self._call("PATCH", f"dags/{quote(dag_id)}", json={"is_paused": paused})

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> str:
        """Start a run as a person would in the UI; return its id."""
        body = {"logical_date": None, "conf": conf or {}}
        return str(self._call("POST", f"dags/{quote(dag_id)}/dagRuns", json=body)["dag_run_id"])

    def clear(self, dag_id: str, run_id: str) -> None:
        """Clear all tasks of a run, so that they run again."""
        body = {"dry_run": False, "dag_run_id": run_id, "only_failed": False, "reset_dag_runs": True}
        self._call("POST", f"dags/{quote(dag_id)}/clearTaskInstances", json=body)

    def running(self, dag_id: str) -> list[str]:
        """Return the ids of a DAG's runs that are in progress."""
        found = self._call("GET", f"dags/{quote(dag_id)}/dagRuns", params={"limit": 100, "state": "running"})
        return [str(run["dag_run_id"]) for run in found["dag_runs"]]

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return queued, running, success or failed."""
        return str(self._call("GET", _run(dag_id, run_id))["state"])

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Return the state of each task of a run; 'none' before it is scheduled."""
        return {task["task_id"]: task["state"] or "none" for task in self.tasks(dag_id, run_id)}

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run as Airflow returns them (state, try_number, start and end)."""
        return list(self._call("GET", _run(dag_id, run_id) + "/taskInstances")["task_instances"])

    def task_log(self, dag_id: str, run_id: str, task_id: str, attempt: int = 1) -> str:
        """Return the log of one attempt of a task, one event a line."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{quote(task_id)}/logs/{attempt}"
        content = self._call("GET", path, params={"full_content": "true"})["content"]
        return "\n".join(event if isinstance(event, str) else event["event"] for event in content)

    def wait_for_run(
        self,
        dag_id: str,
        run_id: str,
        patience: float = 1800,
        watch: Callable[[dict[str, str]], None] = lambda _: None,
    ) -> str:
        """Return the final state of a run; `watch` gets the states of its tasks every second."""
        end = time.monotonic() + patience
        while (state := self.run_state(dag_id, run_id)) not in FINAL_STATES:
            if time.monotonic() > end:
                raise Retryable(
                    f"the run {run_id} of {dag_id} is still {state} after {patience:.0f} s",
                    data="it continues; what it has committed stays",
                    hint=f"look at {self.base_url}/dags/{dag_id}",
                )
            watch(self.task_states(dag_id, run_id))
            time.sleep(1)
        watch(self.task_states(dag_id, run_id))
        return state

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        if not self._logged_in:
            self._log_in()
        response = self._send(method, f"/api/v2/{path}", **arguments)
        if (
            response.status_code == httpx.codes.UNAUTHORIZED and not self._address.token
        ):  # the session's token has expired
            self._log_in()
            response = self._send(method, f"/api/v2/{path}", **arguments)
        return _checked(response).json()

    def _log_in(self) -> None:
        body = {"username": self._address.user, "password": self._address.password}
        token = _checked(self._send("POST", "/auth/token", json=body)).json()["access_token"]
        self._client.headers["Authorization"] = f"Bearer {token}"
        self._logged_in = True

    def _send(self, method: str, url: str, **arguments: Any) -> httpx.Response:
        try:
            return self._client.request(method, url, **arguments)
        except httpx.HTTPError as error:
            raise Retryable(
                f"Airflow at {self.base_url} does not answer: {error}",
                data="what was committed is still there",
                hint="`onlyonce up` starts it"
                if self._address.own
                else f"start it where it runs; if its API has another address than {self.base_url}, set "
                "ONLYONCE_AIRFLOW_URL to that one",
            ) from error


def _run(dag_id: str, run_id: str) -> str:
    return f"dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    where = f"{response.request.method} {response.request.url.copy_with(query=None, username=None, password=None)}"
    if response.is_server_error:
        raise Retryable(f"Airflow failed at {where}: {response.text[:300]}", hint="run the same command again")
    raise Refused(
        f"Airflow refuses {where} ({response.status_code}): {response.text[:300]}",
        data="nothing was changed",
        hint="see that the DAG and the run exist, and that the caller may do it (ONLYONCE_AIRFLOW_TOKEN, or a user)",
    )


# Pause: a paused DAG starts no run and no further task. A running task continues to its end; a run is one task, so
# its driver ends as usual. Queued tasks, retries, and backfills that wait for open windows start when the DAG is
# resumed. Runs at the shell are not held. Nothing is lost meanwhile: input waits in the inbox.


def hold_schedules(pipeline: str, *, held: bool, api: AirflowApi | None = None) -> Report:
    """Pause (or unpause) all DAGs of a pipeline, found by their tag; report the runs in progress.

    Raise Refused if Airflow has no such DAG.
    """
    with api or AirflowApi() as session:
        mine = session.dags_with(pipeline_tag(pipeline))
        if not mine:
            raise (airflow_server.unread() if session.own else None) or Refused(
                f"Airflow at {session.base_url} has no DAG of {pipeline}",
                data="nothing was changed",
                hint=f"its DAGs have the tag {pipeline_tag(pipeline)}: give it to one that was written by hand; "
                "ONLYONCE_AIRFLOW_URL names another Airflow",
            )
        for name in mine:
            session.unpause(name, paused=held)
        rows = [
            {"dag": name, "run": run, "its task": "runs to its end"} for name in mine for run in session.running(name)
        ]
    facts = {"schedules": "held" if held else "run", "dags": ", ".join(mine)}
    shown = {"in progress": rows} if rows and held else {}
    return Report(f"{pipeline}: {'paused' if held else 'resumed'}", "pause", facts, shown)


# Stop: nothing is killed. A continuous run ends after the current batch. A run ends when it has read the available
# input; it can't be asked to end sooner. Queued tasks, retries, and backfills that wait for open windows start when the
# pipeline is resumed. A driver whose session broke is not noticed until its next statement connects again.


LOOK_EVERY_SECONDS = 1.0
AT_WORK = ("running", "restarting")
"""The states of a task that has a process. A queued or deferred task stays so while its DAG is held."""


def stop_runs(
    pipeline: str,
    *,
    patience_seconds: float,
    airflow: Callable[[], AirflowApi] | None = AirflowApi,
    watch: Callable[[list[str]], None] = lambda _: None,
) -> Report:
    """Hold the schedules, then return when nothing of the pipeline is running; `watch` gets what still is, at each
    poll.

    Without `airflow`, which opens a session with it, only the drivers in the log are waited for. The same applies if
    Airflow does not answer or has no such DAG while a continuous run is alive: it was started at a shell. Raise
    Retryable if something is still running after `patience_seconds`.
    """
    begun, held = time.monotonic(), ""
    database = Database(settings.database_url(), "onlyonce-stop", any_format=True)
    warnings: list[str] = []
    if airflow:
        try:
            held = str(hold_schedules(pipeline, held=True, api=airflow()).facts["dags"])
        except OnlyonceError as error:
            run = LongRuns(database).look(pipeline)
            if run is None or not run.alive:
                error.hint += f". `onlyonce stop {pipeline} --shell` leaves Airflow out"
                raise
            airflow = None
            warnings = [f"no schedule was held: {error.what}. If Airflow has a DAG of {pipeline}, it may start a run"]
    # After its schedule is held, otherwise Airflow would start the next run immediately.
    asked = LongRuns(database).ask_stop(pipeline)
    while working := [
        *_drivers(database, pipeline),
        *(_tasks(held.split(", "), airflow) if airflow else []),
    ]:
        watch(working)
        if time.monotonic() - begun > patience_seconds:
            raise Retryable(
                f"{pipeline} is still running after {patience_seconds:.0f} s: {'; '.join(working)}",
                data="it was not killed, and runs to its end; "
                + ("its schedules are held" if held else "no schedule was held"),
                hint="run the same command again to keep waiting; `onlyonce resume` lets the schedules continue",
            )
        time.sleep(LOOK_EVERY_SECONDS)
    facts = {
        "schedules": f"held: {held}" if held else "not asked",
        "long run": "asked to stop" if asked else "none",
        "waited": f"{time.monotonic() - begun:.0f} s",
    }
    return Report(f"{pipeline}: stopped", f"stop__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts, warnings=warnings)


def _drivers(database: Database, pipeline: str) -> Iterator[str]:
    """Yield the continuous run while it is alive, the incarnations that have a driver with a session, and the running
    backfills."""
    if (known := LongRuns(database).look(pipeline)) and known.alive:
        yield f"the continuous run on {known.driver} has done {known.rounds} rounds"
    for query in Health(database).queries():
        if query.pipeline == pipeline and query.at_work:
            yield f"{query.incarnation} has committed batch {query.committed}"
    for backfill in Health(database).begun().backfills:
        if backfill.pipeline == pipeline and backfill.at_work:
            yield f"{backfill.incarnation} is recomputed"


def _tasks(dags: list[str], airflow: Callable[[], AirflowApi]) -> list[str]:
    # A driver that has just been submitted has no session yet, but its task is running.
    with airflow() as session:
        return [
            f"task {task['task_id']} of {dag}, {run_id}"
            for dag in dags
            for run_id in session.running(dag)
            for task in session.tasks(dag, run_id)
            if task["state"] in AT_WORK
        ]
