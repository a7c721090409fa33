"""Airflow's four processes, owned by us: `airflow standalone` leaves two of them behind on SIGTERM.

Each runs in a session of its own, with a pid file in `<home>/run` and a log in `<home>/logs`. All
settings come from the environment (`environment()`); no file of Airflow's is edited.

Who calls it: `onlyonce.local.platform` and the tests. Errors: Refused (taken port), Retryable (a process
ended or was not healthy in time).
Not promised: that a task which ran at `stop` ends well. Its driver is asked to end, then killed; Airflow
runs it again, and the commit protocol makes that without effect on the result.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import httpx
import psycopg2

from onlyonce import settings
from onlyonce.local import processes
from onlyonce.local.standalone.airflow_environment import airflow_url, environment
from onlyonce.model.errors import Retryable
from onlyonce.settings import home_folders

# The log server of scheduler and triggerer serves other machines; here the files are at hand.
COMMANDS = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
_PARTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")
_START_PATIENCE = 240.0
_DRIVER_PATIENCE = 20.0
_STOP_PATIENCE = 8.0
_API_PATIENCE = 5.0

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    pass


def require_port() -> None:
    """Raises Refused when a stranger has the port; does nothing when our own api-server runs."""
    if processes.find("api-server", settings.home()) is None:
        processes.require_free_port(settings.airflow_port(), "Airflow's UI and API", "ONLYONCE_AIRFLOW_PORT")


def start(progress: Progress = _silent) -> None:
    """Start what does not run and wait until all is healthy. PostgreSQL must be up."""
    home = settings.home()
    if is_running() and _unhealthy() == []:
        return
    require_port()
    variables = environment()
    _migrate(home, variables, progress)
    _launch([name for name in COMMANDS if name != "scheduler"], home, variables)
    _await(lambda: [part for part in _unhealthy() if part == "api-server"], home, progress)
    # Last: a task that starts before the API answers is counted as failed.
    _launch(["scheduler"], home, variables)
    _await(_unhealthy, home, progress)


def stop(progress: Progress = _silent) -> None:
    """End the four processes, the drivers of their tasks, and whatever they left. Nothing remains.

    The api-server goes before the drivers, so that no task that we end is recorded as failed: to Airflow
    it is still running, and the next scheduler finds it without a worker and runs it again.
    """
    home = settings.home()
    running = {name: process for name in COMMANDS if (process := processes.find(name, home))}
    if running:
        progress("Airflow stops")
    api_server = running.pop("api-server", None)
    processes.ask(running.values())  # the scheduler starts nothing from now on, and waits for its tasks
    processes.stop([api_server] if api_server else [], _API_PATIENCE)
    _stop_drivers(home, progress)
    processes.stop(running.values(), _STOP_PATIENCE)
    # Whatever was started in the meantime carries the mark too: look until there is nothing.
    for _ in range(5):
        rest = processes.ours(home)
        if not rest:
            break
        processes.stop(rest, patience=5)
    if rest := processes.ours(home):
        raise Retryable(
            f"Processes of Airflow do not end: {', '.join(str(process.pid) for process in rest)}.",
            data="nothing is lost: what they did not commit will be done again",
            hint="wait until their disk or network answers, then run `onlyonce down` again",
        )
    for name in COMMANDS:
        processes.forget(name, home)


def is_running() -> bool:
    """Whether all four processes live (not: whether they are healthy)."""
    return all(processes.find(name, settings.home()) for name in COMMANDS)


def _stop_drivers(home: Path, progress: Progress) -> None:
    """Asked first, so that Spark removes its temporary files; what it has not committed is done again."""
    drivers = processes.drivers(home)
    if drivers:
        progress(f"{len(drivers)} Spark driver(s) stop; the next start runs their tasks again")
        processes.stop(drivers, _DRIVER_PATIENCE)


def _migrate(home: Path, variables: dict[str, str], progress: Progress) -> None:
    """`airflow db migrate`, which takes seconds, only for another Airflow or another database."""
    stamp = home / "airflow" / "migrated"
    wanted = f"{metadata.version('apache-airflow')} {_database_identity()}\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    progress("Airflow makes its tables (at the first start only)")
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=processes.marked(variables, home),
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    log = home_folders.inside(home, "logs") / "airflow-migrate.log"
    log.write_text(done.stdout + done.stderr)
    if done.returncode:
        raise Retryable(
            f"`airflow db migrate` failed: {processes.last_line(log)}",
            data="the platform's own database is not touched by it",
            hint=f"look at {log}, then run the same command again",
        )
    stamp.write_text(wanted)


def _database_identity() -> str:
    with contextlib.closing(psycopg2.connect(airflow_url("postgresql"))) as session, session.cursor() as cursor:
        cursor.execute("SELECT system_identifier FROM pg_control_system()")
        row = cursor.fetchone()
    return str(row[0]) if row else "unknown"


def _launch(names: list[str], home: Path, variables: dict[str, str]) -> None:
    for name in names:
        if processes.find(name, home) is None:
            processes.spawn(name, [sys.executable, "-m", "airflow", *COMMANDS[name]], variables, home)


def _await(unhealthy: Callable[[], list[str]], home: Path, progress: Progress) -> None:
    end = time.monotonic() + _START_PATIENCE
    while missing := unhealthy():
        ended = [name for name in COMMANDS if processes.has_ended(name, home)]
        if ended or time.monotonic() > end:
            name = ended[0] if ended else missing[0].replace("_", "-")
            log = home / "logs" / f"{name}.log"
            raise Retryable(
                f"Airflow's {name} {'ended' if ended else 'was not healthy in time'}: {processes.last_line(log)}",
                data="what was committed is still there",
                hint=f"look at {log}, then `onlyonce down` and `onlyonce up`",
            )
        progress("Airflow starts; it waits for " + ", ".join(missing))
        time.sleep(0.5)


def _unhealthy() -> list[str]:
    """The parts that are not healthy yet, by Airflow's own word; empty when all are."""
    url = f"http://127.0.0.1:{settings.airflow_port()}/api/v2/monitor/health"
    try:
        # A proxy from the environment knows nothing of this machine's loopback address.
        health = httpx.get(url, timeout=5, trust_env=False).json()
    except (httpx.HTTPError, ValueError):
        return ["api-server"]
    return [part for part in _PARTS if (health.get(part) or {}).get("status") != "healthy"]
