"""Every state that can be reached, breadth first, so that what is found is told by a shortest trace."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tests.model.protocol import KINDS, steps
from tests.model.rules import Rules
from tests.model.setting import Setting, Steps
from tests.model.state import KEYS, THERE, Left, Process, State, World, first, roll_back

COMMANDS = 6
"""How many commands a person gives at most until a batch has ended."""
STEPS = 100


@dataclass(frozen=True)
class Found:
    """What is wrong, the steps that lead there, and how many states were looked at."""

    wrong: str
    trace: tuple[str, ...]
    states: int

    def __str__(self) -> str:
        return "\n".join([*(f"{at}. {told}" for at, told in enumerate(self.trace, 1)), f"=> {self.wrong or 'nothing'}"])


def explore(world: World, rules: Rules, *, dead_ends: bool = True) -> Found:
    """The first state, by the number of steps, that breaks an invariant or is a dead end; none if there is none."""
    setting = Setting(world, rules)
    ways_out = WaysOut(setting)
    start = first(world)
    came: dict[State, tuple[str, State] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        wrong = broken(state, world) or (ways_out.missing(state) if dead_ends else "")
        if wrong:
            return Found(wrong, _trace(state, came), len(came))
        for told, after in [*goes_on(state, setting), *happens(state, setting)]:
            if after not in came:
                came[after] = told, state
                waiting.append(after)
    return Found("", (), len(came))


def goes_on(state: State, at: Setting) -> Steps:
    """Each process may take its next step, also one that a newer one has superseded."""
    for process in state.processes:
        yield from steps(at, state, process)


def happens(state: State, at: Setting) -> Steps:
    """What people, machines and the source do, each as often as the world allows."""
    left = state.left
    number = at.world.runs + at.world.new_incarnations - left.runs - left.new_incarnations + 1
    if len(state.processes) < at.world.at_once:
        if left.runs:
            yield f"run: driver {number}", _begin(state, "run", number)._replace(left=left._replace(runs=left.runs - 1))
        if left.new_incarnations:
            after = _begin(state, "new", number)
            yield f"reset ({number})", after._replace(left=left._replace(new_incarnations=left.new_incarnations - 1))
    if left.kills:
        for process in state.processes:
            others = tuple(other for other in state.processes if other is not process)
            after = state._replace(processes=others, left=left._replace(kills=left.kills - 1))
            yield f"{KINDS[process.kind]} {process.number} is killed before its step: {process.at}", after
    incarnation = state.incarnations[state.live]
    if left.lost_checkpoints and incarnation.batches and not incarnation.checkpoint_lost:
        after = _declare_lost(state)
        yield "the checkpoint is lost", after._replace(left=left._replace(lost_checkpoints=left.lost_checkpoints - 1))
    if left.changes:
        after = state._replace(declared=1 - state.declared, left=left._replace(changes=left.changes - 1))
        yield f"declaration {after.declared} is deployed", after
    if state.arrived < at.world.versions:
        yield "more input arrives", state._replace(arrived=state.arrived + 1)
    if state.away:
        yield "the other database is back", state._replace(away=False)
    elif left.outages:
        after = roll_back(state, THERE, at.sinks)
        yield "the other database goes away", after._replace(away=True, left=left._replace(outages=left.outages - 1))


def broken(state: State, world: World) -> str:
    """Which invariant does not hold: each row once in each sink, of the declaration of its batch; none lost; no effect
    of a fenced driver."""
    if state.wrong:
        return state.wrong
    found: dict[tuple[str, int, int], int] = {}
    for sink, version, key, declaration in state.rows:
        if (sink, version, key) in found:
            return f"row {'ab'[key]} of version {version} is in {sink} twice"
        found[sink, version, key] = declaration
    ended = {
        v: b
        for incarnation in state.incarnations
        for b in incarnation.batches
        if b.committed
        for v in range(b.first, b.upto)
    }
    for version in range(state.incarnations[state.live].read_upto):
        for sink, key in ((sink.name, key) for sink in world.sinks for key in KEYS):
            if version not in ended or (sink, version, key) not in found:
                return f"row {'ab'[key]} of version {version} is lost to {sink}"
            if found[sink, version, key] != ended[version].declaration:
                return f"row {'ab'[key]} of version {version} is in {sink} by another declaration than its batch's"
    return ""


class WaysOut:
    """Whether a person gets on from a state by what a person has: run again, `onlyonce reset`, deploy either declaration.

    All processes stand still meanwhile, with what they have open: nobody has to find and end them.
    """

    def __init__(self, at: Setting) -> None:
        self._at = at
        self._known: dict[State, bool] = {}

    def missing(self, state: State) -> str:
        """What is wrong, if no commands end all batches."""
        return "" if self._ends(_bare(state)) else "no run and no `onlyonce reset` ends the batch: a dead end"

    def _ends(self, start: State) -> bool:
        if start in self._known:
            return self._known[start]
        came: dict[State, State | None] = {start: None}
        stage = [start]
        for _ in range(COMMANDS):
            nexts = []
            for state in stage:
                if self._known.get(state) or _has_ended(state):
                    self._remember(state, came)
                    return True
                for after in self._commands(state):
                    if after not in came:
                        came[after] = state
                        nexts.append(after)
            stage = nexts
        self._known[start] = False
        return False

    def _remember(self, state: State | None, came: dict[State, State | None]) -> None:
        while state is not None:
            self._known[state] = True
            state = came[state]

    def _commands(self, state: State) -> Iterator[State]:
        for kind in ("run", "new"):
            yield self._played(state, kind)
        yield state._replace(declared=1 - state.declared)

    def _played(self, state: State, kind: str) -> State:
        """A command from its start to its end, or until it waits for ever; then it is ended."""
        after = _begin(state, kind, 0)
        for _ in range(STEPS):
            mine = [process for process in after.processes if process.number == 0]
            step = next(steps(self._at, after, mine[0]), None) if mine else None
            if step is None:
                break
            after = step[1]
        return _bare(after._replace(processes=tuple(p for p in after.processes if p.number)))


def _has_ended(state: State) -> bool:
    incarnation = state.incarnations[state.live]
    return incarnation.begun is None and incarnation.read_upto == state.arrived


def _bare(state: State) -> State:
    """Without what does not matter to a person: how often things may still happen, the numbers of epochs, processes
    that hold nothing.

    What is wrong with the rows is another invariant's."""
    holding = tuple(p._replace(at="", epoch=0, done=frozenset()) for p in state.processes if p.open)
    incarnations = tuple(incarnation._replace(epoch=0, epoch_there=0, told=0) for incarnation in state.incarnations)
    return state._replace(
        left=Left(0, 0, 0, 0, 0, 0), incarnations=incarnations, processes=holding, away=False, rows=(), wrong=""
    )


def _begin(state: State, kind: str, number: int) -> State:
    return state._replace(processes=(*state.processes, Process(number, kind, "start", state.live, state.declared)))


def _declare_lost(state: State) -> State:
    incarnation = state.incarnations[state.live]._replace(checkpoint_lost=True)
    return state._replace(incarnations=(*state.incarnations[:-1], incarnation))


def _trace(state: State, came: dict[State, tuple[str, State] | None]) -> tuple[str, ...]:
    told = []
    step = came[state]
    while step is not None:
        told.append(step[0])
        step = came[step[1]]
    return tuple(reversed(told))
