"""The operator that runs a pipeline's Spark job, by the hook of Airflow's Spark provider.

All options of the provider's own operator are passed on to that hook: `conn_id`, `deploy_mode`, `conf`, `packages`,
`py_files`, `env_vars`, and any other keyword of `SparkSubmitHook`. This operator adds the settings that the JVM needs
before it starts, and the secrets. It gives the driver's exit code its meaning, and ends the driver with its task.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.sdk import BaseOperator, Connection
from airflow.sdk import conf as airflow_settings
from airflow.sdk.exceptions import AirflowException

from onlyonce import settings
from onlyonce.airflow.declared import Declared
from onlyonce.airflow.log import assets, driver_runs, lineage
from onlyonce.airflow.log.task_environment import database_variables, secret_variables, store_variables
from onlyonce.airflow.operators.cluster_driver import follow
from onlyonce.airflow.operators.cluster_secrets import named_secrets, refuse_secrets, secret_properties
from onlyonce.airflow.operators.commits_link import CommitsLink
from onlyonce.airflow.operators.driver_hook import DriverHook, master_of
from onlyonce.airflow.operators.jobs import Declarations
from onlyonce.airflow.operators.outcome import outcome, refusals_are_final
from onlyonce.airflow.operators.processes import end_drivers
from onlyonce.declare.named_variables import named_variables
from onlyonce.settings import within
from onlyonce.spark import temporary
from onlyonce.spark.defaults import spark_defaults
from onlyonce.spark.master import refuse_master
from onlyonce.spark.options import options, with_retries

PACKAGE = settings.ROOT / "onlyonce"
OURS = frozenset(
    {"self", "application_args", "name", "conf", "conn_id", "deploy_mode", "packages", "py_files", "env_vars"}
)
"""Words of the provider's hook that this operator gives itself."""


class SparkJobOperator(BaseOperator):
    """Runs an application of the package for one pipeline; the task's log ends with what the commit log holds of it.

    By default that is `run/stream.py`, with arguments from the run's Params (`arguments`). Fails with a retry, or for
    good (`outcome`). In client mode the driver runs beside the task and ends with it; not promised: that it dies when
    the worker is killed with SIGKILL, it then goes on until a newer run supersedes it. In cluster mode its end is what
    the commit log says.
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
        words = frozenset(inspect.signature(SparkSubmitHook.__init__).parameters) - OURS
        submit = {word: options_of_task.pop(word) for word in words & options_of_task.keys()}
        super().__init__(outlets=[assets.alias(pipeline)], **options_of_task)
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
        """Run the driver to its end. Raises AirflowException, or AirflowFailException where no retry helps."""
        self._drive(context)
        assets.tell(self.pipeline, context, self.declarations.variables())

    def on_kill(self) -> None:
        """The driver ends with its task: the JVM, its Python, and their workers.

        One in a cluster is superseded by the next.
        """
        end_drivers(self.application)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """The tables that were read and written, for OpenLineage's provider, which asks where it is installed and
        on."""
        return lineage.of(self.declarations.one(self.pipeline))

    def place(self) -> tuple[str, str]:
        """Return Spark's master and the deploy mode, by the connection and the operator's words.

        Raises Refused, AirflowNotFoundException.
        """
        refuse_secrets(
            {"env_vars": self.env_vars, "conf": self.conf, "the operator": self.submit},
            self._named() if self.env_vars or self.conf else (),
        )
        connection = Connection.get(self.conn_id)  # raises if it is missing, where the hook would take 'yarn'
        master = master_of(connection)
        mode = self.deploy_mode or connection.extra_dejson.get("deploy-mode") or "client"
        refuse_master(master, mode)  # before the hook, which knows k8s:// only with another provider
        return with_retries(master), mode

    def _drive(self, context: Any) -> None:
        with refusals_are_final(self.log):
            master, mode = self.place()
        self._link(context)
        (self._in_cluster if mode == "cluster" else self._beside)(context, master)

    def _beside(self, context: Any, master: str) -> None:
        hook = self._hook(context, master)
        try:
            with refusals_are_final(self.log), within(self._variables(master)):
                hook.submit(self.application)
        except AirflowException as error:
            # Not `from error`: it repeats the command and the driver's last lines, which the log has.
            raise outcome(error) from None

    def _in_cluster(self, context: Any, master: str) -> None:
        env_vars = {"ONLYONCE_MASTER": master, **self.declarations.variables(), **self.env_vars}
        before, told = driver_runs.attempt(self.pipeline, context), None
        with refusals_are_final(self.log):
            database, store = database_variables(), store_variables()
            named = named_secrets(self._named())
        with secret_properties(master, named, {**database, **store}, store, self._theirs()) as path:
            hook = self._hook(context, master, mode="cluster", env_vars=env_vars, properties_file=path)
            # Kubernetes' driver has the package in its image; YARN's gets the application from here.
            application = f"local://{self.application}" if master.startswith("k8s://") else self.application
            try:
                hook.submit(application)
            except AirflowException as error:
                told = outcome(error)
        follow(self.pipeline, context, before, told, self.log)

    def _hook(self, context: Any, master: str, mode: str = "client", **instead: Any) -> DriverHook:
        words = self._words(context, master, mode) | instead
        return DriverHook(conn_id=self.conn_id, application_args=self._arguments(context), **words)

    def _words(self, context: Any, master: str, mode: str = "client") -> dict[str, Any]:
        """What the provider's hook is given. Raises AirflowFailException for settings that can't work."""
        conf = self._conf(context)
        # What the driver is told counts: where its data is decides which jars its JVM starts with.
        told = {name: str(value) for name, value in self.env_vars.items() if name.startswith("ONLYONCE_")}
        with refusals_are_final(self.log), within(told):
            theirs = {**self._theirs(), **conf, "spark.submit.deployMode": mode}
            added = temporary.added(master, options(master, theirs), theirs)
        return {
            "env_vars": self.env_vars, "deploy_mode": self.deploy_mode, "conf": conf | added, "packages": self.packages,
            "py_files": self.py_files, "name": f"onlyonce {self.pipeline}", **self.submit,
        }  # fmt: skip

    def _theirs(self) -> dict[str, str]:
        """What spark-submit finds by itself, and what other words of the operator say: ours is added to it."""
        words = {
            "jars": "spark.jars",
            "driver_class_path": "spark.driver.extraClassPath",
            "driver_memory": "spark.driver.memory",
            "executor_memory": "spark.executor.memory",
            "executor_cores": "spark.executor.cores",
            "num_executors": "spark.executor.instances",
            "total_executor_cores": "spark.cores.max",
        }
        said = {key: str(self.submit[word]) for word, key in words.items() if self.submit.get(word)}
        packages = {"spark.jars.packages": self.packages} if self.packages else {}
        return {**spark_defaults(self.submit.get("properties_file")), **packages, **said}

    def _conf(self, context: Any) -> dict[str, Any]:
        given: dict[str, Any] = dict(self.conf)
        parent, transport = self.openlineage
        if parent:
            given = inject_parent_job_information_into_spark_properties(given, context)
        if transport:
            given = inject_transport_information_into_spark_properties(given, context)
        return given

    def _variables(self, master: str) -> dict[str, str]:
        """What a driver on this machine finds in its environment, which is the task's own: the secrets too."""
        # A local session asks nobody for the name and address of this machine.
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
            # Else the folder of stream.py stands first on the path, and `import logs` is ours to everybody.
            "PYTHONSAFEPATH": "1",
        }

    def _link(self, context: Any) -> None:
        # Airflow stores links when a task has ended; who watches it at work wants this one now.
        for link in self.operator_extra_links:
            context["ti"].xcom_push(key=link.xcom_key, value=link.get_link(self, ti_key=context["ti"]))

    def _named(self) -> frozenset[str]:
        """Return the variables that the pipeline's declaration names."""
        return named_variables(self.declarations.one(self.pipeline))

    def _arguments(self, context: Any) -> list[str]:
        return arguments(self.pipeline, context["params"], context["run_id"], context["ti"].dag_id)


def arguments(pipeline: str, params: Mapping[str, Any], run_id: str, dag_id: str) -> list[str]:
    """The driver's command line: what was asked for in the form. No secret is among it. Pure."""
    asked = [pipeline, f"--run-id={run_id}", f"--dag-id={dag_id}"]
    asked += [f"--{name.replace('_', '-')}" for name in ("close", "bounded", "dry_run") if params.get(name)]
    if params.get("mode") == "forever":
        asked += ["--forever", f"--every={params['every']}"]
    if params.get("max_files"):
        asked.append(f"--max-files={params['max_files']}")
    return asked


def _lineage_setting(name: str, given: bool | None) -> bool:
    return bool(airflow_settings.getboolean("openlineage", name, fallback=False)) if given is None else given
