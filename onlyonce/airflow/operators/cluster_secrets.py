"""Gives a driver in a cluster its secrets, by a file of properties that only this account may read.

No secret is on a command line, in a rendered template or in a log. Spark's pages and event logs show settings; variables are redacted
(`onlyonce.spark.redaction`). In Kubernetes whoever may read the driver's pod sees its environment. If that is too much, use
`spark.kubernetes.driver.secretKeyRef`; then no connection is needed.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow.sdk.log import mask_secret

from onlyonce import environment
from onlyonce.model.errors import Refused

SECRET = re.compile(r"(secret|password|token|access_key|database_url)$", re.IGNORECASE)


def refuse_secrets(env_vars: Iterable[str], named: Collection[str]) -> None:
    """Raise Refused if `env_vars` has a secret: a variable that the declaration names, or one whose name says that it is one."""
    if found := sorted(name for name in env_vars if name in named or SECRET.search(name)):
        raise Refused(
            f"env_vars has {', '.join(found)}, and Airflow shows env_vars in the rendered template",
            data="nothing was started",
            hint="set it in the environment of Airflow's workers, from where YARN's driver gets it by a file; in Kubernetes by a Secret in the "
            "pod template; the platform's database and store by the connections onlyonce_db and onlyonce_store",
        )


def named_secrets(master: str, named: Collection[str]) -> dict[str, str]:
    """Return the variables of this worker that the declaration names, for a driver in YARN. From now on they are masked in the task's log.

    Kubernetes would show them in the pod's description: there they come by a Secret.
    """
    if not master.startswith("yarn"):
        return {}
    with_poolers = [*named, *(f"{name}_POOLER" for name in named)]
    found = {name: value for name in with_poolers if (value := environment.variable(name))}
    for value in found.values():
        mask_secret(value)
    return found


@contextmanager
def secret_properties(
    master: str, of_driver: Mapping[str, str], of_executors: Mapping[str, str], theirs: Mapping[str, str]
) -> Iterator[str]:
    """Yield the path of a file with the secrets and, since it replaces their own file, what spark-submit would have found."""
    prefix = "spark.yarn.appMasterEnv" if master.startswith("yarn") else "spark.kubernetes.driverEnv"
    found = {
        **theirs,
        **{f"{prefix}.{name}": value for name, value in of_driver.items()},
        **{f"spark.executorEnv.{name}": value for name, value in of_executors.items()},
    }
    handle, path = tempfile.mkstemp(prefix="onlyonce-", suffix=".conf")  # of mode 600
    try:
        with os.fdopen(handle, "w") as file:
            file.writelines(f"{key} {_escaped(value)}\n" for key, value in found.items())
        yield path
    finally:
        Path(path).unlink(missing_ok=True)


def _escaped(value: str) -> str:
    """As Java's properties have it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
