"""Asks the commit log about a pipeline's long run.

Called by the operator, and by the trigger on a thread, which has the reader's password only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from onlyonce.airflow.log.task_environment import database_url, reader_url
from onlyonce.model.run.long_run import LongRun


def prepare() -> None:
    """Bring a database of an older version to this one. A task begins with it."""
    _module("database.migrate").migrate(database_url())


def look(pipeline: str) -> LongRun | None:
    """The last long run; None before the first. Raises DatabaseAway."""
    found: LongRun | None = run(lambda conn: _module("commitlog.long_runs").look(conn, pipeline), reader_url())
    return found


def watch(pipeline: str, supervisor: str) -> LongRun | None:
    """The same, by a supervisor that watches it from now on."""
    found: LongRun | None = run(lambda conn: _module("commitlog.long_runs").watch(conn, pipeline, supervisor))
    return found


def ask_stop(supervisor: str) -> bool:
    """Ask the driver that this supervisor watches to stop, unless another one watches it by now; whether it was
    asked."""
    return bool(run(lambda conn: _module("commitlog.long_runs").ask_watched_to_stop(conn, supervisor), reader_url()))


def at_work(pipeline: str) -> bool:
    """Whether any driver of the pipeline has a session with the log."""
    found = run(lambda conn: _module("commitlog.operate.health").queries(conn))
    return any(query["at_work"] for query in found if query["pipeline"] == pipeline)


def run(work: Callable[[Any], Any], url: str | None = None) -> Any:
    """Something asked of the log, tried again while it is away for a moment; by default as the writer.

    Raises Retryable.
    """
    connect = _module("database.connect")
    return connect.run(connect.Database(url or database_url(), "onlyonce-airflow"), work)


def _module(name: str) -> Any:
    # By name: a DAG file, which reaches this module, parses without a database's driver.
    return importlib.import_module(f"onlyonce.{name}")
