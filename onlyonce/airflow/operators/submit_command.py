"""The command line of spark-submit for a driver that outlives its task. Pure.

The provider's hook starts spark-submit and waits for its end. That is right for a driver that ends with its task, but
here the task ends first, and the hook has no public method that gives its command. This module makes the same command,
in client mode, from the same keywords (`tests/dags/test_submit_command.py` holds the two equal).

Who calls it: `onlyonce.airflow.operators.stream_job`. Errors: Refused for keywords that only a task which stays can
carry out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onlyonce.model.errors import Refused

FLAGS = {
    "properties_file": "--properties-file", "files": "--files", "py_files": "--py-files", "archives": "--archives",
    "driver_class_path": "--driver-class-path", "jars": "--jars", "packages": "--packages",
    "exclude_packages": "--exclude-packages", "repositories": "--repositories", "num_executors": "--num-executors",
    "total_executor_cores": "--total-executor-cores", "executor_cores": "--executor-cores",
    "executor_memory": "--executor-memory", "driver_memory": "--driver-memory", "keytab": "--keytab",
    "principal": "--principal", "proxy_user": "--proxy-user", "name": "--name", "java_class": "--class",
}  # fmt: skip
"""The words of `SparkSubmitHook` that become an option with a value, in the order in which it writes them."""
OF_A_TASK = ("post_submit_commands", "use_krb5ccache")
"""Words for what happens around the driver's life, which a task that has ended can't do."""


def submit_command(
    master: str, extra: Mapping[str, Any], given: Mapping[str, Any], application: str, arguments: list[str]
) -> list[str]:
    """What the provider's hook would run.

    extra   of the connection: the queue, namespace, principal and program that it names
    given   the words of the hook; `conf` is a mapping, all others are texts and numbers
    """
    refused = [word for word in OF_A_TASK if given.get(word)]
    refused += ["the keytab of the connection"] if extra.get("keytab") and not given.get("keytab") else []
    if refused:
        raise Refused(
            f"mode forever: {' and '.join(refused)} can't be given to a driver that outlives its task",
            data="nothing was started",
            hint="give the operator workers_outlive_tasks=False: then the task stays for as long as the driver runs",
        )
    conf = dict(given.get("conf") or {})
    namespace = conf.get("spark.kubernetes.namespace") or extra.get("namespace")
    values = {**given, "principal": given.get("principal") or extra.get("principal")}
    command = [given.get("spark_binary") or extra.get("spark-binary") or "spark-submit", "--master", master]
    command += [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
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
