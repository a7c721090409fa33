"""Run a pipeline's stream from a task: run the pipeline once, or supervise a continuous run, as the Param `mode` asks.

The module has three parts:

1. `submit_command` builds the command that starts the driver of a continuous run. The hook of Airflow's Spark provider
   can't be used: it waits for the end of spark-submit, while this driver outlives its task. The hook has no public
   method that returns its command. So the same command is built here from the same keywords, in client mode
   (`tests/dags/test_submit_command.py` compares the two).
2. `may_outlive` decides whether a process may outlive the task that starts it.
3. `StreamOperator` is the operator. `core.runs.on_start` and `core.runs.on_watch` make its decisions.
"""

from __future__ import annotations

import importlib
import secrets
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Connection, conf
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from onlyonce import settings
from onlyonce.airflow import log
from onlyonce.airflow.jobs import failed_for_good, of_code, refusals_are_final
from onlyonce.airflow.spark_job import SparkJobOperator, end_tree
from onlyonce.airflow.triggers import LongRunEnd
from onlyonce.core.errors import CommitStateUnknown, Refused, Retryable
from onlyonce.core.runs import LongRun, ending, first_line, on_start, on_watch, refuse_other_options
from onlyonce.settings import within

FLAGS = {
    "properties_file": "--properties-file", "files": "--files", "py_files": "--py-files", "archives": "--archives",
    "driver_class_path": "--driver-class-path", "jars": "--jars", "packages": "--packages",
    "exclude_packages": "--exclude-packages", "repositories": "--repositories", "num_executors": "--num-executors",
    "total_executor_cores": "--total-executor-cores", "executor_cores": "--executor-cores",
    "executor_memory": "--executor-memory", "driver_memory": "--driver-memory", "keytab": "--keytab",
    "principal": "--principal", "proxy_user": "--proxy-user", "name": "--name", "java_class": "--class",
}  # fmt: skip
"""The keywords of `SparkSubmitHook` that become an option with a value, in the order in which the hook writes them."""
OF_A_TASK = ("post_submit_commands", "use_krb5ccache")
"""Keywords of `SparkSubmitHook` for work before or after the driver's process. A task that has ended can't do it."""


def submit_command(
    master: str, extra: Mapping[str, Any], given: Mapping[str, Any], application: str, arguments: list[str]
) -> list[str]:
    """Return the command that the provider's hook would run. Pure.

    extra   the extras of the Airflow connection: queue, namespace, principal, program
    given   the keywords of the hook; `conf` is a mapping, all others are strings and numbers

    Raise Refused for a keyword of OF_A_TASK, and for the connection's keytab: there it is the file's content, which the
    hook writes into a temporary file of the task.
    """
    refused = [word for word in OF_A_TASK if given.get(word)]
    refused += ["the keytab of the connection"] if extra.get("keytab") and not given.get("keytab") else []
    if refused:
        raise Refused(
            f"mode continuous: {' and '.join(refused)} can't be given to a driver that outlives its task",
            data="nothing was started",
            hint="give the operator workers_outlive_tasks=False: then the task stays for as long as the driver runs",
        )
    spark_conf = dict(given.get("conf") or {})
    namespace = spark_conf.get("spark.kubernetes.namespace") or extra.get("namespace")
    values = {**given, "principal": given.get("principal") or extra.get("principal")}
    command = [given.get("spark_binary") or extra.get("spark-binary") or "spark-submit", "--master", master]
    command += [part for key, value in spark_conf.items() for part in ("--conf", f"{key}={value}")]
    if master.startswith("k8s") and namespace:
        command += ["--conf", f"spark.kubernetes.namespace={namespace}"]
    command += [part for word, flag in FLAGS.items() if values.get(word) for part in (flag, str(values[word]))]
    command += ["--verbose"] if given.get("verbose") else []
    for flag, value in (
        ("--queue", given.get("yarn_queue") or extra.get("queue")),
        ("--deploy-mode", given.get("deploy_mode") or extra.get("deploy-mode")),
    ):
        command += [flag, str(value)] if value else []
    return [*command, application, *arguments]


# Whether a process may outlive the task that starts it: that depends on the task's executor.


EXECUTORS_WITH_LASTING_WORKERS = ("LocalExecutor", "CeleryExecutor")
"""Their workers continue when a task has ended.

With any other (Kubernetes, ECS, Batch) a task's pod may end with it.
"""


def may_outlive(executor: str | None, configured: str) -> bool:
    """Return whether a process may outlive its task, by the task's own executor, else by Airflow's executors. Pure.

    executor    names one executor: a class, or `alias:path`
    configured  the setting `core.executor`: such names with commas between them, the default first; for each team
                more of them, as `;team=names`. A task does not know its team, so the default of each team counts
    """
    defaults = [names.rpartition("=")[2].split(",")[0] for names in configured.split(";")]
    return all(
        any(part.strip().rpartition(".")[2] in EXECUTORS_WITH_LASTING_WORKERS for part in one.split(":"))
        for one in ([executor] if executor else defaults)
    )


def may_outlive_task_of(operator: Any) -> bool:
    """Return whether a process may outlive the task of an operator."""
    return may_outlive(getattr(operator, "executor", None), conf.get("core", "executor", fallback=""))


# The operator.


_START_PATIENCE = 180.0
"""Seconds that a new driver has until the log knows it."""
_LOOK_SECONDS = 0.5
"""Seconds between two polls of the log for the new driver."""
_WATCH_SECONDS = 5.0
"""Seconds between two polls of a driver that another task has started."""


class StreamOperator(SparkJobOperator):
    """Runs a pipeline once, or keeps a continuous run of it going. Each stream DAG of `onlyonce.airflow.dags` has one.

    The Param `mode` decides:

    - Without `continuous` the task runs the pipeline once. Such a run without other options is skipped while a
      continuous run is alive, since the continuous run reads the same input.
    - With `continuous` the task supervises a continuous run, in one of two ways (`_driver_outlives`):

      1. `_start`, if workers outlive tasks: the task starts the driver as a process that outlives it, or attaches to
         the driver that is alive. Then it is deferred. The triggerer waits until no driver is alive, and Airflow calls
         `resume`.
      2. `_follow`, if a worker ends with its task (a pod), or if the driver is in a cluster: the task stays until the
         continuous run is over. The driver is its child process, or it watches the driver that is alive.

    When the driver has ended, `_verdict` decides: if a person asked for the stop, the task has succeeded; if the driver
    died, the task starts another one.

    These decisions use only the log, and Airflow's database has no state of the continuous run. So a cleared task
    really runs again, and never in parallel with another driver. If two drivers start at once, a lock in the log lets
    one of them take the place.
    """

    _stops_as: str | None = None
    """The value of `_supervisor` while `_follow` watches a driver that another task has started; else None.

    `on_kill` asks that driver to stop.
    """

    _kept_supervisor: str | None = None
    """The value of `_supervisor`, once it was asked for: it has a random part."""

    def __init__(self, *, workers_outlive_tasks: bool | None = None, **options_of_job: Any) -> None:
        super().__init__(**options_of_job)
        self.workers_outlive_tasks = workers_outlive_tasks

    def execute(self, context: Any) -> None:
        """Run once, or ensure that a continuous run is active.

        Raise TaskDeferred, and the errors of `SparkJobOperator.execute`.
        """
        params = context["params"]
        log.prepare()
        if params.get("mode") == "continuous":
            with refusals_are_final(self.log):
                refuse_other_options(**{name: bool(params.get(name)) for name in ("close", "bounded", "dry_run")})
            return self._start(context) if self._driver_outlives() else self._follow(context)
        known = log.read_long_run(self.pipeline)
        if known and known.alive and not any(params.get(name) for name in ("close", "bounded", "dry_run")):
            raise AirflowSkipException(
                f"A continuous run is active (attempt {known.attempt}): it reads the available input."
            )
        super().execute(context)

    def resume(self, context: Any, event: dict[str, Any], *, ours: bool) -> None:
        """Continue when no driver is alive. Airflow calls this with the trigger's event. Raise as `execute`.

        ours   False if the driver had been asked to stop before this task came. Then its end does not end this task,
               which starts a driver of its own
        """
        if event["problem"]:
            raise failed_for_good(event["problem"], self.log)
        if not ours:
            return self._start(context)
        action = self._verdict(context)
        if action == "done":
            self._stopped(context)
        elif action == "watch":
            self._wait(context, ours=True)
        else:
            self._start(context)

    def _verdict(self, context: Any) -> str:
        """Return what to do about the continuous run that this task watches: 'watch', 'start' or 'done' (`on_watch`).

        Raise an error that fails the task for good if a person must act, and AirflowException if a retry may help.
        """
        known = self._known(context)
        action = on_watch(known)
        if action == "start":
            self.log.warning("It is started again: %s", ending(known) if known else "the log does not know it")
        elif action == "fail":
            raise failed_for_good(f"The continuous run needs a person: {ending(known)}", self.log)  # type: ignore[arg-type]
        elif action == "retry":
            raise AirflowException(f"The continuous run did not get through its first round: {ending(known)}")  # type: ignore[arg-type]
        return action

    def _driver_outlives(self) -> bool:
        """Return whether the driver may outlive this task. Raise AirflowFailException as `place` raises Refused."""
        with refusals_are_final(self.log):
            mode = self.place()[1]
        given = self.workers_outlive_tasks
        return mode == "client" and (may_outlive_task_of(self) if given is None else given)

    def _follow(self, context: Any) -> None:
        """Stay until the continuous run is over: run its driver, or watch the one that is alive. Raise as `resume`."""
        action = ""
        while action != "done":
            known = self._known(context)
            first_action = on_start(known)
            if first_action == "start":
                self._drive_long(context, known.attempt if known else 0)
            else:
                self.log.info("A continuous run is active, or stops: this task waits and polls it.")
                self._look_while_alive(context)
            # 'wait': the driver had been asked to stop before this task came. So its end does not end this task, and
            # the loop starts a driver.
            action = "" if first_action == "wait" else self._verdict(context)
        self._stopped(context)

    def _stopped(self, context: Any) -> None:
        """Report the tables that the continuous run has written to.

        If that fails, the task has succeeded nevertheless: its retry would start the run that a person has stopped. The
        next run of the DAG that ends well reports them.
        """
        self.log.info("The continuous run has stopped, as it was asked to.")
        try:
            known = self._known(context)
            log.report_assets(self.pipeline, context, self.declarations.variables(), *([known.run_id] if known else []))
        except Exception as error:
            self.log.warning("DAGs that follow its tables start after the next run of this DAG: %s", first_line(error))
            log.note_failure(self.pipeline, context, error)

    def _drive_long(self, context: Any, before: int) -> None:
        try:
            self._drive(context)
        except AirflowException as error:
            known = self._known(context)
            if known is None or known.attempt == before:
                raise  # it ended before it was in the log
            self.log.warning("The driver ended: %s", error)

    def _look_while_alive(self, context: Any) -> None:
        self._stops_as = self._supervisor(context)
        while True:
            try:
                known = self._known(context)
            except (Retryable, CommitStateUnknown) as error:
                self.log.warning("the commit log did not answer: %s", error.what)
            else:
                if known is None or not known.alive:
                    self._stops_as = None
                    return
            time.sleep(_WATCH_SECONDS)

    def on_kill(self) -> None:
        """End the driver that is this task's child, as `SparkJobOperator` does.

        Ask a driver that this task only watches to stop, unless another task watches it by now.
        """
        super().on_kill()
        if self._stops_as:
            log.ask_stop(self._stops_as)

    def _start(self, context: Any) -> None:
        known = self._known(context)
        action = on_start(known)
        if action == "start":
            self._start_driver(context, known)
        elif action == "attach":
            self.log.info("Attached to the active continuous run: attempt %s on %s", known.attempt, known.driver)  # type: ignore[union-attr]
        else:
            self.log.info("The active continuous run was asked to stop; another is started when it has ended.")
        self._wait(context, ours=action != "wait")

    def _start_driver(self, context: Any, before: LongRun | None) -> None:
        with refusals_are_final(self.log):
            master, _ = self.place()
            extra, keywords = Connection.get(self.conn_id).extra_dejson, self._hook_keywords(context, master)
            command = submit_command(master, extra, keywords, self.application, self._arguments(context))
        self._push_links(context)
        with within(self._variables(master) | self.env_vars), _log_of(f"long-run-{self.pipeline}") as log_file:
            # In its own session: it outlives this task, and the task's end must not end the driver.
            driver = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL, stdout=log_file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self.log.info("A continuous run starts as process %s; its log is %s", driver.pid, log_file.name)
        self._await_taken(context, driver, before.attempt if before else 0)

    def _await_taken(self, context: Any, driver: subprocess.Popen[bytes], before: int) -> None:
        """Wait until a driver has taken the place in the log.

        before   the attempt that had the place last

        If the driver ends before, raise the error of its exit code. Return also if another driver was quicker:
        the continuous run exists in that case.
        """
        end = time.monotonic() + _START_PATIENCE
        while time.monotonic() < end:
            known = self._known(context)
            if known and known.attempt > before:
                return
            if (code := driver.poll()) is not None:
                raise of_code(code)
            time.sleep(_LOOK_SECONDS)
        end_tree(driver.pid)
        raise AirflowException(
            f"The driver of the continuous run has not taken its place within {_START_PATIENCE:.0f} s."
        )

    def _wait(self, context: Any, *, ours: bool) -> None:
        trigger = LongRunEnd(self.pipeline, self._supervisor(context))
        self.defer(trigger=trigger, method_name="resume", kwargs={"ours": ours})

    def _supervisor(self, context: Any) -> str:
        """Return the name under which this try of the task watches a continuous run.

        The name is enough to ask the driver to stop, so it has a random part that can't be guessed.
        """
        if self._kept_supervisor is None:
            task = context["ti"]
            self._kept_supervisor = f"{task.dag_id}/{context['run_id']}/{task.try_number}/{secrets.token_hex(16)}"
        return self._kept_supervisor

    def _known(self, context: Any) -> LongRun | None:
        """Return the continuous run as stored in the log, and note there that this task watches it."""
        return log.watch(self.pipeline, self._supervisor(context))


def _log_of(name: str) -> Any:
    # Imported by name here: a DAG file imports this module, and must be parsed without what `local.processes` imports.
    return importlib.import_module("onlyonce.local.processes").open_log(settings.home(), name)
