"""Follows a driver in a cluster. The commit log tells how it ended, not the process that has submitted it."""

from __future__ import annotations

import logging
import time
from typing import Any

from airflow.sdk.exceptions import AirflowException

from onlyonce.airflow.log import driver_runs, long_run_log
from onlyonce.airflow.operators.outcome import of_code
from onlyonce.model.errors import CommitStateUnknown, Retryable

LOOK_SECONDS = 5.0
SILENT_SECONDS = 120.0
"""A driver without a session for so long, and without a word of its end, is taken for dead; the next one fences it."""
BEGIN_SECONDS = 1800.0
"""How long a driver that was submitted may wait for its place in the cluster."""


def follow(pipeline: str, context: Any, before: int, told: AirflowException | None, log: logging.Logger) -> None:
    """Until the driver after `before` has ended, by the log. `told` is how its submission failed, if it did.

    Raises what its exit code means; `told` where the log knows of no such driver; and an AirflowException where it is
    silent.
    """
    end = time.monotonic() + BEGIN_SECONDS
    begun = False
    while time.monotonic() < end:
        try:
            known = driver_runs.look(pipeline, context)
            begins = known is not None and known.attempt > before
            if not begins and told:
                raise told
            if begins and known.exit_code == 0:
                return
            if begins and known.exit_code is not None:
                log.error("the driver ended: %s", known.why)
                raise of_code(known.exit_code)
            if begins and (not begun or long_run_log.at_work(pipeline)):
                begun, end = True, time.monotonic() + SILENT_SECONDS
        except (Retryable, CommitStateUnknown) as error:
            log.warning("the commit log did not answer: %s", error.what)
        time.sleep(LOOK_SECONDS)
    raise told or AirflowException(
        "The driver in the cluster is silent: it has no database session, and the log does not know that it has ended."
    )
