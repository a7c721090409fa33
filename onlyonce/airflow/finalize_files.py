"""The task that gives the files of sharded outputs their final names. No Spark. Used by the DAGs `stream_…`, `backfill_…`
and `finalize`."""

from __future__ import annotations

import importlib
import logging
from datetime import timedelta

from airflow.sdk import task

from onlyonce.airflow.spark_job import refusals_are_final
from onlyonce.airflow.task_environment import database_variables
from onlyonce.airflow.task_report import tell
from onlyonce.declare.pipeline import FileSink, Pipeline
from onlyonce.settings import within

log = logging.getLogger(__name__)


def has_files(pipeline: Pipeline) -> bool:
    """Whether any output of a pipeline writes sharded files."""
    return any(isinstance(output.sink, FileSink) for output in pipeline.outputs)


@task(retries=2, retry_delay=timedelta(seconds=10))
def finalize(pipeline: str | None = None) -> None:
    """Finalize one pipeline or all, and log the report. May run at any time, twice at once too.

    Fails with a retry while the database or a store is away, and where a file is missing or its name is taken.
    """
    # By name: DAG files import no database, and import-linter sees through a function's body too.
    job = importlib.import_module("onlyonce.sinks.files.finalize")
    with within(database_variables()), refusals_are_final(log):
        report = job.main([pipeline] if pipeline else [])
    tell(report, log)
