"""What a driver's exit code means for its task: success, another try, or failure for good."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from onlyonce.model.errors import EXIT_CODES, InvariantBroken, OnlyonceError, Refused, Retryable, Superseded
from onlyonce.spark.options import WITHOUT_MEMORY

_EXIT_CODE = re.compile(r"Error code is: (-?\d+)\.")

WHO_ACTS: dict[type[OnlyonceError], str] = {
    Retryable: "nothing is half done, and the same command may run again",
    Superseded: "a newer run of this pipeline is at work and goes on with the same batches; there is nothing to do",
    Refused: "the request is wrong and would be so again; do what the driver says after 'next:', then clear this task",
    InvariantBroken: "a person must look at what the driver names; until then nothing runs by itself",
}

NO_MEMORY = "Spark's JVM found no memory, so give it more (ONLYONCE_DRIVER_MEMORY; 2g by default with a local master); "


@contextmanager
def refusals_are_final(log: logging.Logger) -> Iterator[None]:
    """What is refused inside fails the task for good: no retry helps, a person must change the request."""
    try:
        yield
    except Refused as error:
        raise failed_for_good(str(error), log) from None


def failed_for_good(reason: str, log: logging.Logger) -> AirflowFailException:
    """The exception to raise. The reason is a line of the log too: else it stands below a traceback only."""
    log.error(reason)
    return AirflowFailException(reason)


def outcome(error: AirflowException) -> AirflowException:
    """What the driver's exit code means for the task: an exception with retries, or one without. Pure.

    An error that tells no exit code is given back as it is.
    """
    codes = _EXIT_CODE.findall(str(error).partition("\nLast spark-submit output:")[0])
    return of_code(int(codes[-1])) if codes else error


def of_code(code: int) -> AirflowException:
    """The same, of a code.

    One that is not ours (a crash, a kill) is retried: the commit protocol makes a repeat harmless.
    """
    kind = EXIT_CODES.get(code)
    if kind is None:
        why = NO_MEMORY if code in WITHOUT_MEMORY else ""
        return AirflowException(f"The driver ended with exit code {code}: {why}{WHO_ACTS[Retryable]}.")
    fatal = kind in (Superseded, Refused, InvariantBroken)
    raised = AirflowFailException if fatal else AirflowException
    return raised(f"{kind.__name__} (the driver's exit code {code}): {WHO_ACTS[kind]}.")
