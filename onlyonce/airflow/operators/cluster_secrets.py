"""Gives a driver in a cluster its secrets, by a file of properties that only this account may read.

No secret is on a command line, in a rendered template or in a log. Spark's pages and event logs show settings;
variables are redacted (`onlyonce.spark.redaction`). In Kubernetes whoever may read the driver's pod sees its
environment. If that is too much, use `spark.kubernetes.driver.secretKeyRef`; then no connection is needed.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.sdk.log import mask_secret

from onlyonce import environment
from onlyonce.model.errors import Refused

SECRET = re.compile(r"(secret|passw(or)?d|token|key|credentials?|database_url)(_pooler)?$", re.IGNORECASE)
IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")
VARIABLE = re.compile(r"spark\.(?:yarn\.appMasterEnv|kubernetes\.driverEnv|executorEnv)\.")
NO_SECRET = re.compile(r"spark\.kubernetes\..*\.(secretKeyRef|secrets|label|annotation|selector)\.")
"""Names a Secret of Kubernetes, or something that everybody may see."""
ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})


def refuse_secrets(given: Mapping[str, Mapping[str, Any]], named: Collection[str]) -> None:
    """Raise Refused if words of the operator hold a secret: a variable that the declaration names, what is called by a
    secret's name, or a URL with a password."""
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
            "Kubernetes by a Secret in the "
            "pod template; the platform's database and store by the connections onlyonce_db and onlyonce_store; a "
            "setting of Spark in its spark-defaults.conf",
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
    """Yield the path of a file with the secrets and, since it replaces their own file, what spark-submit would have
    found.

    named   what the declaration names. Kubernetes would show it in the pod's description: there it comes by a Secret
    """
    in_yarn = master.startswith("yarn")
    prefix = "spark.yarn.appMasterEnv" if in_yarn else "spark.kubernetes.driverEnv"
    found = {
        **theirs,
        **{f"{prefix}.{name}": value for name, value in {**(named if in_yarn else {}), **of_driver}.items()},
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
    """As Java's properties have it: what comes after a bare carriage return would be another setting, which
    spark-submit logs."""
    return value.translate(ESCAPED)
