"""The DAG `audit`: every hour, conservation by the commit log. No Spark."""

from __future__ import annotations

import importlib
import logging
from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, task

from onlyonce.airflow.task_environment import database_variables
from onlyonce.airflow.task_report import tell
from onlyonce.settings import within

DOC = """\
Compares what was read with what became of it, by the commit log only: each record of each committed batch is kept, late, a
duplicate, invalid or a remnant, and each output has read what receive kept. It fails when something does not add up; the log names
the batches. The task `alerts` tells `ONLYONCE_ALERT_HOOK` of broken conservation, of lag over its bound and of duplicates near
the horizon, each cause once. The task `doctor` looks for what is stuck, on disk too: the page "Exactly once" has what it found.
"""

log = logging.getLogger(__name__)


def _look(module: str, entry: str) -> None:
    # By name: DAG files import no database, and import-linter sees through a function's body too.
    with within(database_variables()):
        tell(getattr(importlib.import_module(f"onlyonce.operate.{module}"), entry)([]), log)


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
        """Run the audit; it fails when something does not add up."""
        _look("audit", "main")

    @task
    def alerts() -> None:
        """Tell the hook what is new, whatever the audit says. It fails when the hook does."""
        _look("alerts", "main")

    @task
    def doctor() -> None:
        """Look for what is stuck, for the page "Exactly once". It repairs nothing and does not fail by what it finds."""
        _look("doctor", "visit")

    conservation()
    alerts()
    doctor()
