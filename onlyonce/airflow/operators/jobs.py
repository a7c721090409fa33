"""Operators for jobs that need no Spark.

The job runs in the worker's own process, and its report goes to the task's log.

The DAGs of `onlyonce.airflow.dags` use them, and a team may use them in its own DAGs. A refusal fails the task for
good. After any other error the task is tried again, as its options say: each of these jobs may run at any time, even
twice at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from onlyonce.airflow.declared import Declared
from onlyonce.airflow.log.task_environment import secret_variables
from onlyonce.airflow.log.task_report import tell
from onlyonce.airflow.operators.outcome import refusals_are_final
from onlyonce.settings import within

Declarations = str | Path | Sequence[str | Path] | None


class JobOperator(BaseOperator):
    """One job, of one pipeline or of all. The subclasses say which."""

    module = ""
    entry = "main"

    def __init__(
        self, *, pipeline: str | None = None, declarations: Declarations = None, **options_of_task: Any
    ) -> None:
        super().__init__(**options_of_task)
        self.pipeline = pipeline
        self.declarations = Declared.of(declarations)

    def execute(self, context: Any) -> None:
        """Run the job and log its report. Raises what the job raises, AirflowFailException for what is refused."""
        # By name: DAG files import no database, and import-linter sees through a function's body too.
        job, formats = (importlib.import_module(f"onlyonce.{name}") for name in (self.module, "database.formats"))
        with refusals_are_final(self.log), within({**secret_variables(), **self.declarations.variables()}):
            formats.check_home()
            report = getattr(job, self.entry)(self.arguments(context))
        tell(report, self.log)

    def arguments(self, context: Any) -> list[str]:
        """The job's command line."""
        return [self.pipeline] if self.pipeline else []


class LandOperator(JobOperator):
    """Land a pipeline's Pub/Sub messages, before its stream reads them. A dry run lands nothing."""

    module = "sources.land"

    def execute(self, context: Any) -> None:
        """Land until the subscription is drained, or the declared time is over."""
        if context["params"].get("dry_run"):
            self.log.info("a dry run lands nothing")
            return
        super().execute(context)

    def arguments(self, context: Any) -> list[str]:
        """With the run, which the landing is told by."""
        return [*super().arguments(context), f"--run-id={context['run_id']}"]


class DeliverOperator(JobOperator):
    """Send what waits in the outbox.

    An endpoint that is away is a retry; one that refuses whoever asks fails for good.
    """

    module = "sinks.outbox.deliver"


class FinalizeOperator(JobOperator):
    """Give the files of committed batches their final names. Fails while a store is away, and where a name is taken."""

    module = "sinks.files.finalize"


class AuditOperator(JobOperator):
    """Compare what was read with what became of it, by the commit log. Fails when something does not add up."""

    module = "operate.audit"


class AlertsOperator(JobOperator):
    """Tell ONLYONCE_ALERT_HOOK what is new. Fails when the hook does."""

    module = "operate.alerts"


class DoctorOperator(JobOperator):
    """Look for what is stuck, for the page "Exactly once". It repairs nothing and does not fail by what it finds."""

    module, entry = "operate.doctor", "visit"


class CollectOperator(JobOperator):
    """Remove what was kept long enough: record ids beyond the dedup horizon, units, staged rows, input, orphans."""

    module = "operate.collect"


class MaintainOperator(JobOperator):
    """Compact the small files of closed windows in Delta tables, and remove what no reader needs."""

    module = "operate.maintain"
