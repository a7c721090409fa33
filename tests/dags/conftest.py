"""Airflow without a server: it gets a folder of its own before anything imports it, and the package's entry points."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog

import tests.support.airflow_home  # noqa: F401 - it makes the folder

os.environ["AIRFLOW__CORE__PLUGINS_FOLDER"] = str(Path(os.environ["AIRFLOW_HOME"]) / "plugins")

PASSWORD = "p@ss/w%rd:ö"

# Stands for spark-submit: tells what it was given, and ends as it is told.
SUBMIT = """#!{python}
import json, os, sys
with open({told!r}, "w") as file:
    json.dump({{"argv": sys.argv, "env": dict(os.environ)}}, file)
print("unit=a/receive/1/0 epoch=3")
sys.exit({code})
"""


@pytest.fixture(autouse=True, scope="module")
def _logs_of_airflow() -> None:
    """As in a fresh process: entry points that tests of other folders called have configured the logs of this one.
    Before a module's own fixtures, which read the DAG files."""
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _logs_of_each_test() -> None:
    """The same where a test of this folder called one."""
    structlog.reset_defaults()


@dataclass
class Submitted:
    """What spark-submit was given."""

    argv: list[str]
    env: dict[str, str]


Submit = Callable[..., Submitted | None]


@dataclass
class TaskInstance:
    """What an operator may ask of Airflow's task instance: whose it is, and to keep an XCom."""

    dag_id: str = "flights_stream"
    run_id: str = "manual__1"
    kept: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, *, key: str, value: Any) -> None:
        """Keep it."""
        self.kept[key] = value


@pytest.fixture
def submits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """Does some work with a spark-submit that ends with `code`; gives what it was given, or None if it wasn't run."""
    database = {"conn_type": "postgres", "host": "db", "port": 5432, "login": "w", "password": PASSWORD, "schema": "d"}
    monkeypatch.setenv("AIRFLOW_CONN_ONLYONCE_DB", json.dumps(database))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("ONLYONCE_DATABASE_URL", raising=False)

    def run(work: Callable[[], Any], code: int = 0) -> Submitted | None:
        told = tmp_path / "told.json"
        told.unlink(missing_ok=True)
        script = tmp_path / "spark-submit"
        script.write_text(SUBMIT.format(python=sys.executable, told=str(told), code=code))
        script.chmod(0o755)
        work()
        return Submitted(**json.loads(told.read_text())) if told.exists() else None

    return run
