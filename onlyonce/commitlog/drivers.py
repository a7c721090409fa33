"""Drivers in the log: drivers of Airflow's runs, drivers of continuous runs, and the check of a driver's clock.

For a run of a DAG the log has the number and end of its last driver. A killed driver has no end there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from onlyonce.core.errors import OnlyonceError, Refused, Superseded
from onlyonce.core.runs import LongRun, first_line, lost_after, refuse_beside
from onlyonce.database.connect import Database, Transactions, ask, do, one_transaction
from onlyonce.failpoints import passing


@dataclass(frozen=True)
class DriverRun:
    """The last driver of a run. `attempt` counts them; without an exit code the driver has not recorded its end."""

    attempt: int
    exit_code: int | None
    why: str | None


class DriverRuns(Transactions):
    """The drivers of Airflow's runs."""

    @one_transaction
    def look(self, dag_id: str, run_id: str, pipeline: str) -> DriverRun | None:
        """Return the last driver of a run of a DAG; None before the first."""
        rows = ask(self.connection, "driver_runs", "look", dag_id=dag_id, run_id=run_id, pipeline=pipeline)
        return DriverRun(*tuple(rows[0])) if rows else None

    @one_transaction
    def begin(self, dag_id: str, run_id: str, pipeline: str) -> tuple[int, datetime]:
        """Note that a driver of a run begins. Return its number, and when the work began that it continues."""
        [row] = ask(self.connection, "driver_runs", "begin", dag_id=dag_id, run_id=run_id, pipeline=pipeline)
        return row.attempt, row.begun_at

    @one_transaction
    def end(self, dag_id: str, run_id: str, pipeline: str, ended: DriverRun) -> None:
        """Note how a driver ended."""
        do(self.connection, "driver_runs", "end", dag_id=dag_id, run_id=run_id, pipeline=pipeline, **vars(ended))

    @one_transaction
    def fail(self, dag_id: str, run_id: str, pipeline: str, error: BaseException) -> None:
        """Note that the task of a run has failed after the good end of its driver: the next driver continues its work.

        Do nothing if the last driver has not ended well.
        """
        known = self.look(dag_id, run_id, pipeline)
        if known is not None and known.exit_code == 0:
            self.end(dag_id, run_id, pipeline, DriverRun(known.attempt, *_failure(error)))

    @one_transaction
    def clock(self, here: Callable[[], float]) -> tuple[float, float]:
        """Return the time by a clock of this process, and a moment later by PostgreSQL's clock."""
        return here(), float(ask(self.connection, "driver_runs", "clock")[0].seconds)

    @one_transaction
    def remove(self, keep_days: int) -> int:
        """Remove the runs that began more than `keep_days` days ago, and return their number."""
        return do(self.connection, "driver_runs", "remove", keep_days=keep_days)


@contextmanager
def noted_run(database: Database, dag_id: str | None, run_id: str, pipeline: str) -> Iterator[datetime | None]:
    """Note the block in the log as a driver of a DAG's run: its begin and its end. Without a DAG do nothing.

    Yield the time since which the run's commits are part of the work of this driver; None without a DAG. A driver
    continues the work of one that has not ended well. A run that was cleared after a good end begins its work again.
    """
    if dag_id is None:
        yield None
        return
    runs = DriverRuns(database)
    attempt, since = runs.begin(dag_id, run_id, pipeline)
    passing("driver-after-begin")

    def end(exit_code: int, why: str | None) -> None:
        passing("driver-before-end")
        runs.end(dag_id, run_id, pipeline, DriverRun(attempt, exit_code, why))
        passing("driver-after-end")

    try:
        yield since
    except BaseException as error:
        with suppress(OnlyonceError):  # if the log is unreachable the driver has no end there; the error matters more
            end(*_failure(error))
        raise
    end(0, None)


def _failure(error: BaseException) -> tuple[int, str]:
    return error.exit_code if isinstance(error, OnlyonceError) else 1, first_line(error)


# Compares the clock of a driver with PostgreSQL's, before the driver's clock becomes the ingestion time of new input.
#
# Ingestion time never moves back. So one registration by a driver whose clock is far ahead would stop three things: the
# gc of ids, `max_ahead`, and the closing of idle sources. They would stop until real time has caught up.


MOST_SECONDS = 300.0
AGAIN_SECONDS = 600.0
"""Two clocks drift apart slowly, so they are compared again after this time."""
STEP_SECONDS = 1.0
"""A clock that was set moves against the steady clock by more than this, and is compared again immediately."""


@dataclass
class DriverClock:
    """The clock of this process, for one run."""

    database: Database
    _last: tuple[float, float] | None = field(default=None, init=False)

    def check(self) -> None:
        """Raise Refused if the clock differs from PostgreSQL's by more than five minutes.

        Ask only if it may have changed since the last check.
        """
        steady, offset = time.monotonic(), time.time() - time.monotonic()
        if self._last and steady - self._last[0] < AGAIN_SECONDS and abs(offset - self._last[1]) < STEP_SECONDS:
            return
        before, theirs = DriverRuns(self.database).clock(time.time)
        after = time.time()
        if theirs < before - MOST_SECONDS or theirs > after + MOST_SECONDS:
            apart = timedelta(seconds=round(abs(theirs - after)))
            raise Refused(
                f"the clock of this driver shows {_shown(after)}, and PostgreSQL's {_shown(theirs)}: they differ "
                f"by {apart}",
                data="no new input was registered; its ingestion time would be wrong, and could not be set back",
                hint="set the clocks of both machines (timedatectl and chronyc tracking show the state of NTP), "
                "then run the same command again",
            )
        self._last = steady, offset


def _shown(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


# Continuous runs: which driver runs a pipeline without end, its heartbeat, and the request to stop.
# docs/specification/long-run.md.


@dataclass(frozen=True)
class Taken:
    """A driver's hold on a continuous run. It is valid as long as `attempt` is the last one."""

    instance: str
    attempt: int


class LongRuns(Transactions):
    """Which driver runs a pipeline without end."""

    @one_transaction
    def look(self, instance: str) -> LongRun | None:
        """Return the last continuous run of a pipeline; None before the first."""
        rows = ask(self.connection, "long_runs", "look", instance=instance)
        return LongRun(*tuple(rows[0])) if rows and rows[0].attempt else None

    @one_transaction
    def alive(self) -> dict[str, int]:
        """Return the pipelines whose continuous run is alive, each with the process id of its driver."""
        rows = ask(self.connection, "long_runs", "alive")
        return {row.instance: int(row.driver.split(":")[-2]) for row in rows}

    @one_transaction
    def take(
        self,
        instance: str,
        run_id: str,
        driver: str,
        *,
        every: timedelta,
        beat: timedelta,
        lock_is_free: bool = False,
    ) -> Taken:
        """Become the driver of the pipeline. If several drivers start at the same instant, one succeeds.

        `driver` is a name that no other driver has, so this driver recognises its own row after a lost answer.
        Supersede a driver whose heartbeat has ended, or that held the lock if `lock_is_free`. Raise Superseded if
        another driver is alive.
        """
        do(self.connection, "long_runs", "add", instance=instance)
        known = LongRun(*tuple(ask(self.connection, "long_runs", "look_and_lock", instance=instance)[0]))
        if known.driver == driver:
            return Taken(instance, known.attempt)
        refuse_beside(known, lock_is_free=lock_is_free)
        row = ask(
            self.connection, "long_runs", "take", instance=instance, run_id=run_id, driver=driver, every=every,
            lost_after=lost_after(beat),
        )[0]  # fmt: skip
        return Taken(instance, row.attempt)

    @one_transaction
    def beat(self, taken: Taken, rounds: int, down: Mapping[str, str] | None = None) -> bool:
        """Record a heartbeat with the number of rounds and the outputs that are down; return whether a stop was asked
        for.

        Raise Superseded.
        """
        rows = ask(
            self.connection, "long_runs", "beat", instance=taken.instance, attempt=taken.attempt, rounds=rounds,
            down=json.dumps(dict(down or {})),
        )  # fmt: skip
        if not rows:
            raise Superseded(
                f"{taken.instance}: another driver has taken the place of attempt {taken.attempt} of the "
                "continuous run",
                data="what this driver had committed stays, and the other driver continues with its unfinished batch",
                hint="nothing to do; its heartbeat was missing for too long (was the machine asleep, or the database "
                "away?)",
            )
        return bool(rows[0].stop_asked)

    @one_transaction
    def ask_stop(self, instance: str) -> bool:
        """Ask the driver to stop between two batches, and not to be restarted. Return whether one has not ended."""
        return bool(ask(self.connection, "long_runs", "ask_stop", instance=instance))

    @one_transaction
    def ask_watched_to_stop(self, supervisor: str) -> bool:
        """Ask a killed supervisor's driver to stop, unless another supervisor watches it by now. Return whether one was
        asked.

        The reader role may do this: the supervisor's name is the permission.
        """
        self.connection.exec_driver_sql(
            "SET TRANSACTION READ WRITE"
        )  # the reader's transactions are read-only by default
        return ask(self.connection, "long_runs", "ask_watched_to_stop", supervisor=supervisor)[0].attempt is not None

    @one_transaction
    def watch(self, instance: str, supervisor: str) -> LongRun | None:
        """Let a supervisor watch the pipeline from now on, and return its last continuous run as `look` does."""
        do(self.connection, "long_runs", "watch", instance=instance, supervisor=supervisor)
        return self.look(instance)

    @one_transaction
    def end(self, taken: Taken, rounds: int, exit_code: int, why: str | None) -> None:
        """Note how a driver ended. Do nothing if another driver has superseded it."""
        do(
            self.connection, "long_runs", "end", instance=taken.instance, attempt=taken.attempt, rounds=rounds,
            exit_code=exit_code, why=why,
        )  # fmt: skip
