"""Run Airflow's four processes: their environment, start, stop and health.

They are our own, since `airflow standalone` leaves two of them behind on SIGTERM. Each runs in its own session, with a
pid file in `<home>/run` and a log in `<home>/logs`. All settings come from the environment (`environment()`); no file
of Airflow's is edited. Secrets are in files of mode 0600 and in the environment of our own processes, never on a
command line.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import httpx
import psycopg2
from sqlalchemy.engine import URL, make_url

from onlyonce import configuration, settings
from onlyonce.api.load import above_package
from onlyonce.core.errors import Refused, Retryable
from onlyonce.environment import inherited, variable
from onlyonce.local import processes

USER = "admin"

EVERYWHERE = {
    "CORE__EXECUTOR": "LocalExecutor",
    "CORE__PARALLELISM": "4",  # each task may be a JVM; a laptop can run a few
    "CORE__LOAD_EXAMPLES": "False",
    "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
    "API__WORKERS": "1",
    # No log servers run (see COMMANDS); the default port may be another Airflow's.
    "LOGGING__WORKER_LOG_SERVER_PORT": "1",
    "LOGGING__TRIGGER_LOG_SERVER_PORT": "1",
    # A new or changed declaration shows within seconds, not minutes.
    "DAG_PROCESSOR__REFRESH_INTERVAL": "10",
    "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
    "DAG_PROCESSOR__PARSING_PROCESSES": "1",
    "DAG_PROCESSOR__PRINT_STATS_INTERVAL": "600",
    # A task survives an api-server that is killed and started again, and a busy machine.
    "WORKERS__EXECUTION_API_RETRIES": "10",
    "WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "15",
    "WORKERS__EXECUTION_API_TIMEOUT": "30",
    # A task whose worker was killed is run again after two minutes instead of ten.
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
    "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "60",
}
"""Airflow's settings that do not depend on the machine: docker-compose.yml has the same (tests/compose compares
them)."""


def environment() -> dict[str, str]:
    """Return this process's environment with everything that Airflow's processes and their tasks need.

    Raise FileNotFoundError if the embedded PostgreSQL was never started.
    """
    home = settings.home()
    airflow_home = settings.inside_home(home, "airflow")
    password()
    return {
        **inherited(),
        **_airflow(airflow_home, own_url()),
        **_secrets(airflow_home),
        **_connections(),
        **_surroundings(home),
    }


def host_name() -> str:
    """Return the name of this machine for Airflow, which uses it to reach a task's log: DNS may not know the real
    one."""
    return "127.0.0.1"


def password() -> str:
    """Return the password of the user `admin`, made before Airflow would make one and print it to a log."""
    return processes.read_or_make_secret(password_file(), lambda: {USER: secrets.token_urlsafe(12)})[USER]


def password_file() -> Path:
    """Return the file that holds the password, readable by its owner only."""
    return settings.home() / "airflow" / "simple_auth_manager_passwords.json.generated"


def own_url() -> str:
    """Return the address of this home's own Airflow."""
    return f"http://127.0.0.1:{settings.airflow_port()}"


def named() -> tuple[str, str] | None:
    """Return the variable that names another Airflow than this home's own, and its address; None if none does.

    With another platform's database, Airflow is that platform's too, whatever its address.
    """
    given = {
        "ONLYONCE_AIRFLOW_URL": settings.airflow_login().url,
        "AIRFLOW__API__BASE_URL": variable("AIRFLOW__API__BASE_URL"),
    }
    name, url = next(((name, url) for name, url in given.items() if url), ("", own_url()))
    if database := settings.named_database():
        return name or database[0], url.rstrip("/")
    address = url.rstrip("/").replace("://localhost:", "://127.0.0.1:")
    return None if address == own_url() else (name, url.rstrip("/"))


def airflow_url(driver: str) -> str:
    """Return the URL of Airflow's own database for a driver. It holds a password: never log it."""
    url = make_url((settings.home() / "postgres" / "airflow.url").read_text().strip())
    if driver.endswith("+asyncpg"):
        url = url.set(query={})  # asyncpg knows no require_auth
    return url.set(drivername=driver).render_as_string(hide_password=False)


def _airflow(airflow_home: Path, address: str) -> dict[str, str]:
    options = EVERYWHERE | {
        "CORE__DAGS_FOLDER": str(dags_folder(airflow_home)),
        "CORE__PLUGINS_FOLDER": str(settings.ROOT / "plugins"),
        "CORE__HOSTNAME_CALLABLE": f"{__name__}.host_name",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(airflow_home / password_file().name),
        "CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "DATABASE__SQL_ALCHEMY_CONN": airflow_url("postgresql+psycopg2"),
        "DATABASE__SQL_ALCHEMY_CONN_ASYNC": airflow_url("postgresql+asyncpg"),
        "API__HOST": "127.0.0.1",
        "API__PORT": str(settings.airflow_port()),
        "API__BASE_URL": address,
        "LOGGING__BASE_LOG_FOLDER": str(airflow_home / "logs"),
    }
    return {"AIRFLOW_HOME": str(airflow_home), **{f"AIRFLOW__{key}": value for key, value in options.items()}}


SERVED = "served"
"""The file of the home that names the files with declarations of Airflow's last start, one on a line."""

DAG_FILE = """\"\"\"All DAGs of the declared pipelines. Made by `onlyonce up`, at each start.\"\"\"

from onlyonce.airflow import dags

globals().update(dags({files}))
"""


def dags_folder(airflow_home: Path) -> Path:
    """Return the folder `dags` of the project, or of the checkout. If neither exists, make one for all pipelines."""
    projects = project_folders()
    own = projects[0] / "dags" if len(projects) == 1 else None
    for folder in (own, settings.ROOT / "dags"):
        if folder and folder.is_dir():
            return folder
    made = airflow_home / "dags"
    made.mkdir(parents=True, exist_ok=True)
    (made / "pipelines_dags.py").write_text(DAG_FILE.format(files=[str(file) for file in settings.pipeline_files()]))
    return made


def project_folders() -> list[Path]:
    """Return the folders from which the files with declarations are imported."""
    return list(dict.fromkeys(map(above_package, settings.pipeline_files())))


def unread() -> Refused | None:
    """Return what to say if the running Airflow does not read each declared pipeline, since `up` in another project's
    folder has started it; None if it reads them, or if that can't be known."""
    running = processes.find("dag-processor", settings.home())
    given = processes.environment_of(running) if running else {}
    theirs = given.get("ONLYONCE_PIPELINES", "")
    missing = [str(file) for file in _own_files() if file.is_file()]
    if not theirs or {*missing} <= {*theirs.split(os.pathsep)}:
        return None
    return Refused(
        f"the Airflow of {settings.home()} reads the DAGs in {given['AIRFLOW__CORE__DAGS_FOLDER']}, of {theirs}: "
        f"the pipelines of {os.pathsep.join(missing)} are not in it",
        data="nothing was changed; `onlyonce run` works for them too, with the same database",
        hint="`onlyonce down`, then `onlyonce up --replace` here, or for both projects: "
        f"ONLYONCE_PIPELINES={os.pathsep.join(dict.fromkeys([*theirs.split(os.pathsep), *missing]))} onlyonce up. "
        f"{OWN_HOME}",
    )


OWN_HOME = "Or give this project a home of its own: ONLYONCE_HOME, ONLYONCE_PG_PORT and ONLYONCE_AIRFLOW_PORT"


def _own_files() -> list[Path]:
    """Return the files with declarations without the one that ships, which is read in any folder."""
    return [file for file in settings.pipeline_files() if file != settings.shipped()]


def refuse_other_project() -> None:
    """Raise Refused if this start would take the DAGs of files that the last start served out of Airflow.

    Files that are gone, and those that ship, don't count.
    """
    if not (noted := settings.home() / "airflow" / SERVED).exists():
        return
    here = list(map(str, settings.pipeline_files()))
    theirs = [name for name in noted.read_text().splitlines() if name not in here and Path(name).is_file()]
    if not theirs:
        return
    both = os.pathsep.join(dict.fromkeys([*theirs, *map(str, _own_files())]))
    raise Refused(
        f"the Airflow of {settings.home()} has served the pipelines of {os.pathsep.join(theirs)} until now, and with "
        f"{os.pathsep.join(here)} alone it would lose their DAGs",
        data="nothing was started or changed",
        hint=f"for all of them: ONLYONCE_PIPELINES={both} onlyonce up. For these alone: onlyonce up --replace. "
        f"{OWN_HOME}",
    )


def note_served() -> None:
    """Note which files with declarations Airflow serves, for `refuse_other_project`."""
    (settings.home() / "airflow" / SERVED).write_text("".join(f"{file}\n" for file in _own_files()))


def without_effect() -> list[str]:
    """Return the settings of Airflow in this environment to which the embedded Airflow gives values of its own."""
    own = environment()
    return [name for name, value in inherited().items() if name.startswith("AIRFLOW__") and own[name] != value]


def _secrets(airflow_home: Path) -> dict[str, str]:
    # Fixed, so that the next process reads what one process signs, even after a restart.
    made = processes.read_or_make_secret(airflow_home / "secrets.json", _new_secrets)
    return {
        "AIRFLOW__CORE__FERNET_KEY": made["fernet"],
        "AIRFLOW__API__SECRET_KEY": made["api"],
        "AIRFLOW__API_AUTH__JWT_SECRET": made["jwt"],
    }


def _new_secrets() -> dict[str, str]:
    from cryptography.fernet import Fernet  # slow to import, and needed once

    return {
        "fernet": Fernet.generate_key().decode(),
        "api": secrets.token_urlsafe(32),
        "jwt": secrets.token_urlsafe(64),
    }


def _connections() -> dict[str, str]:
    # As JSON: a master such as local[*] or k8s://https://host is not part of a URL.
    spark = {"conn_type": "spark", "host": settings.master(), "extra": {"spark-binary": "spark-submit"}}
    database = _connection_fields(make_url(settings.database_url()))
    return {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
        "AIRFLOW_CONN_ONLYONCE_DB": json.dumps(database),
    }


def _connection_fields(url: URL) -> dict[str, object]:
    return {
        "conn_type": "postgres",
        "host": url.host,
        "port": url.port,
        "login": url.username,
        "password": url.password,
        "schema": url.database,
        "extra": dict(url.query),
    }


def _surroundings(home: Path) -> dict[str, str]:
    old_path = variable("PATH") or ""
    old_modules = variable("PYTHONPATH")
    loopback = "127.0.0.1,localhost"
    no_proxy = ",".join(filter(None, [variable("NO_PROXY") or variable("no_proxy"), loopback]))
    return {
        "ONLYONCE_HOME": str(home),
        # Airflow's processes don't work in the folder of the project.
        "ONLYONCE_PIPELINES": os.pathsep.join(map(str, settings.pipeline_files())),
        **({"ONLYONCE_CONFIG": str(config)} if (config := configuration.file()) else {}),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), old_path]),
        # A DAG file names its declarations as a module of the project.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(settings.ROOT), *map(str, project_folders()), old_modules])),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        # Tasks reach Airflow's API on the loopback address, never through a proxy.
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
    }


# The processes.


# The log server of scheduler and triggerer serves other machines; here the files are local.
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
    """Raise Refused if another program has the port, or if our own api-server runs at another port."""
    home, port = settings.home(), settings.airflow_port()
    running = processes.find("api-server", home)
    if running is None:
        processes.require_free_port(port, "Airflow's UI and API", "ONLYONCE_AIRFLOW_PORT")
    elif (ports := processes.listens_at(running)) and port not in ports:
        raise Refused(
            f"the Airflow of {home} runs at port {min(ports)}, and ONLYONCE_AIRFLOW_PORT is {port}",
            data="nothing was started or stopped",
            hint=f"export ONLYONCE_AIRFLOW_PORT={min(ports)} in this shell; for another port: `onlyonce down`, then "
            "`onlyonce up`",
        )


def start(progress: Progress = _silent) -> None:
    """Start what does not run and wait until all processes are healthy. PostgreSQL must be up.

    Raise Refused if the port is taken, and Retryable if a process ended or was not healthy in time.
    """
    home = settings.home()
    if is_running() and _unhealthy() == []:
        return
    require_port()
    variables = environment()
    _migrate(home, variables, progress)
    if processes.find("dag-processor", home) is None:
        note_served()
    _launch([name for name in COMMANDS if name != "scheduler"], home, variables)
    _await(lambda: [part for part in _unhealthy() if part == "api-server"], home, progress)
    # Last: a task that starts before the API answers is counted as failed.
    _launch(["scheduler"], home, variables)
    _await(_unhealthy, home, progress)


def stop(progress: Progress = _silent) -> None:
    """End the four processes, the drivers of their tasks, and everything that they left. Nothing remains.

    The api-server ends before the drivers, so that no task that we end is recorded as failed: to Airflow it is still
    running. The next scheduler finds it without a worker and runs it again, which has no effect on the result.
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
    # Processes that were started meanwhile carry the mark too, so repeat until there are none.
    for _ in range(5):
        rest = processes.ours(home)
        if not rest:
            break
        processes.stop(rest, patience=5)
    if rest := processes.ours(home):
        raise Retryable(
            f"processes of Airflow do not end: {', '.join(str(process.pid) for process in rest)}",
            data="nothing is lost: what they did not commit will be done again",
            hint="wait until their disk or network answers, then run `onlyonce down` again",
        )
    for name in COMMANDS:
        processes.forget(name, home)


def is_running() -> bool:
    """Return whether all four processes live (not: whether they are healthy)."""
    return all(processes.find(name, settings.home()) for name in COMMANDS)


def _stop_drivers(home: Path, progress: Progress) -> None:
    """Ask drivers to end first, so that Spark removes its temporary files; what is not committed is done again."""
    drivers = processes.drivers(home)
    if drivers:
        progress(f"{len(drivers)} Spark driver(s) stop; the next start runs their tasks again")
        processes.stop(drivers, _DRIVER_PATIENCE)


def _migrate(home: Path, variables: dict[str, str], progress: Progress) -> None:
    """Run `airflow db migrate`, which takes seconds, only for another Airflow or another database."""
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
    log = settings.inside_home(home, "logs") / "airflow-migrate.log"
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
    """Return the parts that are not healthy yet, as Airflow reports; empty if all are healthy."""
    url = f"http://127.0.0.1:{settings.airflow_port()}/api/v2/monitor/health"
    try:
        # A proxy from the environment does not know this machine's loopback address.
        health = httpx.get(url, timeout=5, trust_env=False).json()
    except (httpx.HTTPError, ValueError):
        return ["api-server"]
    return [part for part in _PARTS if (health.get(part) or {}).get("status") != "healthy"]
