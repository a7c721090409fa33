"""What is in the databases, the table, the checkpoints and the drivers at one moment: hashable, and all of it.

One output with some sinks. Its input are versions of `events`, each with a row for each key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

PLATFORM, THERE, TABLE = "the platform's database", "the other database", "the table"
KEYS = (0, 1)

Rows = tuple[tuple[int, int, int], ...]
"""Rows as (version of `events`, key, declaration that made it)."""


@dataclass(frozen=True)
class Sink:
    """Where an output's rows go. `adds`: each row adds to the one of its key, so two transactions wait for one another.
    `replaces`: a row takes the place of the one with the same version and key."""

    name: str
    place: str
    adds: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class World:
    """What is declared, and how much may go wrong. `at_once`: how many processes there are at a time, each of
    which may stand still and go on at any time. `partitions` are those of either declaration. Rows that `unfit` names
    by sink and declaration can't be written: a CHECK constraint, keys that are there twice."""

    sinks: tuple[Sink, ...]
    partitions: tuple[int, int] = (2, 1)
    versions: int = 1
    runs: int = 2
    new_incarnations: int = 1
    kills: int = 1
    lost_checkpoints: int = 1
    changes: int = 1
    outages: int = 0
    at_once: int = 2
    unfit: tuple[str, int] | None = None

    def parts(self, sink: Sink, declaration: int) -> int:
        """How many units a batch has in a sink."""
        return 1 if sink.place == TABLE else self.partitions[declaration]


class Batch(NamedTuple):
    """A batch's row in the log: it reads the versions from `first` up to `upto`, without that one."""

    first: int
    upto: int
    declaration: int
    committed: bool = False


class Incarnation(NamedTuple):
    """An incarnation, with its epoch in either database. `told` is the highest epoch that was told to begin a batch."""

    start: int = 0
    epoch: int = 0
    epoch_there: int = 0
    batches: tuple[Batch, ...] = ()
    checkpoint_commits: int = 0
    checkpoint_lost: bool = False
    told: int = 0

    @property
    def begun(self) -> Batch | None:
        """The batch that began and did not end."""
        return self.batches[-1] if self.batches and not self.batches[-1].committed else None

    @property
    def read_upto(self) -> int:
        """Where the committed batches have come to."""
        return max([self.start, *(batch.upto for batch in self.batches if batch.committed)])


class Unit(NamedTuple):
    """A unit that is committed, in the database of its sink; a table's is a reference unit in the platform's."""

    incarnation: int
    batch: int
    sink: str
    partition: int
    rows: Rows


class Transaction(NamedTuple):
    """A transaction that the Delta table has; rows are None where `onlyonce reset` has taken it."""

    incarnation: int
    batch: int
    rows: Rows | None


class Process(NamedTuple):
    """A driver, or `onlyonce reset`: what it knows, and its next step.

    `declared` is the declaration that it was started with, `meant` its batch as it was told at the begin, `open` the
    unit whose transaction it has open."""

    number: int
    kind: str
    at: str
    incarnation: int
    declared: int = 0
    epoch: int = 0
    batch: int = 0
    meant: Batch = Batch(0, 0, 0)
    sink: int = 0
    done: frozenset[int] = frozenset()
    open: Unit | None = None


class Left(NamedTuple):
    """How often each thing may still happen."""

    runs: int
    new_incarnations: int
    kills: int
    lost_checkpoints: int
    changes: int
    outages: int


class State(NamedTuple):
    """All of it. `rows` are what the sinks hold, as (sink, *row), sorted. `wrong` is what a fenced driver has left."""

    left: Left
    incarnations: tuple[Incarnation, ...] = (Incarnation(),)
    units: frozenset[Unit] = frozenset()
    table: frozenset[Transaction] = frozenset()
    rows: tuple[tuple[str, int, int, int], ...] = ()
    processes: tuple[Process, ...] = ()
    arrived: int = 1
    declared: int = 0
    away: bool = False
    wrong: str = ""

    @property
    def live(self) -> int:
        """The number of the incarnation that is not closed."""
        return len(self.incarnations) - 1


def first(world: World) -> State:
    """Before anything has run."""
    return State(
        Left(world.runs, world.new_incarnations, world.kills, world.lost_checkpoints, world.changes, world.outages)
    )


def unit_of(world: World, process: Process, sink: Sink, partition: int) -> Unit:
    """What a unit of a process's batch must hold."""
    meant = process.meant
    parts = world.parts(sink, meant.declaration)
    rows = tuple(
        (version, key, meant.declaration)
        for version in range(meant.first, meant.upto)
        for key in KEYS
        if key % parts == partition
    )
    return Unit(process.incarnation, process.batch, sink.name, partition, rows)


def with_incarnation(state: State, number: int, incarnation: Incarnation) -> State:
    """The state with one incarnation in the place of what it was."""
    return state._replace(incarnations=(*state.incarnations[:number], incarnation, *state.incarnations[number + 1 :]))


def with_process(state: State, number: int, new: Process | None) -> State:
    """The state with a process a step further, or ended."""
    there = (new if process.number == number else process for process in state.processes)
    return state._replace(processes=tuple(process for process in there if process is not None))


def roll_back(
    state: State, place: str, sinks: dict[str, Sink], incarnation: int | None = None, below: int = 0
) -> State:
    """The open transactions in a database end without effect: all of them, or those of an incarnation's older epochs. A task
    whose transaction was cut begins it again."""

    def cut(process: Process) -> Process:
        if process.open is None or sinks[process.open.sink].place != place:
            return process
        return (
            process._replace(open=None)
            if incarnation is None or (process.incarnation == incarnation and process.epoch < below)
            else process
        )

    return state._replace(processes=tuple(map(cut, state.processes)))
