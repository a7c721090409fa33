"""Asks the commit log about a pipeline's long run.

Called by the operator, and by the trigger on a thread, which has the reader's password only.
"""

from __future__ import annotations

import importlib
from typing import Any

from onlyonce.airflow.log.task_environment import database_url, reader_url
from onlyonce.model.run.long_run import LongRun


def prepare() -> None:
    """Bring a database of an older version to this one. A task begins with it."""
    _module("database.migrate").migrate(database_url())


def look(pipeline: str) -> LongRun | None:
    """The last long run; None before the first. Raises DatabaseAway."""
    found: LongRun | None = _long_runs(reader_url()).look(pipeline)
    return found


def watch(pipeline: str, supervisor: str) -> LongRun | None:
    """The same, by a supervisor that watches it from now on."""
    found: LongRun | None = _long_runs().watch(pipeline, supervisor)
    return found


def ask_stop(supervisor: str) -> bool:
    """Ask the driver that this supervisor watches to stop, unless another one watches it by now; whether it was
    asked."""
    return bool(_long_runs(reader_url()).ask_watched_to_stop(supervisor))


def at_work(pipeline: str) -> bool:
    """Whether any driver of the pipeline has a session with the log."""
    found = _module("commitlog.operate.health").Health(database()).queries()
    return any(query.at_work for query in found if query.pipeline == pipeline)


def database(url: str | None = None) -> Any:
    """The log as Airflow reaches it; by default as the writer."""
    return _module("database.connect").Database(url or database_url(), "onlyonce-airflow")


def _long_runs(url: str | None = None) -> Any:
    return _module("commitlog.long_runs").LongRuns(database(url))


def _module(name: str) -> Any:
    # By name: a DAG file, which reaches this module, parses without a database's driver.
    return importlib.import_module(f"onlyonce.{name}")
