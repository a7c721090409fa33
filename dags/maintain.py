"""The DAG `maintain`: every night, compact the small files of closed windows in Delta tables. No Spark."""

from __future__ import annotations

import importlib
import logging
from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, task

from onlyonce.airflow.task_environment import database_variables
from onlyonce.airflow.task_report import tell
from onlyonce.settings import within

DOC = """\
Puts the files of a date together once no window that starts on it can be written any more by the stream, and removes files that are no
longer part of a table after `ONLYONCE_VACUUM_HOURS` (a week), later while a batch or backfill that began before is under way. Safe beside
running streams, backfills and itself: who comes second leaves a table for the next night, with a warning.
"""

log = logging.getLogger(__name__)

with DAG(
    "maintain",
    description="Compact the small files of closed windows, remove what no reader needs",
    doc_md=DOC,
    schedule=CronTriggerTimetable("50 3 * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    tags=["onlyonce"],
    default_args={"retries": 1, "retry_delay": timedelta(seconds=30)},
):

    @task
    def compact_closed_windows() -> None:
        """Maintain all tables, and log the report."""
        # By name: DAG files import no database, and import-linter sees through a function's body too.
        job = importlib.import_module("onlyonce.sinks.maintain")
        with within(database_variables()):
            report = job.main([])
        tell(report, log)

    compact_closed_windows()
