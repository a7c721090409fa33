"""Starts the Spark session that the tests of a worker share.

A JVM that ends while it starts, as where the machine has no memory for it at that instant, would fail each test that asks for the session.
"""

from __future__ import annotations

import warnings
from typing import Any

import psutil

STARTS = 3


def session(name: str) -> Any:
    """A session with two cores. A JVM that ends before it answers is started again, and the summary of the tests tells it. Raises what the last start did."""
    from pyspark.errors import PySparkRuntimeError

    from onlyonce.session.session import start

    for number in range(1, STARTS + 1):
        try:
            return start(name, "local[2]")
        except PySparkRuntimeError as error:
            if number == STARTS or error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            free = psutil.virtual_memory().available >> 20
            warnings.warn(f"start {number} of Spark's JVM, {free} MB of memory free: {error}", RuntimeWarning, stacklevel=1)
    raise AssertionError("a start gives a session or an error")
