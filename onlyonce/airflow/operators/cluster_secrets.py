"""How a driver that runs in a cluster gets the database's URL: by a file of properties that only this account may read.

No command line, no rendered template and no log has it. Spark's pages and event logs show settings: the names that hold a secret are
redacted. In Kubernetes whoever may read the driver's pod sees its environment; `spark.kubernetes.driver.secretKeyRef` is the way
where that is too much, and then no connection is needed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

REDACTED = "(?i)secret|password|token|access[.]?key|database_url"


@contextmanager
def secret_properties(master: str, secrets: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[str]:
    """The path of a file with the secrets and, since it stands in the place of theirs, what spark-submit would have found."""
    prefix = "spark.yarn.appMasterEnv" if master.startswith("yarn") else "spark.kubernetes.driverEnv"
    found = {**theirs, **{f"{prefix}.{name}": value for name, value in secrets.items()}}
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
