"""docs/specification/output-batch.md: a batch begins, and ends."""

from __future__ import annotations

from tests.model.setting import Setting, Steps, ended, on
from tests.model.state import Batch, Incarnation, Process, State, with_incarnation

END = "end batch"


def begin(at: Setting, state: State, process: Process) -> Steps:
    """Take the next batch: a new one, or the one that an earlier driver began."""
    incarnation = state.incarnations[process.incarnation]
    if process.epoch != incarnation.epoch:
        yield ended(state, process, "is told that it was superseded")
    elif incarnation.checkpoint_lost:
        yield ended(state, process, "fails, since the checkpoint is gone")
    elif incarnation.begun:
        yield from _begin_again(at, state, process, incarnation, incarnation.begun)
    elif incarnation.checkpoint_commits < len(incarnation.batches):
        number = incarnation.checkpoint_commits
        yield on(state, process._replace(batch=number, at="checkpoint"), f"find batch {number} committed")
    elif incarnation.read_upto == state.arrived:
        yield ended(state, process, "ends: nothing is new")
    else:
        batch = Batch(incarnation.read_upto, state.arrived, process.declared)
        yield _begun(at, state, process, incarnation._replace(batches=(*incarnation.batches, batch)), "begin")


def _begin_again(at: Setting, state: State, process: Process, incarnation: Incarnation, batch: Batch) -> Steps:
    number = len(incarnation.batches) - 1
    there = at.units(state, process.incarnation, number, everywhere=at.rules.begin_asks_all)
    if batch.declaration == process.declared:
        yield _begun(at, state, process, incarnation, "take over")
    elif there is None:
        yield ended(state, process, "is refused, since the other database can't be asked")
    elif there:
        yield ended(state, process, f"is refused, since batch {number} has units of another declaration")
    else:
        again = batch._replace(declaration=process.declared)
        yield _begun(at, state, process, incarnation._replace(batches=(*incarnation.batches[:-1], again)), "begin anew")


def _begun(at: Setting, state: State, process: Process, incarnation: Incarnation, how: str) -> tuple[str, State]:
    number = len(incarnation.batches) - 1
    state = with_incarnation(
        state, process.incarnation, incarnation._replace(told=max(incarnation.told, process.epoch))
    )
    meant = incarnation.batches[-1]
    process = process._replace(at="unit", batch=number, meant=meant, sink=0, done=frozenset(), open=None)
    return on(state, process, f"{how} batch {number} under declaration {meant.declaration}")


def end(at: Setting, state: State, process: Process) -> Steps:
    """Mark the batch as committed, if all its units are there."""
    incarnation = state.incarnations[process.incarnation]
    if process.epoch != incarnation.epoch or incarnation.begun is None:
        yield ended(state, process, "is told at the end of its batch that it was superseded")
        return
    if at.is_there and state.away:
        yield ended(state, process, "ends, since the other database is away")
        return
    there = {unit[2:4] for unit in state.units if unit[:2] == (process.incarnation, process.batch)}
    wanted = {
        (s.name, part) for s in at.world.sinks for part in range(at.world.parts(s, incarnation.begun.declaration))
    }
    if there != wanted:
        yield ended(
            state, process, f"stops at the end of batch {process.batch}, since its units are not those of its row"
        )
        return
    batches = (*incarnation.batches[:-1], incarnation.begun._replace(committed=True))
    state = with_incarnation(state, process.incarnation, incarnation._replace(batches=batches))
    yield on(
        state,
        process._replace(at="new incarnation" if process.kind == "new" else "checkpoint"),
        f"end batch {process.batch}",
    )


def checkpoint(at: Setting, state: State, process: Process) -> Steps:
    """Spark's own note that the batch is done."""
    incarnation = state.incarnations[process.incarnation]
    if incarnation.checkpoint_lost:
        yield ended(state, process, "ends, since the checkpoint is gone")
        return
    commits = max(incarnation.checkpoint_commits, process.batch + 1)
    state = with_incarnation(state, process.incarnation, incarnation._replace(checkpoint_commits=commits))
    yield on(state, process._replace(at="begin batch"), f"Spark commits batch {process.batch} to the checkpoint")
