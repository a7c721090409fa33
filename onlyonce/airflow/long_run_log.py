"""What Airflow asks of the commit log about a pipeline's long run. Called by the operator, and by the trigger on a thread."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from onlyonce.airflow.task_environment import database_url
from onlyonce.model.run.long_run import LongRun


def prepare() -> None:
    """Bring a database of an older version to this one. A task begins with it."""
    _log("migrate").migrate(database_url())


def look(pipeline: str) -> LongRun | None:
    """The last long run; None before the first. Raises DatabaseAway."""
    found: LongRun | None = _run(lambda conn: _log("long_runs").look(conn, pipeline))
    return found


def watch(pipeline: str, supervisor: str) -> LongRun | None:
    """The same, by a supervisor that watches it from now on."""
    found: LongRun | None = _run(lambda conn: _log("long_runs").watch(conn, pipeline, supervisor))
    return found


def ask_stop(pipeline: str, supervisor: str) -> bool:
    """Ask the driver to stop, unless another supervisor watches it by now; whether it was asked."""
    return bool(_run(lambda conn: _log("long_runs").ask_stop(conn, pipeline, supervisor)))


def _run(work: Callable[[Any], Any]) -> Any:
    connect = _log("connect")
    return connect.run(connect.Database(database_url(), "onlyonce-airflow"), work)


def _log(module: str) -> Any:
    # By name: a DAG file, which reaches this module, parses without a database's driver.
    return importlib.import_module(f"onlyonce.commitlog.{module}")
