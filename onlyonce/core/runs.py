"""The report of a command, the error that ends a run with several outputs, and the state of a continuous run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Literal

from onlyonce.core.errors import EXIT_CODES, InvariantBroken, OnlyonceError, Refused, Superseded


@dataclass(frozen=True)
class Report:
    """The result of one entry point, for a person (rich tables) and for scripts (`--json`).

    Its figures are read from the log afterwards, never from the run's own counters."""

    title: str
    run_id: str
    facts: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return asdict(self)


class Interrupted(KeyboardInterrupt):
    """A run that Ctrl-C has ended, with the report of what it has committed."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.title)
        self.report = report


# An output that fails does not stop the others: which error a run then ends with.


def ends_with(failures: Mapping[str, BaseException]) -> BaseException:
    """Return the error of the first output that failed. It then names all outputs that failed."""
    first, *others = failures
    error = failures[first]
    told = f"output {first} stands still" + "".join(
        f"; so does {name}: {first_line(failures[name])}" for name in others
    )
    if isinstance(error, OnlyonceError):
        data = "; ".join(part for part in (error.data, told) if part)
        return type(error)(error.what, data=data, hint=error.hint)
    error.add_note(told)
    return error


def refusal(wrong: Mapping[str, BaseException]) -> BaseException:
    """Return the error of a check that no output passes: the only error unchanged, or the first with all names."""
    return ends_with(wrong) if len(wrong) > 1 else next(iter(wrong.values()))


def for_good(error: BaseException) -> bool:
    """Return whether the same output would fail with this error again until a person has acted."""
    return isinstance(error, (Refused, InvariantBroken))


def cause_of(failures: Mapping[str, BaseException]) -> BaseException:
    """Return the error that ends a continuous run without remaining outputs.

    It is the first error that the same command may get past, since a supervisor then starts the run again. If there is
    none, it is the first error."""
    first = next((name for name in failures if not for_good(failures[name])), next(iter(failures)))
    return ends_with({first: failures[first], **failures})


def first_line(error: BaseException) -> str:
    """Return an error as one line for a log or a row."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]


# A continuous run: one driver that reads new input until it is asked to stop.
#
# The log has one row for the last continuous run of each pipeline. The database's clock measures the age of its
# heartbeat, so the clocks of the machines need not agree.


BEATS = 6
"""After this many missing heartbeats in a row a driver counts as dead."""


class Stopped(Exception):
    """The driver was asked to stop, and is between two batches: raised at the point where the next would begin."""


def first_cause(failures: Sequence[BaseException]) -> BaseException:
    """Return the error that ends a run, from all errors in the order in which they occurred.

    It is the first that is more than a request to stop, since a failure asks the other queries to stop."""
    return next((one for one in failures if not isinstance(one, Stopped)), failures[0])


@dataclass(frozen=True)
class LongRun:
    """The last continuous run of a pipeline as stored in the log.

    attempt      counts the drivers that took the row
    driver       the driver's host and process
    quiet        how old its heartbeat is
    lost_after   how old it may become
    rounds       polls for new input after which each query had ended a batch, or had nothing to do
    why          the error of a driver that has ended
    uses_lock    its driver took a lock that ends with its process
    """

    instance: str
    attempt: int
    run_id: str
    driver: str
    quiet: timedelta
    lost_after: timedelta
    rounds: int
    stop_asked: bool
    exit_code: int | None
    why: str | None
    uses_lock: bool = False

    @property
    def alive(self) -> bool:
        """Return whether its driver is alive, by its heartbeat."""
        return self.exit_code is None and self.quiet < self.lost_after

    @property
    def lost(self) -> bool:
        """Return whether its heartbeat has stopped without notice."""
        return self.exit_code is None and not self.alive

    @property
    def stopped(self) -> bool:
        """Return whether it has ended on request: no supervisor starts it again."""
        return not self.alive and (self.stop_asked or self.exit_code == 0)


def lost_after(beat: timedelta) -> timedelta:
    """Return how long a driver with this heartbeat may be silent before another one takes its place."""
    return beat * BEATS


def refuse_other_options(**asked: bool) -> None:
    """Raise Refused for options that a continuous run can't be combined with."""
    if others := [name for name, on in asked.items() if on]:
        raise Refused(
            f"a continuous run can't be asked for together with {' and '.join(others)}",
            data="nothing was read or written",
            hint="it closes windows by idle_after only; to declare the input ended: onlyonce stop, then a run "
            "with close",
        )


def refuse_beside(known: LongRun | None, *, lock_is_free: bool = False) -> None:
    """Raise Superseded if a pipeline's continuous run is alive: no other driver may run the pipeline then.

    `lock_is_free`: no process holds the lock of the continuous run now. So a driver that took it has ended, however
    young its heartbeat.

    Each starting driver calls this, for a continuous run or a run once. If two start at the same instant, the row's
    lock decides; the epoch fences any other case.
    """
    if known is not None and known.alive and not (lock_is_free and known.uses_lock):
        raise Superseded(
            f"{known.instance}: a continuous run is active (attempt {known.attempt}, run {known.run_id}, on "
            f"{known.driver})",
            data="nothing was started; what is in the inbox, and what comes, is taken in by that one",
            hint=f"nothing to do; to run it otherwise, first: onlyonce stop {known.instance}",
        )


Start = Literal["start", "attach", "wait"]
Watch = Literal["watch", "start", "done", "retry", "fail"]


def on_start(known: LongRun | None) -> Start:
    """Return what a supervisor does when it is asked for a continuous run.

    It starts a driver, or attaches to the living one. If that one was asked to stop, it waits for its end and then
    starts a driver. So a cleared task really runs again, and two drivers never run at the same time."""
    if known is None or not known.alive:
        return "start"
    return "wait" if known.stop_asked else "attach"


def on_watch(known: LongRun | None) -> Watch:
    """Return what a supervisor does with the run that it watches.

    It starts a driver again that ended by itself or was lost. A driver that did not complete a single round ends the
    task's try (retry): Airflow's retries bound such a loop, and then alert a person. If a retry can't help, the task
    fails for good.
    """
    if known is None:
        return "start"  # the log has been replaced by another one
    if known.alive:
        return "watch"
    if known.stopped:
        return "done"
    if known.exit_code is not None and EXIT_CODES.get(known.exit_code) in (Refused, InvariantBroken):
        return "fail"
    return "start" if known.rounds else "retry"


StandBy = Literal["wait", "take", "leave"]


def standing_by(seen: LongRun | None, now: LongRun | None, *, lock_is_free: bool) -> StandBy:
    """Return what a standby driver does. `seen`: the continuous run as it was when this driver started.

    It takes the place of a driver that has ended, whatever the cause, or is lost: a machine that shuts down ends its
    driver by SIGTERM, with exit code 0. It leaves only if the pipeline's run was since asked to stop (`onlyonce stop`).
    """
    if seen is None or not seen.alive:
        return "take"
    assert now is not None, "a row that was there stays"
    # A person who starts a driver while another one stops wants both.
    asked_before = now.attempt == seen.attempt and seen.stop_asked
    if now.stop_asked and (lock_is_free or not now.alive) and not asked_before:
        return "leave"
    return "take" if not now.alive or (lock_is_free and now.uses_lock) else "wait"


def ending(known: LongRun) -> str:
    """Return how a continuous run ended, for a message."""
    if known.lost:
        return (
            f"the heartbeat of attempt {known.attempt} on {known.driver} ended {known.quiet.total_seconds():.0f} s ago"
        )
    return f"attempt {known.attempt} on {known.driver} ended with exit code {known.exit_code}: {known.why or 'no word'}"
