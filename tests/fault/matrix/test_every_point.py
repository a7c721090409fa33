"""SIGKILL at every point of the protocol that needs no JVM, and again during the recovery: kills do not show.

A run is the product's own driver, played without Spark (`play.py`) in a process that its fail-point kills; then the
same command runs to its end. What is there is compared with plain Python over the input files, as multisets.
`make test` plays a fixed sample; `make test-faults` plays each point at its first, second and last pass.
"""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.fault import ledger
from tests.fault.matrix.declared import KINDS
from tests.fault.matrix.world import Run, World

pytestmark = pytest.mark.timeout(3600)

PAIRS = 80
"""So many kills in a recovery are drawn for each scenario."""
CHAINS = 60
"""So many runs of the whole pipeline are killed up to five times."""


@dataclass
class Scenario:
    """What is killed: receive, or one kind of output over what was received before."""

    new: Callable[[], Run]
    passes: dict[str, int]

    def strikes(self) -> list[tuple[str, int]]:
        """(point, occurrence): the first, second and last pass of each."""
        return [
            (point, nth)
            for point, count in self.passes.items()
            for nth in sorted({1, 2, count})
            if nth <= count
        ]  # fmt: skip


def scenario(world: World, kind: str, *, workers: bool = False) -> Scenario:
    """A scenario by its name, with its passes counted in a run without faults."""

    def new() -> Run:
        return world.new(kind, workers=workers)

    return Scenario(new, new().passes())


def killed(run: Run, point: str, nth: int) -> None:
    """Run until the point strikes."""
    code = run.run(f"{point}:{nth}:kill-process")
    assert code == -signal.SIGKILL, f"{point}:{nth}: exit {code}\n{run.told()}"


SAMPLE = {
    "receive": [
        "receive-unit-after-commit",
        "table-before-commit",
        "receive-after-delta",
        "receive-after-end",
        "marker-after-delta",
    ],
    "appended": ["postgres-unit-after-rows"],
    "added": ["postgres-unit-after-commit", "output-after-end"],
    "filed": ["delta-unit-after-commit", "delta-after-write"],
    "staged": ["staging-after-write"],
}


def test_a_sample_of_kills_does_not_show(world: World) -> None:
    """Fixed, for each run of the tests: the points that lose or double most easily, each at its first pass."""

    def play(case: tuple[str, str]) -> None:
        kind, point = case
        run = world.new(kind)
        killed(run, point, 1)
        run.finish()
        run.held(f"sample: {kind}", point)

    assert world.each([(kind, point) for kind, points in SAMPLE.items() for point in points], play) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["receive", *KINDS])
def test_a_kill_at_any_point_does_not_show(world: World, kind: str) -> None:
    """The whole job is killed at the first, second and last pass of each point."""
    played = scenario(world, kind)

    def play(strike: tuple[str, int]) -> None:
        run = played.new()
        killed(run, *strike)
        run.finish()
        run.held(f"kill: {kind}", *strike)

    assert world.each(played.strikes(), play) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["receive", *KINDS])
def test_a_killed_worker_does_not_show(world: World, kind: str) -> None:
    """Only the task's process dies; it is tried again, as Spark does, and the run comes to its end by itself."""
    played = scenario(world, kind, workers=True)

    def play(strike: tuple[str, int]) -> None:
        point, nth = strike
        run = played.new()
        assert run.run(f"{point}:{nth}:kill-process") == 0, run.told()
        assert run.struck(point) > played.passes[point]
        run.held(f"worker: {kind}", *strike)

    strikes = [(point, nth) for point, nth in played.strikes() if "-unit-" in point and not point.startswith("delta")]
    assert kind == "filed" or world.each(strikes, play) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["receive", *KINDS])
def test_a_kill_during_the_recovery_from_a_kill_does_not_show(world: World, kind: str) -> None:
    """Pairs of points, drawn by a printed seed; the second strikes wherever the recovery still passes it."""
    seed = ledger.chosen_seed()
    print(f"seed {seed}")
    played = scenario(world, kind)
    every = list(itertools.product(played.strikes(), played.passes))

    def play(pair: tuple[tuple[str, int], str]) -> None:
        first, second = pair
        run = played.new()
        killed(run, *first)
        code = run.run(f"{second}:1:kill-process")
        assert code in (0, -signal.SIGKILL), run.told()
        run.finish()
        run.held(f"again: {kind}", first[0], f"{first[1]}, then {second}", seed=seed)

    assert world.each(random.Random(f"{seed} {kind}").sample(every, PAIRS), play) == PAIRS


@pytest.mark.slow
def test_chains_of_kills_over_the_whole_pipeline_do_not_show(world: World) -> None:
    """Receive and every kind of output, killed up to five times at points drawn by a printed seed."""
    seed = ledger.chosen_seed()
    print(f"seed {seed}")
    whole = world.receiving(*KINDS).passes()
    chance = random.Random(f"{seed} chains")

    def drawn() -> Iterator[str]:
        for point in chance.choices(sorted(whole), k=chance.randint(2, 5)):
            yield f"{point}:{chance.randint(1, whole[point])}:kill-process"

    def play(strikes: list[str]) -> None:
        run = world.receiving(*KINDS)
        for strike in strikes:
            assert run.run(strike) in (0, -signal.SIGKILL), run.told()
        run.finish()
        run.held("chains", strikes[0].split(":")[0], strikes, seed=seed)

    assert world.each([list(drawn()) for _ in range(CHAINS)], play) == CHAINS
