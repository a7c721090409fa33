"""The report that a command gives at its end.

Its figures are read from the log afterwards, never from the run's own counters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Literal

from onlyonce.core.errors import EXIT_CODES, InvariantBroken, OnlyonceError, Refused, Superseded


@dataclass(frozen=True)
class Report:
    """The result of one entry point, for a person (rich tables) and for scripts (`--json`)."""

    title: str
    run_id: str
    facts: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)


# An output that fails does not stop the others.
#
# Decides which error a run ends with when some outputs have failed. Pure.


def ends_with(failures: Mapping[str, BaseException]) -> BaseException:
    """The error of the first output that failed, which then names all that did, and says that the others went on."""
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
    """Return the error of a check that no output passes: the only one as it is, or the first, which then names the
    others."""
    return ends_with(wrong) if len(wrong) > 1 else next(iter(wrong.values()))


def for_good(error: BaseException) -> bool:
    """Whether the same output would fail of it again, until a person has acted."""
    return isinstance(error, (Refused, InvariantBroken))


def cause_of(failures: Mapping[str, BaseException]) -> BaseException:
    """What a long run ends with when none of its outputs is left: the first that the same command may mend, since a
    supervisor then starts it again; else the first."""
    first = next((name for name in failures if not for_good(failures[name])), next(iter(failures)))
    return ends_with({first: failures[first], **failures})


def first_line(error: BaseException) -> str:
    """An error in a line of a log or a row."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]


# A long run: one driver that takes in what comes until it is asked to stop. Pure.
#
# The log has one row for the last long run of each pipeline. The age of its heartbeat is told by the database's clock,
# so the clocks of the machines need not agree.


BEATS = 6
"""After how many heartbeats in a row that did not come a driver counts as dead."""


class Stopped(Exception):
    """The driver was asked to stop, and is between two batches: raised where the next one would begin."""


def first_cause(failures: Sequence[BaseException]) -> BaseException:
    """Of all that ended a run, in the order in which it was found, what it ends with: the first that is more than the
    request to stop, since a failure asks the other queries to."""
    return next((one for one in failures if not isinstance(one, Stopped)), failures[0])


@dataclass(frozen=True)
class LongRun:
    """The last long run of a pipeline as the log has it.

    `attempt` counts the drivers that took the row; `locked`: its driver holds a lock for as long as it lives.
    """

    instance: str
    attempt: int
    run_id: str
    driver: str
    quiet: timedelta
    lost_after: timedelta
    turns: int
    stop_asked: bool
    exit_code: int | None
    why: str | None
    locked: bool = False

    @property
    def alive(self) -> bool:
        """Whether its driver is at work, by its heartbeat."""
        return self.exit_code is None and self.quiet < self.lost_after

    @property
    def lost(self) -> bool:
        """Whether its heartbeat has stopped without notice."""
        return self.exit_code is None and not self.alive

    @property
    def stopped(self) -> bool:
        """Whether it is at its end because somebody asked for it: nobody starts it again."""
        return not self.alive and (self.stop_asked or self.exit_code == 0)


def lost_after(beat: timedelta) -> timedelta:
    """How long a driver with this heartbeat may be silent before another takes its place."""
    return beat * BEATS


def refuse_with(**asked: bool) -> None:
    """A long run goes alone: raises Refused for what can't be asked of it."""
    if others := [name for name, on in asked.items() if on]:
        raise Refused(
            f"a long run can't be asked for together with {' and '.join(others)}",
            data="nothing was read or written",
            hint="it closes windows by idle_after only; to declare the input ended: onlyonce stop, then a run "
            "with close",
        )


def refuse_beside(known: LongRun | None, *, released: bool = False) -> None:
    """Nothing else may drive a pipeline whose long run is alive.

    Raises Superseded. `released`: nobody holds the lock of its long run, so a driver that held it is at its end,
    however young its heartbeat.

    Asked by a driver that starts, long run or drain. Two that start at the same instant are decided by the row's lock;
    whatever slips through, the epoch fences.
    """
    if known is not None and known.alive and not (released and known.locked):
        raise Superseded(
            f"{known.instance}: a long run is at work (attempt {known.attempt}, run {known.run_id}, on {known.driver})",
            data="nothing was started; what is in the inbox, and what comes, is taken in by that one",
            hint=f"nothing to do; to run it otherwise, first: onlyonce stop {known.instance}",
        )


Start = Literal["start", "attach", "wait"]
Watch = Literal["watch", "start", "done", "retry", "fail"]


def on_start(known: LongRun | None) -> Start:
    """What a supervisor does that is asked for a long run: start a driver, attach to the living one, or, where that was
    asked to stop, wait for its end and then start. So a cleared run really runs again, and never beside another."""
    if known is None or not known.alive:
        return "start"
    return "wait" if known.stop_asked else "attach"


def on_watch(known: LongRun | None) -> Watch:
    """What a supervisor does with the run that it watches.

    A driver that ended by itself or was lost is started again. One that did not get through a single turn ends the try
    of the task (retry): Airflow's retries bound such a loop, and then a person hears of it. Where no repeat helps, it
    fails for good.
    """
    if known is None:
        return "start"  # the log is another one than before
    if known.alive:
        return "watch"
    if known.stopped:
        return "done"
    if known.exit_code is not None and EXIT_CODES.get(known.exit_code) in (Refused, InvariantBroken):
        return "fail"
    return "start" if known.turns else "retry"


StandBy = Literal["wait", "take", "leave"]


def standing_by(seen: LongRun | None, now: LongRun | None, *, released: bool) -> StandBy:
    """What a driver does that stands by. `seen`: the long run as it was when it came.

    It takes the place of a driver that has ended by itself, was killed or is lost. It leaves where the one at work was
    asked to stop since: then nobody is to start it again.
    """
    if seen is None or not seen.alive:
        return "take"
    assert now is not None, "a row that was there stays"
    asked_before = (
        now.attempt == seen.attempt and seen.stop_asked
    )  # whoever starts one beside a driver that is stopping means it
    if (now.stopped or (released and now.stop_asked)) and not asked_before:
        return "leave"
    return "take" if not now.alive or (released and now.locked) else "wait"


def ending(known: LongRun) -> str:
    """How a long run ended, for a message."""
    if known.lost:
        return (
            f"the heartbeat of attempt {known.attempt} on {known.driver} ended {known.quiet.total_seconds():.0f} s ago"
        )
    return f"attempt {known.attempt} on {known.driver} ended with exit code {known.exit_code}: {known.why or 'no word'}"
