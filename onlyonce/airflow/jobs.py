"""Run jobs that need no Spark as tasks, and decide what an error means for a task.

Each error means another try or failure for good. The job runs in the worker's own process, and its report is
written to the task's log. The DAGs of `onlyonce.airflow.dags` use these operators, and a team may use them in its own
DAGs.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from onlyonce.airflow.declared import Declared
from onlyonce.airflow.log import secret_variables, tell
from onlyonce.core.errors import (
    EXIT_CODES,
    WITHOUT_MEMORY,
    InvariantBroken,
    OnlyonceError,
    Refused,
    Retryable,
    Superseded,
)
from onlyonce.settings import within

_EXIT_CODE = re.compile(r"Error code is: (-?\d+)\.")

WHO_ACTS: dict[type[OnlyonceError], str] = {
    Retryable: "nothing is half done, and the same command may run again",
    Superseded: "a newer run of this pipeline is running and continues with the same batches; there is nothing to do",
    Refused: "the request is wrong, so a retry fails too; do what the driver says after 'next:', then clear this task",
    InvariantBroken: "a person must look at what the driver names; nothing runs by itself before that",
}

NO_MEMORY = "Spark's JVM found no memory, so give it more (ONLYONCE_DRIVER_MEMORY; 2g by default with a local master); "


@contextmanager
def refusals_are_final(log: logging.Logger) -> Iterator[None]:
    """Fail the task for good if the block raises Refused: no retry helps, a person must change the request."""
    try:
        yield
    except Refused as error:
        raise failed_for_good(str(error), log) from None


def failed_for_good(reason: str, log: logging.Logger) -> AirflowFailException:
    """Return the exception to raise. Log the reason, too: otherwise it is only below a traceback."""
    log.error(reason)
    return AirflowFailException(reason)


def outcome(error: AirflowException) -> AirflowException:
    """Return what the driver's exit code means for the task: an exception with retries, or one without. Pure.

    An error without an exit code is returned as it is. The exception repeats the driver's error, which the log has
    between other lines, without a level.
    """
    said, _, printed = str(error).partition("\nLast spark-submit output:")
    codes = _EXIT_CODE.findall(said)
    return of_code(int(codes[-1]), _error_in(printed)) if codes else error


def _error_in(printed: str) -> str:
    """Return the three lines of the driver's error among the last lines that it has printed, or nothing."""
    lines = [line.strip() for line in printed.splitlines()]
    at = next((at for at in range(len(lines) - 1, 0, -1) if lines[at].startswith("data: ")), None)
    return "" if at is None else "".join(f"{line}\n" for line in lines[at - 1 : at + 2])


def of_code(code: int, driver_error: str = "") -> AirflowException:
    """Return what an exit code means for the task.

    A code that is not ours (a crash, a kill) is retried: the commit protocol makes a repeat harmless.

    driver_error   the driver's error, if it is known, which comes first
    """
    kind = EXIT_CODES.get(code)
    if kind is None:
        why = NO_MEMORY if code in WITHOUT_MEMORY else ""
        return AirflowException(f"The driver ended with exit code {code}: {why}{WHO_ACTS[Retryable]}.")
    fatal = kind in (Superseded, Refused, InvariantBroken)
    raised = AirflowFailException if fatal else AirflowException
    return raised(f"{driver_error}{kind.__name__} (the driver's exit code {code}): {WHO_ACTS[kind]}.")


# The operators. A refusal fails the task for good. After any other error the task is tried again, as its options say.
# Each of these jobs may run at any time, even two at the same time.


Declarations = str | Path | Sequence[str | Path] | None


class JobOperator(BaseOperator):
    """One job, of one pipeline or of all; a subclass names the job."""

    module = ""
    entry = "main"

    def __init__(
        self, *, pipeline: str | None = None, declarations: Declarations = None, **options_of_task: Any
    ) -> None:
        super().__init__(**options_of_task)
        self.pipeline = pipeline
        self.declarations = Declared.of(declarations)

    def execute(self, context: Any) -> None:
        """Run the job and log its report. Raise what the job raises, and AirflowFailException for what is refused."""
        # By name: DAG files import no database, and import-linter sees through a function's body too.
        job, formats = (importlib.import_module(f"onlyonce.{name}") for name in (self.module, "database.statements"))
        with refusals_are_final(self.log):
            formats.check_home()
            with within({**secret_variables(), **self.declarations.variables()}):
                report = getattr(job, self.entry)(self.arguments(context))
        tell(report, self.log)

    def arguments(self, context: Any) -> list[str]:
        """Return the job's command line."""
        return [self.pipeline] if self.pipeline else []


class PullOperator(JobOperator):
    """Pull a pipeline's Pub/Sub messages, before its stream reads them. A dry run pulls nothing."""

    module = "sources.pubsub"

    def execute(self, context: Any) -> None:
        """Pull until the subscription is drained, or the declared time is over."""
        if context["params"].get("dry_run"):
            self.log.info("a dry run pulls nothing")
            return
        super().execute(context)

    def arguments(self, context: Any) -> list[str]:
        """Return the command line with the run id, by which the pull run is known."""
        return [*super().arguments(context), f"--run-id={context['run_id']}"]


class DeliverOperator(JobOperator):
    """Send what waits in the outbox.

    If an endpoint is unreachable the task is retried; if it refuses every request the task fails for good.
    """

    module = "sinks.outbox.deliver"


class FinalizeOperator(JobOperator):
    """Give the files of committed batches their final names.

    Fails while a store is unreachable, or if a name is taken.
    """

    module = "sinks.files.finalize"


class AuditOperator(JobOperator):
    """Compare what was read with what became of it, by the commit log. Fails if something does not add up."""

    module = "operate.audit"


class AlertsOperator(JobOperator):
    """Send new alerts to ONLYONCE_ALERT_HOOK. Fails if the hook fails."""

    module = "operate.alerts"


class AskSourcesOperator(JobOperator):
    """Ask each source for its unread input, and store the answers. A source without an answer does not fail it."""

    module = "operate.ask_sources"


class DoctorOperator(JobOperator):
    """Look for what is stuck, for the page "onlyonce". It repairs nothing, and findings do not fail it."""

    module, entry = "operate.doctor", "visit"


class GcOperator(JobOperator):
    """Remove what was kept long enough: record ids beyond the dedup horizon, units, staged rows, input, orphans."""

    module = "operate.gc"


class MaintainOperator(JobOperator):
    """Compact the small files of closed windows in Delta tables, and remove what no reader needs."""

    module = "operate.compact"
