"""Tells that Spark's JVM has ended under a driver, and why: what Python meets then is a connection that was refused.

With a local master the JVM of the driver does the work of the tasks. If one of them finds no memory the JVM ends, with
an exit code of its own. Only who has started the JVM can ask for that code; under spark-submit Python is the child, and
knows only that nobody answers.

Who calls it: `session.ending`. No errors of its own. Not promised: the reason, where the system has killed the JVM.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

from onlyonce.model.errors import OnlyonceError, Retryable
from onlyonce.session.failures import MORE_MEMORY, NO_MEMORY, NOTHING_HALF_DONE
from onlyonce.spark.options import WITHOUT_MEMORY

PATIENCE_SECONDS = 10.0
"""How long a JVM that answers no more may take to end, and one that is there to answer."""


def jvm(error: BaseException) -> Retryable | None:
    """An error of ours if this driver's JVM is gone; None where it is there, or where the error is one of ours."""
    if "pyspark" not in sys.modules or isinstance(error, OnlyonceError):
        return None
    from pyspark import SparkContext  # most commands do without

    gateway = SparkContext._gateway
    if gateway is None or not _refuses(gateway):
        return None
    process = getattr(gateway, "proc", None)
    return told(_exit_code(process) if process else None)


def told(code: int | None) -> Retryable:
    """The error of a JVM that ended with this exit code; None: nobody knows it. Pure."""
    if code in WITHOUT_MEMORY:
        return Retryable(NO_MEMORY, data=NOTHING_HALF_DONE, hint=MORE_MEMORY)
    how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"
    return Retryable(
        f"Spark's JVM ended under this driver{how}",
        data=NOTHING_HALF_DONE,
        hint="mostly it is memory: the system ends a process when it is short of it (it says so in its own log), "
        f"and Spark's JVM ends itself. {MORE_MEMORY}",
    )


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return process.wait(PATIENCE_SECONDS)
    return None


def _refuses(gateway: Any) -> bool:
    place = getattr(gateway, "java_parameters", None) or gateway.gateway_parameters
    try:
        socket.create_connection((place.address, place.port), PATIENCE_SECONDS).close()
    except OSError:
        return True
    return False
