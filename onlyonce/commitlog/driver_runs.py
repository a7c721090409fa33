"""The drivers of Airflow's runs: which pipeline a run of a DAG has driven, and how its last driver ended.

Who calls it: a driver that was told its DAG (`--dag-id`), and the operator that follows a driver in a cluster. Not
promised: that a killed driver has an end in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from onlyonce.database.connect import Database, ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.failpoints import passing
from onlyonce.model.errors import OnlyonceError
from onlyonce.model.run.isolation import first_line


@dataclass(frozen=True)
class DriverRun:
    """The last driver of a run: `attempt` counts them; without an exit code it has not said how it ended."""

    attempt: int
    exit_code: int | None
    why: str | None


class DriverRuns(Transactions):
    """The drivers of Airflow's runs."""

    @one_transaction
    def look(self, dag_id: str, run_id: str, pipeline: str) -> DriverRun | None:
        """The last driver of a run of a DAG; None before the first."""
        rows = ask(self.connection, "driver_runs", "look", dag_id=dag_id, run_id=run_id, pipeline=pipeline)
        return DriverRun(*tuple(rows[0])) if rows else None

    @one_transaction
    def begin(self, dag_id: str, run_id: str, pipeline: str) -> int:
        """A driver of a run begins; gives its number."""
        rows = ask(self.connection, "driver_runs", "begin", dag_id=dag_id, run_id=run_id, pipeline=pipeline)
        return int(rows[0].attempt)

    @one_transaction
    def end(self, dag_id: str, run_id: str, pipeline: str, ended: DriverRun) -> None:
        """Say how a driver ended."""
        do(self.connection, "driver_runs", "end", dag_id=dag_id, run_id=run_id, pipeline=pipeline, **vars(ended))

    @one_transaction
    def clock(self, here: Callable[[], float]) -> tuple[float, float]:
        """The time by a clock of this process, and by PostgreSQL's a moment later."""
        return here(), float(ask(self.connection, "driver_runs", "clock")[0].seconds)

    @one_transaction
    def remove(self, keep_days: int) -> int:
        """Remove what began so long ago; gives how many runs."""
        return do(self.connection, "driver_runs", "remove", keep_days=keep_days)


@contextmanager
def noted(database: Database, dag_id: str | None, run_id: str, pipeline: str) -> Iterator[None]:
    """The log has the block as a driver of that run: that it began, and how it ended.

    Without a DAG, at a shell: nothing.
    """
    if dag_id is None:
        yield
        return
    runs = DriverRuns(database)
    attempt = runs.begin(dag_id, run_id, pipeline)
    passing("driver-after-begin")

    def end(exit_code: int, why: str | None) -> None:
        passing("driver-before-end")
        runs.end(dag_id, run_id, pipeline, DriverRun(attempt, exit_code, why))
        passing("driver-after-end")

    try:
        yield
    except BaseException as error:
        with suppress(OnlyonceError):  # where the log is away it has no end; the error is what counts
            end(error.exit_code if isinstance(error, OnlyonceError) else 1, first_line(error))
        raise
    end(0, None)
