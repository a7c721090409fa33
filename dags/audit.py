"""The DAG `audit`: every hour, conservation by the commit log. No Spark."""

from __future__ import annotations

import importlib
import logging
from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, task

from jobs.settings import within
from plugins.task_environment import database_variables
from plugins.task_report import tell

DOC = """\
Compares what was read with what became of it: each record of each committed batch is kept, late, a
duplicate, invalid or a remnant, and each output has read what receive kept. It reads the commit log
only. It fails when something does not add up; the log names the batches. The task `alerts` tells `ONLYONCE_ALERT_HOOK`
of broken conservation, of lag over its bound and of duplicates near the horizon, each cause once. The task `doctor` looks
for what is stuck, on disk too; the page "Exactly once" and the view `onlyonce.findings` have what it found last.
"""

log = logging.getLogger(__name__)

with DAG(
    "audit",
    description="Does every record add up, by the commit log?",
    doc_md=DOC,
    schedule=CronTriggerTimetable("0 * * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    tags=["onlyonce"],
    default_args={"retries": 1, "retry_delay": timedelta(seconds=30)},
):

    @task
    def conservation() -> None:
        """Run the audit and log its report, one line for each row."""
        # By name: DAG files import no database, and import-linter sees through a function's body too.
        audit = importlib.import_module("jobs.audit")
        with within(database_variables()):
            report = audit.main([])
        tell(report, log)

    @task
    def alerts() -> None:
        """Tell the hook what is new, whatever the audit says. It fails when the hook does."""
        told = importlib.import_module("jobs.alerts")
        with within(database_variables()):
            report = told.main([])
        tell(report, log)

    @task
    def doctor() -> None:
        """Look for what is stuck, for the page "Exactly once". It repairs nothing and does not fail by what it finds."""
        on_call = importlib.import_module("jobs.doctor")
        with within(database_variables()):
            report = on_call.visit([])
        tell(report, log)

    conservation()
    alerts()
    doctor()
