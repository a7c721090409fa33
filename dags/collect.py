"""The DAG `collect`: every hour, let go what is kept long enough. No Spark."""

from __future__ import annotations

import importlib
import logging
from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, task

from onlyonce.airflow.task_environment import database_variables
from onlyonce.airflow.task_report import tell
from onlyonce.settings import within

DOC = """\
Drops the record ids that are older than each pipeline's dedup horizon, by whole buckets of ten minutes. The
horizon follows what is committed, not the clock: nothing is dropped while a pipeline stands still. Safe
beside running streams. What a bucket's drop could not get at is left for the next hour, with a warning.
Small chunks of ids are merged; units and staged rows of long committed batches go; with `ONLYONCE_ARCHIVE` input files
that every pipeline has committed are moved there. Temporaries of sharded files that no attempt can want any more are listed,
and removed when they are a day old. The task's log says what went.
"""

log = logging.getLogger(__name__)

with DAG(
    "collect",
    description="Let go what is kept long enough: record ids beyond the dedup horizon, units, staged rows, input, orphans",
    doc_md=DOC,
    # Not on the hour, when the audit and most streams begin.
    schedule=CronTriggerTimetable("25 * * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    tags=["onlyonce"],
    default_args={"retries": 1, "retry_delay": timedelta(seconds=30)},
):

    @task
    def drop_old_ids() -> None:
        """Collect, and log the report, one line for each pipeline."""
        # By name: DAG files import no database, and import-linter sees through a function's body too.
        collect = importlib.import_module("onlyonce.operate.collect")
        with within(database_variables()):
            report = collect.main([])
        tell(report, log)

    drop_old_ids()
