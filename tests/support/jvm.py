"""Starts the Spark session that the tests of a worker share.

A JVM that ends while it starts, as where the machine has no memory for it at that instant, would fail each test that asks for the session.
"""

from __future__ import annotations

import warnings
from typing import Any

import psutil
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

STARTS = 3


def session(name: str) -> Any:
    """A session with two cores. A JVM that ends before it answers is started again, and the summary of the tests tells it. Raises what the last start did."""
    from onlyonce.session.session import start

    starts = Retrying(retry=retry_if_exception(_has_ended), stop=stop_after_attempt(STARTS), before_sleep=_tell, reraise=True)
    return starts(start, name, "local[2]")


def _has_ended(error: BaseException) -> bool:
    return "JAVA_GATEWAY_EXITED" in str(error)


def _tell(state: RetryCallState) -> None:
    assert state.outcome
    free = psutil.virtual_memory().available >> 20
    warnings.warn(f"start {state.attempt_number} of Spark's JVM, {free} MB of memory free: {state.outcome.exception()}", RuntimeWarning, stacklevel=1)
