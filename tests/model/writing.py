"""docs/specification/unit.md, docs/specification/delta-commit.md: the units of an output, and the commit to a Delta table."""

from __future__ import annotations

from tests.model.batch import END
from tests.model.setting import Setting, Steps, ended, on
from tests.model.state import TABLE, THERE, Process, Rows, Sink, State, Transaction, Unit, unit_of


def unit(at: Setting, state: State, process: Process) -> Steps:
    """The next units of a sink, in any order; of one in PostgreSQL the claim and the commit are two steps."""
    sink = at.world.sinks[process.sink]
    if process.open is not None:
        yield _commit(at, state, process, process.open, sink)
    elif sink.place == THERE and state.away:
        yield ended(state, process, "ends, since the other database is away")
    else:
        for partition in sorted(set(range(at.world.parts(sink, process.meant.declaration))) - process.done):
            yield from _claim(at, state, process, unit_of(at.world, process, sink, partition), sink)


def _claim(at: Setting, state: State, process: Process, wanted: Unit, sink: Sink) -> Steps:
    name = f"unit {wanted.batch}/{wanted.sink}/{wanted.partition}"
    if at.waits(state, process, wanted, sink):
        return
    incarnation = state.incarnations[process.incarnation]
    known = incarnation.epoch_there if sink.place == THERE else incarnation.epoch
    there = next((unit for unit in state.units if unit[:4] == wanted[:4]), None)
    if at.rules.epoch_is_checked and known != process.epoch:
        yield ended(state, process, f"is told at its claim of {name} that it was superseded")
    elif there and there != wanted:
        yield ended(state, process, f"finds {name} with other rows, and stops")
    elif sink.place == TABLE:
        state = state._replace(units=state.units | {wanted})
        yield on(state, process._replace(at="delta"), f"commit {name}, the reference unit")
    elif there and at.rules.found_unit_is_skipped:
        yield _next(at, state, process, wanted, f"find {name} and skip it")
    elif at.world.unfit == (sink.name, process.meant.declaration):
        yield ended(state, process, f"fails in {name}: its rows don't fit the table")
    else:
        yield on(state, process._replace(open=wanted), f"claim {name} in {sink.place}")


def _commit(at: Setting, state: State, process: Process, unit: Unit, sink: Sink) -> tuple[str, State]:
    state = _written(state, process, sink, unit.rows, stands=False)
    state = state._replace(units=state.units | {unit})
    return _next(at, state, process, unit, f"commit unit {unit.batch}/{unit.sink}/{unit.partition} in {sink.place}")


def _next(at: Setting, state: State, process: Process, unit: Unit, told: str) -> tuple[str, State]:
    """On to the next unit: of this sink, of the next one, or to the end of the batch."""
    done = process.done | {unit.partition}
    process = process._replace(open=None, done=done, at="unit")
    if len(done) == at.world.parts(at.sinks[unit.sink], process.meant.declaration):
        process = process._replace(done=frozenset(), sink=process.sink + 1)
        if process.sink == len(at.world.sinks):
            process = process._replace(at=END, sink=0)
    return on(state, process, told)


def delta(at: Setting, state: State, process: Process) -> Steps:
    """The rows behind a reference unit: the table knows no epoch, only whether it has the transaction."""
    sink = at.world.sinks[process.sink]
    unit = unit_of(at.world, process, sink, 0)
    if at.world.unfit == (sink.name, process.meant.declaration):
        yield ended(state, process, "fails before the Delta commit: the rows don't fit the table")
        return
    there = [done for done in state.table if done.incarnation == process.incarnation and done.batch >= process.batch]
    if there and at.rules.table_is_looked_at_first:
        if (process.incarnation, process.batch, unit.rows) in there:
            yield _next(at, state, process, unit, "find its Delta commit there")
        else:
            yield ended(state, process, "finds its Delta transaction taken, and stops")
        return
    state = _written(state, process, sink, unit.rows, stands=unit in state.units)
    state = state._replace(table=state.table | {Transaction(process.incarnation, process.batch, unit.rows)})
    yield _next(at, state, process, unit, f"commit batch {process.batch} to the table")


def _written(state: State, process: Process, sink: Sink, rows: Rows, *, stands: bool) -> State:
    """The rows in the sink.

    A fenced driver must leave none; into a table it may bring what a reference unit still vouches for.
    """
    told = state.incarnations[process.incarnation].told > process.epoch
    fenced = told or (process.incarnation < state.live and state.incarnations[state.live].told > 0)
    wrong = f"fenced driver {process.number} has written to {sink.name}" if fenced and not stands else state.wrong
    over = {(sink.name, *row[:2]) for row in rows} if sink.replaces else set()
    kept = [row for row in state.rows if row[:3] not in over]
    return state._replace(rows=tuple(sorted([*kept, *((sink.name, *row) for row in rows)])), wrong=wrong)
