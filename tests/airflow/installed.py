"""An Airflow of a team's own: a clean environment with plain Airflow and the built wheel, a DAGs folder, a project, a
database.

This checkout is not on its path, and nothing is copied into a plugins folder. Airflow's own database is SQLite's.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from onlyonce.engine.options import jar_folder
from onlyonce.local.airflow_api import Address, AirflowApi
from onlyonce.settings import ROOT
from tests.support.platform import free_port

THREE_LINES = """\
from onlyonce.airflow import dags

globals().update(dags("my_project.pipelines", schedule=None, spark={"conn_id": "our_spark"}))
"""
PIPELINES = """\
from datetime import timedelta

from onlyonce import Delta, Files, Fixed, Output, Pipeline

PIPELINES = [
    Pipeline(
        name="sales", source=Files(), schema="sale long, shop string, at timestamp, cents long", record_id=("sale",), event_time="at",
        outputs=(
            Output(name="per_shop", transform="my_project.transforms:per_shop", window=Fixed(timedelta(hours=1)), sink=Delta()),
        ),
    )
]
"""
TRANSFORMS = """\
from pyspark.sql import functions as F


def per_shop(sales):
    return sales.groupBy("oo_window", "shop").agg(F.count("*").alias("sales"), F.sum("cents").alias("cents"))
"""
UV = ROOT / ".venv" / ".uv" / "bin" / "uv"


def make(folder: Path, *requirements: str) -> Path:
    """The environment in `folder`; gives its Python.

    `requirements` name another Airflow than the locked one, and what it needs instead.

    All else is as locked: Airflow says what its parts need at least, and some of its versions don't start with what
    came later.
    """
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    subprocess.run([str(UV), "venv", "--quiet", "--python", sys.executable, str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    locked = [
        line.rstrip(" \\")
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if re.match(r"[\w.-]+==", line)
    ]
    others = {re.split(r"[=<>]", requirement)[0] for requirement in requirements}
    kept = [
        line
        for line in locked
        if not (requirements and line.startswith("apache-airflow")) and line.split("==")[0] not in others
    ]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join([*kept, *requirements]))
    ours = f"onlyonce-pipelines[airflow,spark] @ file://{wheel}"
    install = [str(UV), "pip", "install", "--quiet", "--python", str(python), "--constraint", str(constraints)]
    subprocess.run([*install, "apache-airflow", ours], check=True)
    return python


def team(folder: Path) -> None:
    """The DAGs folder: three lines, and beside them the project."""
    project = folder / "dags" / "my_project"
    project.mkdir(parents=True)
    (folder / "dags" / "ours.py").write_text(THREE_LINES)
    (project / "__init__.py").touch()
    (project / "pipelines.py").write_text(PIPELINES)
    (project / "transforms.py").write_text(TRANSFORMS)


def environment(folder: Path, python: Path, database_url: str) -> dict[str, str]:
    """What a deployment is told: Airflow's own settings, two connections, a home."""
    port, url = free_port(), make_url(database_url)
    connection = {
        "conn_type": "postgres",
        "host": url.host,
        "port": url.port,
        "login": url.username,
        "password": url.password,
        "schema": url.database,
    }
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ONLYONCE_", "AIRFLOW", "PYTHON"))
    }
    said = {
        "CORE__EXECUTOR": "LocalExecutor", "CORE__PARALLELISM": "2", "CORE__LOAD_EXAMPLES": "False", "CORE__DAGS_FOLDER": str(folder / "dags"),
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False", "CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin", "CORE__HOSTNAME_CALLABLE": "socket.gethostname",
        "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/", "API__HOST": "127.0.0.1", "API__PORT": str(port),
        "API__BASE_URL": f"http://127.0.0.1:{port}", "API__WORKERS": "1", "API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
        "API__SECRET_KEY": secrets.token_urlsafe(32), "LOGGING__WORKER_LOG_SERVER_PORT": "1", "LOGGING__TRIGGER_LOG_SERVER_PORT": "1",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "10", "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
    }  # fmt: skip
    return {
        **kept,
        "AIRFLOW_HOME": str(folder / "airflow"),
        **{f"AIRFLOW__{name}": value for name, value in said.items()},
        "AIRFLOW_CONN_OUR_SPARK": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW_CONN_ONLYONCE_DB": json.dumps(connection),
        "ONLYONCE_HOME": str(folder / "home"),
        "ONLYONCE_JARS": str(jar_folder()),
        "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
        "NO_PROXY": "127.0.0.1,localhost",
    }


def asked(python: Path, environment: dict[str, str], *command: str, cwd: Path) -> str:
    """The output of a command of that environment."""
    done = subprocess.run(
        [str(python), *command], env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@contextmanager
def running(folder: Path, python: Path, environment: dict[str, str]) -> Iterator[AirflowApi]:
    """Its Airflow, as a person starts one: `airflow standalone`'s parts, each in a session of its own.

    A session with its API.
    """
    asked(python, environment, "-m", "airflow", "db", "migrate", cwd=folder)
    passwords = folder / "airflow" / "simple_auth_manager_passwords.json.generated"
    passwords.write_text(json.dumps({"admin": "secret of the test"}))
    parts = ("api-server", "dag-processor", "triggerer", "scheduler")
    started = []
    try:
        for part in parts:
            with (folder / f"{part}.log").open("w") as log:
                command = [str(python), "-m", "airflow", part]
                started.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        cwd=folder,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        with AirflowApi(Address(environment["AIRFLOW__API__BASE_URL"], "admin", "secret of the test")) as api:
            api._client.timeout = 120
            yield api
    finally:
        _end(started)


def _end(started: list[Any]) -> None:
    import psutil

    trees = [psutil.Process(one.pid).children(recursive=True) for one in started if one.poll() is None]
    for one in started:
        one.terminate()
    for one in started:
        try:
            one.wait(20)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
    for process in (process for tree in trees for process in tree if process.is_running()):
        process.kill()
