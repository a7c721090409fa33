"""The operator of the DAGs `stream_<pipeline>`: a drain, or the supervision of a long run, by the Param `mode`."""

from __future__ import annotations

import importlib
import subprocess
import time
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from onlyonce import settings
from onlyonce.airflow import long_run_log
from onlyonce.airflow.long_run_end import LongRunEnd
from onlyonce.airflow.spark_job import (
    SparkJobOperator,
    driver_variables,
    end_tree,
    failed_for_good,
    outcome,
    refusals_are_final,
)
from onlyonce.airflow.task_environment import database_variables
from onlyonce.model.run.long_run import LongRun, ending, on_start, on_watch, refuse_with
from onlyonce.settings import within

_START_PATIENCE = 180.0
_LOOK_SECONDS = 0.5


class StreamOperator(SparkJobOperator):
    """Drains a pipeline, or keeps a long run of it at work. Used by `dags/stream.py`.

    With *mode* forever it starts the driver as a process of its own, which outlives this task, or attaches to the one
    that is alive, and then waits in the triggerer for the end of its heartbeat. A driver that died is started again;
    when a stop was asked for, the task has succeeded. Nothing is remembered of it in Airflow: the log decides, so a
    run that is cleared really runs again, and never beside another. Two that start at once are one by the log's lock.

    A drain beside a living long run has nothing to do and is skipped.
    """

    _driver: subprocess.Popen[bytes] | None = None

    def execute(self, context: Any) -> None:
        """Drain, or see to it that a long run is at work. Raises TaskDeferred, or as `SparkJobOperator.execute`."""
        params = context["params"]
        long_run_log.prepare()
        if params.get("mode") == "forever":
            with refusals_are_final(self.log):
                refuse_with(**{name: bool(params.get(name)) for name in ("close", "bounded", "dry_run")})
            return self._start(context)
        known = long_run_log.look(self.pipeline)
        if known and known.alive and not any(params.get(name) for name in ("close", "bounded", "dry_run")):
            raise AirflowSkipException(f"A long run is at work (attempt {known.attempt}): it takes in what is there.")
        super().execute(context)

    def resume(self, context: Any, event: dict[str, Any], *, ours: bool) -> None:
        """Go on when no driver is alive; Airflow calls it with the trigger's event. Raises as `execute`.

        `ours` is whether that one was this task's to watch, or one that had been asked to stop before it came.
        """
        if event["problem"]:
            raise failed_for_good(event["problem"], self.log)
        if not ours:
            return self._start(context)
        known = self._known(context)
        does = on_watch(known)
        if does == "done":
            self.log.info("The long run has stopped, as it was asked to.")
        elif does == "watch":
            self._wait(context, ours=True)
        elif does == "start":
            self.log.warning("It is started again: %s", ending(known) if known else "the log does not know it")
            self._start(context)
        elif does == "fail":
            raise failed_for_good(f"The long run needs a person: {ending(known)}", self.log)  # type: ignore[arg-type]
        else:
            raise AirflowException(f"The long run did not get through its first turn: {ending(known)}")  # type: ignore[arg-type]

    def on_kill(self) -> None:
        """As for a drain. A long run that has just begun to start ends with the task; one at work is in the log."""
        super().on_kill()
        if self._driver and self._driver.poll() is None:
            end_tree(self._driver)

    def _start(self, context: Any) -> None:
        known = self._known(context)
        does = on_start(known)
        if does == "start":
            self._start_driver(context, known)
        elif does == "attach":
            self.log.info("Attached to the long run at work: attempt %s on %s", known.attempt, known.driver)  # type: ignore[union-attr]
        else:
            self.log.info("The long run at work was asked to stop; another is started when it has ended.")
        self._wait(context, ours=does != "wait")

    def _start_driver(self, context: Any, before: LongRun | None) -> None:
        with refusals_are_final(self.log):
            self._make_hook(context)
        self._link(context)
        with (
            within({**database_variables(), **driver_variables(self._hook)}),
            _log_of(f"long-run-{self.pipeline}") as log,
        ):
            # In a session of its own: it outlives this task, whose end must be the end of nothing else.
            self._driver = subprocess.Popen(
                self._hook._build_spark_submit_command(self.application),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self.log.info("A long run starts as process %s; its log is %s", self._driver.pid, log.name)
        self._await_taken(context, self._driver, before.attempt if before else 0)
        self._driver = None

    def _await_taken(self, context: Any, driver: subprocess.Popen[bytes], before: int) -> None:
        """Until the driver has its place in the log. One that ended before fails the task as the driver of a drain would,
        but where another was quicker: there is a long run, and nobody asked for more."""
        end = time.monotonic() + _START_PATIENCE
        while time.monotonic() < end:
            known = self._known(context)
            if known and known.attempt > before:
                return
            if (code := driver.poll()) is not None:
                raise outcome(AirflowException(f"Cannot execute. Error code is: {code}."))
            time.sleep(_LOOK_SECONDS)
        end_tree(driver)
        raise AirflowException(f"The driver of the long run has not taken its place within {_START_PATIENCE:.0f} s.")

    def _wait(self, context: Any, *, ours: bool) -> None:
        trigger = LongRunEnd(self.pipeline, _supervisor(context))
        self.defer(trigger=trigger, method_name="resume", kwargs={"ours": ours})

    def _known(self, context: Any) -> LongRun | None:
        return long_run_log.watch(self.pipeline, _supervisor(context))


def _supervisor(context: Any) -> str:
    """The name under which this try of the task watches a long run."""
    task = context["ti"]
    return f"{task.dag_id}/{context['run_id']}/{task.try_number}"


def _log_of(name: str) -> Any:
    # By name: a DAG file, which reaches this module, parses without what the platform's own processes need.
    return importlib.import_module("onlyonce.local.processes").open_log(settings.home(), name)
