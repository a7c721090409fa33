"""Long runs in the log: who drives a pipeline without end, its heartbeat, and the request to stop.
docs/specification/long-run.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.errors import Superseded
from onlyonce.model.run.long_run import LongRun, lost_after, refuse_beside


@dataclass(frozen=True)
class Taken:
    """The place of a driver that runs long: it is its own as long as `attempt` is the last."""

    instance: str
    attempt: int


class LongRuns(Transactions):
    """Who drives a pipeline without end."""

    @one_transaction
    def look(self, instance: str) -> LongRun | None:
        """The last long run of a pipeline; None before the first."""
        rows = ask(self.connection, "long_runs", "look", instance=instance)
        return LongRun(*tuple(rows[0])) if rows and rows[0].attempt else None

    @one_transaction
    def take(
        self,
        instance: str,
        run_id: str,
        driver: str,
        *,
        every: timedelta,
        beat: timedelta,
        released: bool = False,
    ) -> Taken:
        """Become the one that drives the pipeline. Of two that start at the same instant one does.

        `driver` is this driver's name and nobody else's, so that it knows its own row after a lost answer. Raises
        Superseded when another is alive; one whose heartbeat has ended is superseded, and one whose lock is `released`.
        """
        do(self.connection, "long_runs", "add", instance=instance)
        known = LongRun(*tuple(ask(self.connection, "long_runs", "look_and_lock", instance=instance)[0]))
        if known.driver == driver:
            return Taken(instance, known.attempt)
        refuse_beside(known, released=released)
        row = ask(
            self.connection, "long_runs", "take", instance=instance, run_id=run_id, driver=driver, every=every,
            lost_after=lost_after(beat),
        )[0]  # fmt: skip
        return Taken(instance, row.attempt)

    @one_transaction
    def beat(self, taken: Taken, turns: int, down: Mapping[str, str] | None = None) -> bool:
        """A sign of life, with the number of turns so far, and the outputs that stand still with their errors; tells
        whether a stop was asked for.

        Raises Superseded.
        """
        rows = ask(
            self.connection, "long_runs", "beat", instance=taken.instance, attempt=taken.attempt, turns=turns,
            down=json.dumps(dict(down or {})),
        )  # fmt: skip
        if not rows:
            raise Superseded(
                f"{taken.instance}: another driver has taken the place of attempt {taken.attempt} of the long run",
                data="what this driver had committed stays, and the other one goes on with its unfinished batch",
                hint="nothing to do; its heartbeat was missing for too long (was the machine asleep, or the database "
                "away?)",
            )
        return bool(rows[0].stop_asked)

    @one_transaction
    def ask_stop(self, instance: str) -> bool:
        """Ask the driver to stop between two batches; whether there is one that has not ended. Nobody starts it
        again."""
        return bool(ask(self.connection, "long_runs", "ask_stop", instance=instance))

    @one_transaction
    def ask_watched_to_stop(self, supervisor: str) -> bool:
        """The same in the name of a supervisor that was killed, which is not heard where another watches by now.

        The reader may do it: the name is the permission.
        """
        self.connection.exec_driver_sql(
            "SET TRANSACTION READ WRITE"
        )  # the reader's transactions are read-only by default
        return ask(self.connection, "long_runs", "ask_watched_to_stop", supervisor=supervisor)[0].attempt is not None

    @one_transaction
    def watch(self, instance: str, supervisor: str) -> LongRun | None:
        """The same as `look`, by a supervisor that watches from now on."""
        do(self.connection, "long_runs", "watch", instance=instance, supervisor=supervisor)
        return self.look(instance)

    @one_transaction
    def end(self, taken: Taken, turns: int, exit_code: int, why: str | None) -> None:
        """Say how a driver ended. Nothing happens when another has taken its place."""
        do(
            self.connection, "long_runs", "end", instance=taken.instance, attempt=taken.attempt, turns=turns,
            exit_code=exit_code, why=why,
        )  # fmt: skip
