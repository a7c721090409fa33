"""docs/specification/incarnation.md, of a driver and of `onlyonce reset`: find the live incarnation, raise its epoch, in the other database too."""

from __future__ import annotations

from tests.model.setting import Setting, Steps, ended, on
from tests.model.state import PLATFORM, THERE, Process, State, roll_back, with_incarnation


def start(at: Setting, state: State, process: Process) -> Steps:
    """Find the live incarnation. A driver needs its checkpoint."""
    if process.kind == "run" and state.incarnations[state.live].checkpoint_lost:
        yield ended(state, process, "is refused, since the checkpoint is gone")
        return
    yield on(state, process._replace(incarnation=state.live, at="bump"), "start")


def bump(at: Setting, state: State, process: Process) -> Steps:
    """Raise the epoch in the platform's database."""
    incarnation = state.incarnations[process.incarnation]
    if process.incarnation != state.live and at.rules.closed_incarnation_takes_no_driver:
        yield ended(state, process, "is told that its incarnation was closed")
        return
    epoch = incarnation.epoch + 1
    if at.rules.older_sessions_are_ended:
        state = roll_back(state, PLATFORM, at.sinks, process.incarnation, epoch)
    elif at.holds_epoch(state, process, PLATFORM):
        return
    process = process._replace(epoch=epoch, at=_after_bump(at, process))
    yield on(
        with_incarnation(state, process.incarnation, incarnation._replace(epoch=epoch)),
        process,
        f"bump the epoch to {epoch}",
    )


def _after_bump(at: Setting, process: Process) -> str:
    fences = process.kind != "new" or at.rules.fence_raised_in_all_before_relied_on
    if at.is_there and fences:
        return "adopt"
    return "look" if process.kind == "new" else "begin batch"


def adopt(at: Setting, state: State, process: Process) -> Steps:
    """Raise the epoch in the other database."""
    incarnation = state.incarnations[process.incarnation]
    if state.away:
        yield ended(state, process, "ends, since the other database is away")
        return
    if incarnation.epoch_there > process.epoch:
        yield ended(state, process, "is told in the other database that it was superseded")
        return
    if at.rules.older_sessions_are_ended:
        state = roll_back(state, THERE, at.sinks, process.incarnation, process.epoch)
    elif at.holds_epoch(state, process, THERE):
        return
    state = with_incarnation(state, process.incarnation, incarnation._replace(epoch_there=process.epoch))
    process = process._replace(at="look" if process.kind == "new" else "begin batch")
    yield on(state, process, f"tell the other database epoch {process.epoch}")
