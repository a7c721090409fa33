"""Run a pipeline's Spark job from a task, by the hook of Airflow's Spark provider.

The operator adds the settings that the JVM needs before it starts, and the secrets. It maps the driver's
exit code to an Airflow exception with or without retries, and stops the driver when the task ends.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psutil
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.sdk import BaseOperator, BaseOperatorLink, Connection
from airflow.sdk import conf as airflow_settings
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException
from airflow.sdk.log import mask_secret

from onlyonce import environment, settings
from onlyonce.airflow import log as airflow_log
from onlyonce.airflow.declared import Declared
from onlyonce.airflow.forms import EVERY_SECONDS
from onlyonce.airflow.jobs import Declarations, of_code, outcome, refusals_are_final
from onlyonce.airflow.log import database_url, database_variables, secret_variables, store_variables
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.pipeline import Output, Pipeline, target
from onlyonce.api.resolve import named_variables
from onlyonce.core import ownership, stored_names
from onlyonce.core.errors import CommitStateUnknown, Refused, Retryable
from onlyonce.engine import temporary
from onlyonce.engine.options import options, refuse_master, spark_defaults, with_retries
from onlyonce.settings import within

LOOK_SECONDS = 5.0
SILENT_SECONDS = 120.0
"""A driver without a session and without a noted end for so long is taken for dead; the next driver fences it."""
BEGIN_SECONDS = 1800.0
"""How long a submitted driver may wait for its place in the cluster."""


def follow(
    pipeline: str, context: Any, before: int, submission_error: AirflowException | None, log: logging.Logger
) -> None:
    """Wait until the driver of this try has ended, by the log.

    before             the attempt number of the previous driver; a higher one is the driver of this try
    submission_error   the exception of a submission that failed

    The commit log has how a driver in a cluster ended; the process that submitted it does not. Raise what the exit code
    means. If the log knows no such driver, raise the submission's exception; if the driver is silent, AirflowException.
    """
    give_up_at = time.monotonic() + BEGIN_SECONDS
    was_in_log = False
    while time.monotonic() < give_up_at:
        try:
            known = airflow_log.read_driver_runs(pipeline, context)
            in_log = known is not None and known.attempt > before
            if not in_log and submission_error:
                raise submission_error
            if in_log and known.exit_code == 0:
                return
            if in_log and known.exit_code is not None:
                log.error("the driver ended: %s", known.why)
                raise of_code(known.exit_code)
            if in_log and (not was_in_log or airflow_log.at_work(pipeline)):
                was_in_log, give_up_at = True, time.monotonic() + SILENT_SECONDS
        except (Retryable, CommitStateUnknown) as error:
            log.warning("the commit log did not answer: %s", error.what)
        time.sleep(LOOK_SECONDS)
    raise submission_error or AirflowException(
        "The driver in the cluster is silent: it has no database session, and the log does not know that it has ended."
    )


# Secrets for a driver in a cluster, by a file of properties that only this account may read.
#
# No secret is on a command line, in a rendered template or in a log. Spark's pages and event logs show settings;
# variables are redacted (`onlyonce.engine.options`). In Kubernetes any user with permission to read the driver's pod
# sees its environment. If that is too much, use `spark.kubernetes.driver.secretKeyRef`; then no connection is needed.


SECRET = re.compile(r"(secret|passw(or)?d|token|key|credentials?|database_url)(_pooler)?$", re.IGNORECASE)
"""Ends the name of a variable or setting that holds a secret."""
IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")
"""A user with a password in a URL."""
VARIABLE = re.compile(r"spark\.(?:yarn\.appMasterEnv|kubernetes\.driverEnv|executorEnv)\.")
"""Begins a setting of Spark that sets a variable of a driver or of executors."""
NO_SECRET = re.compile(r"spark\.kubernetes\..*\.(secretKeyRef|secrets|label|annotation|selector)\.")
"""Names a Secret of Kubernetes, or a setting that may be public."""
ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})
"""Characters that a file of Java's properties has with a backslash."""


def refuse_secrets(given: Mapping[str, Mapping[str, Any]], named: Collection[str]) -> None:
    """Raise Refused if keywords of the operator hold a secret.

    A secret is a variable that the declaration names, a value whose name is a secret's, or a URL with a password.
    """
    if found := sorted(
        f"{word} has {name}"
        for word, values in given.items()
        for name, value in values.items()
        if _is_secret(name, value, named)
    ):
        raise Refused(
            f"{', '.join(found)}, and Airflow shows that in the rendered template",
            data="nothing was started",
            hint="set it in the environment of Airflow's workers, from where YARN's driver gets it by a file; in "
            "Kubernetes by a Secret in the pod template; the platform's database and store by the connections "
            "onlyonce_db and onlyonce_store; a setting of Spark in its spark-defaults.conf",
        )


def _is_secret(name: str, value: object, named: Collection[str]) -> bool:
    variable = VARIABLE.sub("", name)
    by_name = variable.removesuffix("_POOLER") in named or (SECRET.search(variable) and not NO_SECRET.match(name))
    return bool(by_name or IN_URL.search(str(value)))


def named_secrets(named: Collection[str]) -> dict[str, str]:
    """Return the variables of this worker that the declaration names.

    From now on they are masked in the task's log, wherever the driver is.
    """
    with_poolers = [*named, *(f"{name}_POOLER" for name in named)]
    found = {name: value for name in with_poolers if (value := environment.variable(name))}
    for value in found.values():
        mask_secret(value)
    return found


@contextmanager
def secret_properties(
    master: str,
    named: Mapping[str, str],
    of_driver: Mapping[str, str],
    of_executors: Mapping[str, str],
    theirs: Mapping[str, str],
) -> Iterator[str]:
    """Yield the path of a file with the secrets and with the settings that spark-submit would have found.

    The file replaces spark-submit's own one.

    named         the variables that the declaration names; Kubernetes would show them in the pod's description, so
                  there they come by a Secret
    of_driver     other variables of the driver
    of_executors  variables of executors
    theirs        the settings that spark-submit would have found
    """
    in_yarn = master.startswith("yarn")
    prefix = "spark.yarn.appMasterEnv" if in_yarn else "spark.kubernetes.driverEnv"
    found = {
        **theirs,
        **{f"{prefix}.{name}": value for name, value in {**(named if in_yarn else {}), **of_driver}.items()},
        **{f"spark.executorEnv.{name}": value for name, value in of_executors.items()},
    }
    handle, path = tempfile.mkstemp(prefix="onlyonce-", suffix=".conf")  # only this account may read it
    try:
        with os.fdopen(handle, "w") as file:
            file.writelines(f"{key} {_escaped(value)}\n" for key, value in found.items())
        yield path
    finally:
        Path(path).unlink(missing_ok=True)


def _escaped(value: str) -> str:
    """Escape a value as in Java's properties: after a bare carriage return spark-submit would log another setting."""
    return value.translate(ESCAPED)


# The link from a task to the tab *Commits* of its DAG run.


TAB = stored_names.COMMITS_ROUTE
"""The route of the tab. `onlyonce.airflow.page.plugin` registers the page under it."""


class CommitsLink(BaseOperatorLink):
    """Shown on each task of this module's operators."""

    name = "Commits of this run"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the path of the tab.

        Airflow calls it at the end of a task, the operator itself when the work begins.
        """
        return commits_path(ti_key.dag_id, ti_key.run_id, airflow_settings.get("api", "base_url", fallback=""))


def commits_path(dag_id: str, run_id: str, base_url: str) -> str:
    """Return the tab's path, on any host by which a person has reached Airflow. Pure."""
    root = urlsplit(base_url).path.rstrip("/")
    return f"{root}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}/plugin/{TAB}"


# The hook of Airflow's Spark provider, used by its public methods only.


class DriverHook(SparkSubmitHook):
    """Submits a driver of ours with the connection's master; in local mode Spark tries a failed task again."""

    @classmethod
    def get_connection(cls, conn_id: str) -> Any:
        """Return the connection; a local master with retries."""
        connection = copy.copy(super().get_connection(conn_id))
        connection.host = with_retries(connection.host) if connection.host else connection.host
        return connection

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(line for line in itr if not IVY.match(str(line).strip()))


IVY = re.compile(
    r"Ivy Default Cache set to|The jars for the packages stored in|:: (?:loading settings|resolving dependencies|"
    r"resolution report|retrieving) ::|:: (?:modules in use|evicted modules):|"
    r"\S+#\S+ by \[|\S+#\S+ added as a dependency|confs: \[|found \S+#\S+ in |"
    r"\S+#\S+ from \S+ in \[|\|.*\|$|-{30,}$|\d+ artifacts copied"
)
"""Ivy's lines about jars that it has found: a hundred of them come before the first line of a driver."""


def master_of(connection: Connection) -> str:
    """Return Spark's master as the provider reads it from a connection. Pure."""
    host, port = connection.host or "", connection.port
    whole = connection.conn_type == "spark" and host and ("://" in host or not port)
    master = host if whole else f"{connection.conn_type}://{host}"
    return f"{master}:{port}" if port else master


# The processes of a driver on the task's machine.


# Airflow sends SIGTERM and five seconds later SIGKILL.
_KILL_PATIENCE = 3.0


def end_drivers(application: str) -> None:
    """End what this process has started for an application: spark-submit, the JVM, its Python, and their workers."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if application in child.cmdline():
                end_tree(child.pid)


def end_tree(pid: int) -> None:
    """End a process and all that it started: ask first, so that Spark removes its temporary files."""
    try:
        root = psutil.Process(pid)
        tree = root.children(recursive=True)
    except psutil.NoSuchProcess:
        return
    _each([root.terminate, *(process.terminate for process in tree)])
    # Not psutil's wait: it would collect the exit code, and the hook that waits would take a killed driver for a
    # success.
    end = time.monotonic() + _KILL_PATIENCE
    while _runs(root) and time.monotonic() < end:
        time.sleep(0.05)
    _, tree = psutil.wait_procs(tree, timeout=0.5)
    _each([root.kill, *(process.kill for process in tree)])


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _each(signals: Iterable[Callable[[], None]]) -> None:
    for signal in signals:
        with suppress(psutil.NoSuchProcess):
            signal()


# The operator. All options of the provider's own operator are passed on to its hook: `conn_id`, `deploy_mode`, `conf`,
# `packages`, `py_files`, `env_vars`, and any other keyword of `SparkSubmitHook`.


PACKAGE = settings.ROOT / "onlyonce"
OURS = frozenset(
    {"self", "application_args", "name", "conf", "conn_id", "deploy_mode", "packages", "py_files", "env_vars"}
)
"""Keywords of the provider's hook that this operator sets itself."""


class SparkJobOperator(BaseOperator):
    """Runs an application of the package for one pipeline; the task's log ends with what the commit log holds of it.

    By default the application is `run/stream.py`, with arguments from the run's Params (`arguments`). The task fails
    with a retry, or for good (`outcome`). In client mode the driver runs on the task's machine and ends with the task.
    If the worker is killed with SIGKILL, the driver continues until a newer run supersedes it. In cluster mode the
    commit log decides how it ended.
    """

    template_fields = ("conf", "packages", "py_files", "env_vars", "submit")
    operator_extra_links = (CommitsLink(),)

    def __init__(
        self, *, pipeline: str, declarations: Declarations = None, application: str = "run/stream.py",
        conn_id: str = "spark_default", deploy_mode: str | None = None, conf: Mapping[str, Any] | None = None,
        packages: str | None = None, py_files: str | None = None, env_vars: Mapping[str, str] | None = None,
        openlineage_inject_parent_job_info: bool | None = None, openlineage_inject_transport_info: bool | None = None,
        **options_of_task: Any,
    ) -> None:  # fmt: skip
        keywords = frozenset(inspect.signature(SparkSubmitHook.__init__).parameters) - OURS
        submit = {keyword: options_of_task.pop(keyword) for keyword in keywords & options_of_task.keys()}
        super().__init__(outlets=[airflow_log.alias(pipeline)], **options_of_task)
        self.pipeline = pipeline
        self.declarations = Declared.of(declarations)
        self.application = str(PACKAGE / application)
        self.conn_id = conn_id
        self.deploy_mode = deploy_mode
        self.conf = dict(conf or {})
        self.packages = packages
        self.py_files = py_files
        self.env_vars = dict(env_vars or {})
        self.submit = submit
        self.openlineage = (
            _lineage_setting("spark_inject_parent_job_info", openlineage_inject_parent_job_info),
            _lineage_setting("spark_inject_transport_info", openlineage_inject_transport_info),
        )

    def execute(self, context: Any) -> None:
        """Run the driver to its end. Raise AirflowException, or AirflowFailException if no retry helps."""
        self._drive(context)
        try:
            airflow_log.report_assets(self.pipeline, context, self.declarations.variables())
        except BaseException as error:
            # After a good end the driver of the next try would begin the work again, as in a run that was cleared.
            airflow_log.note_failure(self.pipeline, context, error)
            raise

    def on_kill(self) -> None:
        """End the driver when its task is killed: the JVM, its Python, and their workers.

        A driver in a cluster is superseded by the next one.
        """
        end_drivers(self.application)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the tables that were read and written, for OpenLineage's provider if it is installed and on."""
        return events_of_task(self.declarations.one(self.pipeline))

    def place(self) -> tuple[str, str]:
        """Return Spark's master and the deploy mode, by the connection and the operator's keywords.

        Raise Refused if the connection is missing, or can't be used in this way.
        """
        refuse_secrets(
            {"env_vars": self.env_vars, "conf": self.conf, "the operator": self.submit},
            self._named() if self.env_vars or self.conf else (),
        )
        try:
            connection = Connection.get(self.conn_id)
        except AirflowNotFoundException as error:  # the hook would take 'yarn'
            raise Refused(
                f"Airflow has no connection {self.conn_id}, which names Spark's master",
                data="nothing was started",
                hint=f"airflow connections add {self.conn_id} --conn-type spark --conn-host 'local[2]', or your "
                "cluster's master; then clear the task",
            ) from error
        master = master_of(connection)
        mode = self.deploy_mode or connection.extra_dejson.get("deploy-mode") or "client"
        refuse_master(master, mode)  # before the hook, which knows k8s:// only with another provider
        return with_retries(master), mode

    def _drive(self, context: Any) -> None:
        with refusals_are_final(self.log):
            master, mode = self.place()
        self._push_links(context)
        if mode == "cluster":
            self._run_in_cluster(context, master)
        else:
            self._run_here(context, master)

    def _run_here(self, context: Any, master: str) -> None:
        """Run the driver on this machine: the hook waits for its end."""
        hook = self._hook(context, master)
        try:
            with refusals_are_final(self.log), within(self._variables(master)):
                hook.submit(self.application)
        except AirflowException as error:
            # Not `from error`: it repeats the command and the driver's last lines, which the log has.
            raise outcome(error) from None

    def _run_in_cluster(self, context: Any, master: str) -> None:
        """Submit the driver to the cluster, and wait for its end by the log."""
        env_vars = {"ONLYONCE_MASTER": master, **self.declarations.variables(), **self.env_vars}
        before, submission_error = airflow_log.attempt(self.pipeline, context), None
        with refusals_are_final(self.log):
            database, store = database_variables(), store_variables()
            named = named_secrets(self._named())
        with secret_properties(master, named, {**database, **store}, store, self._found_by_submit()) as path:
            hook = self._hook(context, master, mode="cluster", env_vars=env_vars, properties_file=path)
            # Kubernetes' driver has the package in its image; YARN's driver gets the application from here.
            application = f"local://{self.application}" if master.startswith("k8s://") else self.application
            try:
                hook.submit(application)
            except AirflowException as error:
                submission_error = outcome(error)
        follow(self.pipeline, context, before, submission_error, self.log)

    def _hook(self, context: Any, master: str, mode: str = "client", **instead: Any) -> DriverHook:
        keywords = self._hook_keywords(context, master, mode) | instead
        return DriverHook(conn_id=self.conn_id, application_args=self._arguments(context), **keywords)

    def _hook_keywords(self, context: Any, master: str, mode: str = "client") -> dict[str, Any]:
        """Return the keywords of the provider's hook. Raise AirflowFailException for settings that can't work."""
        conf = self._conf(context)
        # The driver's own variables count: its data's location decides the jars with which its JVM starts.
        of_driver = {name: str(value) for name, value in self.env_vars.items() if name.startswith("ONLYONCE_")}
        with refusals_are_final(self.log), within(of_driver):
            theirs = {**self._found_by_submit(), **conf, "spark.submit.deployMode": mode}
            added = temporary.added(master, options(master, theirs), theirs)
        return {
            "env_vars": self.env_vars, "deploy_mode": self.deploy_mode, "conf": conf | added, "packages": self.packages,
            "py_files": self.py_files, "name": f"onlyonce {self.pipeline}", **self.submit,
        }  # fmt: skip

    def _found_by_submit(self) -> dict[str, str]:
        """Return the settings that spark-submit finds by itself, and those that other keywords of the operator set.

        Our settings are added to them.
        """
        settings_of = {
            "jars": "spark.jars",
            "driver_class_path": "spark.driver.extraClassPath",
            "driver_memory": "spark.driver.memory",
            "executor_memory": "spark.executor.memory",
            "executor_cores": "spark.executor.cores",
            "num_executors": "spark.executor.instances",
            "total_executor_cores": "spark.cores.max",
        }
        from_keywords = {key: str(self.submit[word]) for word, key in settings_of.items() if self.submit.get(word)}
        packages = {"spark.jars.packages": self.packages} if self.packages else {}
        return {**spark_defaults(self.submit.get("properties_file")), **packages, **from_keywords}

    def _conf(self, context: Any) -> dict[str, Any]:
        given: dict[str, Any] = dict(self.conf)
        parent, transport = self.openlineage
        if parent:
            given = inject_parent_job_information_into_spark_properties(given, context)
        if transport:
            given = inject_transport_information_into_spark_properties(given, context)
        return given

    def _variables(self, master: str) -> dict[str, str]:
        """Return what a driver on this machine finds in its environment, which is the task's own: the secrets too."""
        # A local session then looks up no name or address of this machine.
        loopback = {"SPARK_LOCAL_IP": "127.0.0.1"} if master.startswith("local") else {}
        return {
            **loopback,
            **named_secrets(self._named()),
            **secret_variables(),
            **self.declarations.variables(),
            **self.declarations.import_path(),
            "ONLYONCE_MASTER": master,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # Otherwise the folder of stream.py is first on the path, and any `import logs` would import ours.
            "PYTHONSAFEPATH": "1",
        }

    def _push_links(self, context: Any) -> None:
        # Airflow stores links when a task has ended; a person who watches it now needs this one now.
        for link in self.operator_extra_links:
            context["ti"].xcom_push(key=link.xcom_key, value=link.get_link(self, ti_key=context["ti"]))

    def _named(self) -> frozenset[str]:
        """Return the variables that the pipeline's declaration names."""
        return named_variables(self.declarations.one(self.pipeline))

    def _arguments(self, context: Any) -> list[str]:
        return arguments(self.pipeline, context["params"], context["run_id"], context["ti"].dag_id)


def arguments(pipeline: str, params: Mapping[str, Any], run_id: str, dag_id: str) -> list[str]:
    """Return the driver's command line: what the form asked for, without a secret. Pure."""
    asked = [pipeline, f"--run-id={run_id}", f"--dag-id={dag_id}"]
    asked += [f"--{name.replace('_', '-')}" for name in ("close", "bounded", "dry_run") if params.get(name)]
    if params.get("mode") == "continuous":
        every = params.get("every")
        asked += ["--continuous", f"--every={EVERY_SECONDS if every is None else every}"]
    if params.get("max_files"):
        asked.append(f"--max-files={params['max_files']}")
    return asked


def _lineage_setting(name: str, given: bool | None) -> bool:
    return bool(airflow_settings.getboolean("openlineage", name, fallback=False)) if given is None else given


# What a pipeline reads and writes, for OpenLineage. Its provider asks the operators if it is installed; otherwise this
# is not used.


Place = tuple[str, str]
"""Namespace and name of a data set, as OpenLineage's naming has them."""


def events_of_task(pipeline: Pipeline) -> Any:
    """Return OpenLineage's answer for a run.

    Raise ImportError if its provider is not installed: then this is not called.
    """
    given = importlib.import_module("airflow.providers.openlineage.extractors").OperatorLineage
    dataset = importlib.import_module("airflow.providers.common.compat.openlineage.facet").Dataset
    inputs, outputs = places(pipeline)
    return given(
        inputs=[dataset(namespace=namespace, name=name) for namespace, name in inputs],
        outputs=[dataset(namespace=namespace, name=name) for namespace, name in outputs],
    )


def places(pipeline: Pipeline) -> tuple[list[Place], list[Place]]:
    """Return the places that a pipeline reads, and the places that its outputs write.

    Read only the settings and the environment variables that the sinks name.
    """
    views = [pipeline.of_source(name) for name in pipeline.sources] or [pipeline]
    return list(filter(None, map(_source, views))), [_sink(pipeline, output) for output in pipeline.outputs]


def _source(pipeline: Pipeline) -> Place | None:
    source = pipeline.source
    return source.dataset(settings.table_location(source.path) if source.path else api_pipeline.folder(pipeline))


def _sink(pipeline: Pipeline, output: Output) -> Place:
    place = ownership.Place(target(pipeline, output))
    return output.sink.dataset(place, _url(place.variable) if place.is_named else None)


def _url(variable: str | None) -> str | None:
    """Return the URL of the platform's database, or of the database that a variable names; None if it is not known."""
    with suppress(Refused):
        return environment.variable(variable) if variable else database_url()
    return None
