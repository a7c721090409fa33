"""The operator of a pipeline's backfills: it waits for open windows without a worker, then runs the Spark job."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from onlyonce.airflow.forms import WAIT_HOURS
from onlyonce.airflow.jobs import failed_for_good, refusals_are_final
from onlyonce.airflow.log import Asked, asked_of, first_look, tell, would_backfill
from onlyonce.airflow.spark_job import SparkJobOperator
from onlyonce.airflow.triggers import OpenWindows

# The trigger ends the wait with its reason; this is for a triggerer that does not run.
_GRACE = timedelta(minutes=10)


class BackfillOperator(SparkJobOperator):
    """Runs `onlyonce/outputs/backfill.py` for the windows that the run's Params or its data interval name.

    Before Spark starts it asks the commit log. If the stream has not closed all the windows, the task is deferred for
    at most `wait_hours`, and then continues by itself. A refused request fails for good. With the Param `dry_run` it
    only logs what would be recomputed. The DAGs of `onlyonce.airflow.dags` have one for each pipeline with windows.

    Windows that were closed at the check may be open for the driver, say after `onlyonce reset`. The driver checks
    again, and its exit code 75 makes the task start again.
    """

    def __init__(self, *, pipeline: str, **options_of_task: Any) -> None:
        super().__init__(pipeline=pipeline, application="outputs/backfill.py", **options_of_task)

    def execute(self, context: Any) -> None:
        """Log what would be done, or wait, or run. Raise TaskDeferred, or as `SparkJobOperator.execute`."""
        self._look(context, None)

    def _look(self, context: Any, until: float | None) -> None:
        """Look at the log. `until`: when a wait that has begun ends, in seconds since 1970."""
        with refusals_are_final(self.log):
            asked = self._asked(context)
            if context["params"].get("dry_run"):
                return tell(would_backfill(asked, self.declarations), self.log)
            reason = first_look(asked, self.declarations)
        if reason:
            hours = context["params"]["wait_hours"]
            left = float(WAIT_HOURS if hours is None else hours) if until is None else (until - time.time()) / 3600
            self._wait(asked, reason, left)
        super().execute(context)

    def resume(self, context: Any, event: dict[str, Any]) -> None:
        """Continue after the wait; Airflow calls it with the trigger's event. Raise as `execute`."""
        if event["problem"]:
            raise failed_for_good(event["problem"], self.log)
        if event.get("look"):  # the triggerer has no declarations
            return self._look(context, event["until"])
        super().execute(context)

    def _arguments(self, context: Any) -> list[str]:
        return self._asked(context).arguments(context["run_id"], context["ti"].dag_id)

    def _asked(self, context: Any) -> Asked:
        start, end = context.get("data_interval_start"), context.get("data_interval_end")
        return asked_of(self.pipeline, context["params"], (start, end) if start and end else None)

    def _wait(self, asked: Asked, reason: str, hours: float) -> None:
        if hours <= 0:
            raise failed_for_good(reason, self.log)
        self.log.warning("waits up to %g h, without a worker's slot: %s", hours, reason)
        wait = timedelta(hours=hours)
        trigger = OpenWindows.of(asked, time.time() + wait.total_seconds(), self.declarations)
        self.defer(trigger=trigger, method_name="resume", timeout=wait + _GRACE)
