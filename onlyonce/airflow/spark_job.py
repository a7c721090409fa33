"""The operator that runs a pipeline's Spark job: the provider's SparkSubmitOperator, thinly wrapped.

It adds four things: the settings that the JVM needs before it starts, the secrets by the environment, the
meaning of the driver's exit code, and the end of the driver with its task.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators import spark_submit
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from onlyonce import settings
from onlyonce.airflow import outlets
from onlyonce.airflow.commits_link import CommitsLink
from onlyonce.airflow.task_environment import database_variables
from onlyonce.model.errors import EXIT_CODES, InvariantBroken, OnlyonceError, Refused, Retryable, Superseded
from onlyonce.settings import within
from onlyonce.spark_master import refuse_master
from onlyonce.spark_options import options, with_retries

PACKAGE = Path(settings.__file__).parent
_EXIT_CODE = re.compile(r"Error code is: (-?\d+)\.")
# Airflow sends SIGTERM and five seconds later SIGKILL.
_KILL_PATIENCE = 3.0

WHO_ACTS: dict[type[OnlyonceError], str] = {
    Retryable: "nothing is half done, and the same command may run again",
    Superseded: "a newer run of this pipeline is at work and goes on with the same batches; there is nothing to do",
    Refused: "the request is wrong and would be so again; do what the driver says after 'next:', then clear this task",
    InvariantBroken: "a person must look at what the driver names; until then nothing runs by itself",
}


class SparkJobOperator(SparkSubmitOperator):
    """Runs an application of the package for one pipeline; the task's log ends with what the commit log holds of it.

    By default that is `run/stream.py`, with arguments from the run's Params (`arguments`). Fails with a retry, or
    for good (`outcome`). Used by `dags/stream.py`; `onlyonce.airflow.backfill_job` builds on it. Not promised: that the
    driver dies when the worker itself is killed with SIGKILL; it then goes on until a newer run supersedes it.
    Client mode only: with a driver in the cluster the secrets have to be there already.
    """

    operator_extra_links = (CommitsLink(),)

    def __init__(self, *, pipeline: str, application: str = "run/stream.py", **options_of_task: Any) -> None:
        # Not durable: a durable task that is cleared finds its old job's success and runs nothing.
        super().__init__(
            application=str(PACKAGE / application),
            name=f"onlyonce {pipeline}",
            durable=False,
            outlets=[outlets.alias(pipeline)],
            **options_of_task,
        )
        self.pipeline = pipeline

    def execute(self, context: Any) -> None:
        """Run the driver to its end. Raises AirflowException, or AirflowFailException where no retry helps."""
        with refusals_are_final(self.log):
            self._make_hook(context)
        self._link(context)
        try:
            with within({**database_variables(), **driver_variables(self._hook)}):
                super().execute(context)
        except AirflowException as error:
            # Not `from error`: it repeats the command and the driver's last lines, which the log has.
            raise outcome(error) from None
        outlets.tell(self.pipeline, context)

    def on_kill(self) -> None:
        """The driver ends with its task: the JVM, its Python, and their workers."""
        submitted = self._hook._submit_sp if self._hook else None
        if submitted and submitted.poll() is None:
            end_tree(submitted)

    def _make_hook(self, context: Any) -> None:
        """The hook, with the arguments, and OpenLineage's parent where that is asked for: the provider puts it into `conf`
        in its own `execute`, which comes after the hook is made here, and never for a long run."""
        self.application_args = self._arguments(context)
        given: dict[str, Any] = dict(self.conf or {})  # type: ignore[has-type]
        if self._openlineage_inject_parent_job_info:
            given = spark_submit.inject_parent_job_information_into_spark_properties(given, context)
        if self._openlineage_inject_transport_info:
            given = spark_submit.inject_transport_information_into_spark_properties(given, context)
        self.conf = given
        self._hook = self._get_hook()

    def _link(self, context: Any) -> None:
        # Airflow stores links when a task has ended; who watches it at work wants this one now.
        for link in self.operator_extra_links:
            context["ti"].xcom_push(key=link.xcom_key, value=link.get_link(self, ti_key=context["ti"]))

    def _arguments(self, context: Any) -> list[str]:
        return arguments(self.pipeline, context["params"], context["run_id"])

    def _get_hook(self) -> SparkSubmitHook:
        named = Connection.get(self._conn_id)  # raises if it is missing, where the hook would take 'yarn'
        asked = self._deploy_mode or named.extra_dejson.get("deploy-mode")
        refuse_master(named.host or "yarn", asked)  # before the hook, which knows k8s:// only with another provider
        hook = super()._get_hook()
        master = with_retries(hook._connection["master"])
        refuse_master(master, hook._connection["deploy_mode"])
        hook._connection["master"] = master
        hook._conf = {**options(master), **hook._conf}
        return hook


@contextmanager
def refusals_are_final(log: logging.Logger) -> Iterator[None]:
    """What is refused inside fails the task for good: no retry helps, a person must change the request."""
    try:
        yield
    except Refused as error:
        raise failed_for_good(str(error), log) from None


def failed_for_good(reason: str, log: logging.Logger) -> AirflowFailException:
    """The exception to raise. The reason is a line of the log too: else it stands below a traceback only."""
    log.error(reason)
    return AirflowFailException(reason)


def arguments(pipeline: str, params: Mapping[str, Any], run_id: str) -> list[str]:
    """The driver's command line: what was asked for in the form. No secret is among it. Pure."""
    asked = [pipeline, f"--run-id={run_id}"]
    asked += [f"--{name.replace('_', '-')}" for name in ("close", "bounded", "dry_run") if params.get(name)]
    if params.get("mode") == "forever":
        asked += ["--forever", f"--every={params['every']}"]
    if params.get("max_files"):
        asked.append(f"--max-files={params['max_files']}")
    return asked


def outcome(error: AirflowException) -> AirflowException:
    """What the driver's exit code means for the task: an exception with retries, or one without. Pure.

    A code that is not ours (a crash, a kill) is retried: the commit protocol makes a repeat harmless. An
    error that tells no exit code is given back as it is.
    """
    codes = _EXIT_CODE.findall(str(error).partition("\nLast spark-submit output:")[0])
    if not codes:
        return error
    code = int(codes[-1])
    kind = EXIT_CODES.get(code)
    if kind is None:
        return AirflowException(f"The driver ended with exit code {code}: {WHO_ACTS[Retryable]}.")
    fatal = kind in (Superseded, Refused, InvariantBroken)
    raised = AirflowFailException if fatal else AirflowException
    return raised(f"{kind.__name__} (the driver's exit code {code}): {WHO_ACTS[kind]}.")


def end_tree(root: subprocess.Popen[Any]) -> None:
    """End a process and all that it started: ask first, so that Spark removes its temporary files."""
    tree = _descendants(root.pid)
    _each([root.terminate, *(process.terminate for process in tree)])
    # Not psutil's wait: it would take the root's exit code away, and a killed driver look like a success.
    with suppress(subprocess.TimeoutExpired):
        root.wait(_KILL_PATIENCE)
    _, tree = psutil.wait_procs(tree, timeout=0.5)
    _each([root.kill, *(process.kill for process in tree)])


def _each(signals: Iterable[Callable[[], None]]) -> None:
    for signal in signals:
        with suppress(psutil.NoSuchProcess):
            signal()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def driver_variables(hook: SparkSubmitHook) -> dict[str, str]:
    """What a driver finds in its environment beside the secrets. Pure."""
    master = hook._connection["master"]
    # A local session asks nobody for the name and address of this machine.
    loopback = {"SPARK_LOCAL_IP": "127.0.0.1"} if master.startswith("local") else {}
    return {
        **loopback,
        "ONLYONCE_MASTER": master,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Else the folder of stream.py stands first on the path, and `import logs` is ours to everybody.
        "PYTHONSAFEPATH": "1",
    }
