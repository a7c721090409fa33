"""What the steps share: the world, the rules, and what a process asks of the databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tests.model.rules import Rules
from tests.model.state import TABLE, THERE, Process, Sink, State, Unit, World, with_process

Steps = Iterator[tuple[str, State]]
"""What is done, and what is then."""


@dataclass(frozen=True)
class Setting:
    """A world under some rules."""

    world: World
    rules: Rules

    @cached_property
    def sinks(self) -> dict[str, Sink]:
        """The sinks by their names."""
        return {sink.name: sink for sink in self.world.sinks}

    @cached_property
    def is_there(self) -> bool:
        """Whether a sink is in the other database."""
        return any(sink.place == THERE for sink in self.world.sinks)

    def units(self, state: State, incarnation: int, batch: int, *, everywhere: bool) -> list[Unit] | None:
        """The units of a batch, in the platform's database or in all; None where one can't be asked."""
        there = [unit for unit in state.units if unit[:2] == (incarnation, batch)]
        here = [unit for unit in there if self.sinks[unit.sink].place != THERE]
        if not everywhere or not self.is_there:
            return here
        if state.away:
            return None if self.rules.away_is_refusal else here
        return there

    def has_reference(self, there: list[Unit]) -> bool:
        """Whether one of these units is of a table."""
        return any(self.sinks[unit.sink].place == TABLE for unit in there)

    def landed(self, state: State, incarnation: int, batch: int) -> bool:
        """Whether the table has the rows of a batch, and not only its transaction."""
        return any(done[:2] == (incarnation, batch) and done.rows is not None for done in state.table)

    def must_stay(self, state: State, there: list[Unit]) -> bool:
        """Whether one of these units has brought rows that a new incarnation would write beside, and not over."""
        written = (unit for unit in there if not self.sinks[unit.sink].replaces)
        return any(self.sinks[unit.sink].place != TABLE or self.landed(state, *unit[:2]) for unit in written)

    def waits(self, state: State, process: Process, wanted: Unit, sink: Sink) -> bool:
        """Whether another transaction must end first: of the same unit, or, where rows add up, of the same keys."""
        others = [p.open for p in state.processes if p.open and p.number != process.number and p.open.sink == sink.name]
        keys = {row[1] for row in wanted.rows}
        return any(unit[:4] == wanted[:4] or (sink.adds and keys & {row[1] for row in unit.rows}) for unit in others)

    def holds_epoch(self, state: State, process: Process, place: str) -> bool:
        return any(
            p.open
            and p.number != process.number
            and p.incarnation == process.incarnation
            and self.sinks[p.open.sink].place == place
            for p in state.processes
        )


def on(state: State, process: Process, told: str) -> tuple[str, State]:
    """The process goes on."""
    return told, with_process(state, process.number, process)


def ended(state: State, process: Process, told: str) -> tuple[str, State]:
    """The process ends here."""
    return told, with_process(state, process.number, None)
