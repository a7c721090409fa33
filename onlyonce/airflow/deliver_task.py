"""The task `deliver`: what a stream has put into the outbox is sent, by a plain process of the worker. No Spark."""

from __future__ import annotations

import importlib
import logging

from airflow.sdk import task

from onlyonce.airflow.spark_job import refusals_are_final
from onlyonce.airflow.task_environment import database_variables
from onlyonce.airflow.task_report import tell
from onlyonce.declare.pipeline import Pipeline, Sent
from onlyonce.settings import within

log = logging.getLogger(__name__)


def sends(pipeline: Pipeline) -> bool:
    """Whether it has an output whose rows are sent."""
    return any(isinstance(output.sink, Sent) for output in pipeline.outputs)


@task
def deliver(pipeline: str) -> None:
    """Send what waits of a pipeline, and log the report. An endpoint that is away is a retry; one that refuses whoever
    asks fails for good, until a person has corrected it. Used by `dags/stream.py` and `dags/deliver.py`."""
    # By name: DAG files import no database, and import-linter sees through a function's body too.
    job = importlib.import_module("onlyonce.sinks.outbox.deliver")
    with within(database_variables()), refusals_are_final(log):
        report = job.main([pipeline])
    tell(report, log)
