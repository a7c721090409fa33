"""Asks the commit log about the drivers of a run of a DAG."""

from __future__ import annotations

import importlib
from typing import Any

from onlyonce.airflow.log import long_run_log


def attempt(pipeline: str, context: Any) -> int:
    """How many drivers the run has had so far. Raises Retryable when the log is away."""
    long_run_log.prepare()
    known = look(pipeline, context)
    return known.attempt if known else 0


def look(pipeline: str, context: Any) -> Any:
    """The run's last driver, `onlyonce.commitlog.driver_runs.DriverRun`; None before the first. Raises Retryable."""
    log = importlib.import_module("onlyonce.commitlog.driver_runs")
    return log.DriverRuns(long_run_log.database()).look(context["ti"].dag_id, context["run_id"], pipeline)
