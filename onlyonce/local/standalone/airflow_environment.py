"""The environment of Airflow's processes: settings, secrets, connections.

Secrets are in files of mode 0600 and in the environment of our own processes, never on a command line. Who calls it:
`onlyonce.local.standalone.airflow`, `onlyonce.local.standalone.airflow_api`, and tests that run Airflow's commands.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path

from sqlalchemy.engine import URL, make_url

from onlyonce import settings
from onlyonce.environment import inherited, variable
from onlyonce.local import secret_files
from onlyonce.settings import configuration, home_folders

USER = "admin"

EVERYWHERE = {
    "CORE__EXECUTOR": "LocalExecutor",
    "CORE__PARALLELISM": "4",  # each task may be a JVM; a laptop bears a few
    "CORE__LOAD_EXAMPLES": "False",
    "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
    "API__WORKERS": "1",
    # No log servers run (see onlyonce.local.standalone.airflow); the default port may be another Airflow's.
    "LOGGING__WORKER_LOG_SERVER_PORT": "1",
    "LOGGING__TRIGGER_LOG_SERVER_PORT": "1",
    # A new or changed declaration shows within seconds, not minutes.
    "DAG_PROCESSOR__REFRESH_INTERVAL": "10",
    "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
    "DAG_PROCESSOR__PARSING_PROCESSES": "1",
    "DAG_PROCESSOR__PRINT_STATS_INTERVAL": "600",
    # A task outlives an api-server that is killed and started again, and a machine that is busy.
    "WORKERS__EXECUTION_API_RETRIES": "10",
    "WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "15",
    "WORKERS__EXECUTION_API_TIMEOUT": "30",
    # A task whose worker was killed is run again after two minutes instead of ten.
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
    "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "60",
}
"""Airflow's settings that know nothing of the place: docker-compose.yml has the same (tests/compose compares them)."""


def environment() -> dict[str, str]:
    """This process's environment with everything that Airflow's processes and their tasks need.

    Raises FileNotFoundError when the embedded PostgreSQL was never started.
    """
    home = settings.home()
    airflow_home = home_folders.inside(home, "airflow")
    password()
    return {
        **inherited(),
        **_airflow(airflow_home, f"http://127.0.0.1:{settings.airflow_port()}"),
        **_secrets(airflow_home),
        **_connections(),
        **_surroundings(home),
    }


def host_name() -> str:
    """The name of this machine for Airflow: it uses it to reach a task's log, and DNS may not know it."""
    return "127.0.0.1"


def password() -> str:
    """The password of the user `admin`, made before Airflow would make one and print it to a log."""
    return secret_files.read_or_make(password_file(), lambda: {USER: secrets.token_urlsafe(12)})[USER]


def password_file() -> Path:
    """Return the file that holds the password, readable by its owner only."""
    return settings.home() / "airflow" / "simple_auth_manager_passwords.json.generated"


def airflow_url(driver: str) -> str:
    """The URL of Airflow's own database for a driver. It holds a password: never log it."""
    url = make_url((settings.home() / "postgres" / "airflow.url").read_text().strip())
    if driver.endswith("+asyncpg"):
        url = url.set(query={})  # asyncpg knows no require_auth
    return url.set(drivername=driver).render_as_string(hide_password=False)


def _airflow(airflow_home: Path, address: str) -> dict[str, str]:
    options = EVERYWHERE | {
        "CORE__DAGS_FOLDER": str(settings.ROOT / "dags"),
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


def _secrets(airflow_home: Path) -> dict[str, str]:
    # Fixed, so that what one process signs the next one reads, also after a restart.
    made = secret_files.read_or_make(airflow_home / "secrets.json", _new_secrets)
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
    # As JSON: a master such as local[*] or k8s://https://host is no part of a URL.
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
        "PYTHONPATH": os.pathsep.join(filter(None, [str(settings.ROOT), old_modules])),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        # Tasks reach Airflow's API on the loopback address, never through a proxy.
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
    }
