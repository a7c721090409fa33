"""docs/specification/incarnation.md: finish, withdraw or refuse the batch that is begun; then close the incarnation and register the next
one."""

from __future__ import annotations

from tests.model.setting import Setting, Steps, ended, on
from tests.model.state import Batch, Incarnation, Process, State, Transaction, Unit, with_incarnation


def look(at: Setting, state: State, process: Process) -> Steps:
    """What the batch has left in its sinks, once no older driver can change it but in a table."""
    incarnation = state.incarnations[process.incarnation]
    number = len(incarnation.batches) - 1
    if process.epoch != incarnation.epoch:
        yield ended(state, process, "is told that it was superseded")
        return
    there = (
        at.units(state, process.incarnation, number, everywhere=at.rules.reset_asks_all) if incarnation.begun else []
    )
    if there is None:
        yield ended(state, process, "is refused, since the other database can't be asked")
    elif incarnation.begun is None or not there:
        yield on(state, process._replace(at="new incarnation"), "find no unit of a batch that is begun")
    elif at.must_stay(state, there):
        yield _finish(at, state, process, incarnation, incarnation.begun)
    elif at.rules.reference_may_be_withdrawn:
        yield _withdraw(at, state, process, there, number)
    else:
        yield ended(state, process, f"is refused, since batch {number} is half written")


def _finish(at: Setting, state: State, process: Process, incarnation: Incarnation, begun: Batch) -> tuple[str, State]:
    number = len(incarnation.batches) - 1
    if not at.rules.half_written_is_finished or begun.declaration != process.declared:
        return ended(state, process, f"is refused, since batch {number} is half written")
    state = with_incarnation(state, process.incarnation, incarnation._replace(told=process.epoch))
    process = process._replace(at="unit", batch=number, meant=begun, done=frozenset())
    return on(state, process, f"go on to write batch {number}, by what the log has of it")


def _withdraw(at: Setting, state: State, process: Process, there: list[Unit], number: int) -> tuple[str, State]:
    has_table = at.has_reference(there) and at.rules.withdrawn_transaction_is_taken
    return on(
        state,
        process._replace(at="take" if has_table else "new incarnation"),
        f"find that batch {number} can be withdrawn",
    )


def take(at: Setting, state: State, process: Process) -> Steps:
    """Take the Delta transaction of the batch, so that no driver lands it later."""
    number = len(state.incarnations[process.incarnation].batches) - 1
    landed = at.landed(state, process.incarnation, number)
    unit_rows = at.units(state, process.incarnation, number, everywhere=False) or []
    if at.must_stay(state, unit_rows) and at.rules.landed_is_told_from_taken:
        yield ended(state, process, f"finds that batch {number} has got to the table meanwhile; it is to be run again")
        return
    if not landed:
        state = state._replace(table=state.table | {Transaction(process.incarnation, number, None)})
    yield on(state, process._replace(at="new incarnation"), f"take the Delta transaction of batch {number}")


def new_incarnation(at: Setting, state: State, process: Process) -> Steps:
    """One transaction: what is begun goes, the incarnation is closed, the next one begins after what is committed."""
    incarnation = state.incarnations[process.incarnation]
    if process.epoch != incarnation.epoch or process.incarnation != state.live:
        yield ended(state, process, "is told that it was superseded")
        return
    if incarnation.begun:
        there = at.units(state, process.incarnation, len(incarnation.batches) - 1, everywhere=False)
        state = state._replace(units=state.units.difference(there or []))
        state = with_incarnation(state, process.incarnation, incarnation._replace(batches=incarnation.batches[:-1]))
    state = state._replace(incarnations=(*state.incarnations, Incarnation(start=incarnation.read_upto)))
    yield ended(
        state, process, f"close incarnation {process.incarnation}, register incarnation {process.incarnation + 1}"
    )
