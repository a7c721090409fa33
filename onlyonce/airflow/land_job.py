"""The task that lands a pipeline's Pub/Sub messages before its stream reads them. No Spark; it runs in Airflow's worker.

Who calls it: `dags/stream.py`. What needs no retry fails for good; the rest is retried, since a landing may be repeated.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import Any

from airflow.sdk import task

from onlyonce.airflow.spark_job import refusals_are_final
from onlyonce.airflow.task_environment import database_variables
from onlyonce.airflow.task_report import tell
from onlyonce.settings import within

log = logging.getLogger(__name__)


@task(task_id="land")
def land(pipeline: str, params: Mapping[str, Any] | None = None, run_id: str | None = None) -> None:
    """Land until the subscription is drained, or the declared time is over. A dry run lands nothing."""
    if params and params.get("dry_run"):
        log.info("a dry run lands nothing")
        return
    # By name: plug-ins import no database before a task runs.
    job = importlib.import_module("onlyonce.sources.land")
    with refusals_are_final(log), within(database_variables()):
        report = job.main([pipeline, f"--run-id={run_id}"])
    tell(report, log)
