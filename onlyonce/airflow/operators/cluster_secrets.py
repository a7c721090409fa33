"""Gives the database's URL to a driver in a cluster, by a file of properties that only this account may read.

The URL is on no command line, in no rendered template and in no log. Spark's pages and event logs show settings; names that hold a secret
are redacted. In Kubernetes whoever may read the driver's pod sees its environment. If that is too much, use
`spark.kubernetes.driver.secretKeyRef`; then no connection is needed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

REDACTED = "(?i)secret|password|token|access[._]?key|database_url"


@contextmanager
def secret_properties(
    master: str, of_driver: Mapping[str, str], of_executors: Mapping[str, str], theirs: Mapping[str, str]
) -> Iterator[str]:
    """The path of a file with the secrets and, since it stands in the place of theirs, what spark-submit would have found."""
    prefix = "spark.yarn.appMasterEnv" if master.startswith("yarn") else "spark.kubernetes.driverEnv"
    found = {
        **theirs,
        **{f"{prefix}.{name}": value for name, value in of_driver.items()},
        **{f"spark.executorEnv.{name}": value for name, value in of_executors.items()},
    }
    found.setdefault("spark.redaction.regex", REDACTED)
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
