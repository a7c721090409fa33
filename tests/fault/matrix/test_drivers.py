"""Two drivers of one incarnation: a zombie that wakes after the new one has finished, and two that start at once."""

from __future__ import annotations

import signal

import pytest

from tests.fault.matrix.declared import KINDS
from tests.fault.matrix.world import World

pytestmark = pytest.mark.timeout(3600)

SUPERSEDED = 69
TIMES = 20
"""So often two drivers start at once, for each scenario."""

# The points after which a driver still has an effect to try.
STOPS = {
    "receive": [
        "receive-registered", "receive-before-begin", "receive-after-begin", "receive-unit-before-claim",
        "receive-unit-after-claim", "receive-unit-before-commit", "receive-unit-after-commit", "receive-after-delta",
        "receive-before-end", "receive-after-end", "marker-after-begin", "marker-after-delta",
    ],
    "postgres": [
        "output-before-begin", "output-after-begin", "output-consumed", "postgres-before-units",
        "postgres-unit-before-claim", "postgres-unit-after-claim", "postgres-unit-after-rows",
        "postgres-unit-before-commit", "postgres-unit-after-commit", "postgres-after-units", "output-before-end",
        "output-after-end",
    ],
    "delta": [
        "output-after-begin", "delta-unit-before-claim", "delta-unit-after-claim", "delta-unit-after-commit",
        "delta-before-write", "delta-after-write", "output-before-end", "output-after-end",
    ],
    "staging": ["staging-before-write", "staging-after-write"],
}  # fmt: skip
SCENARIOS = {
    "receive": ["receive"],
    "postgres": ["appended", "upserted", "added"],
    "delta": ["filed"],
    "staging": ["staged"],
}


def woken_zombie(world: World, kind: str, point: str) -> None:
    """Stop a driver at a point, let the next one finish, wake it: it is told, and nothing has changed.

    Before its first batch it finds that all is done, and ends well."""
    run = world.new(kind)
    zombie = run.start_stopped(point)
    run.finish()
    zombie.send_signal(signal.SIGCONT)
    code = run.end_of(zombie)
    assert code == (0 if point == "receive-registered" else SUPERSEDED), f"{point}: exit {code}\n{run.told()}"
    run.held(f"zombie: {kind}", point)


def test_a_zombie_that_wakes_at_an_end_is_fenced(world: World) -> None:
    """A fixed sample: before the end of a batch and inside a unit whose epoch it has checked."""
    cases = [
        ("receive", "receive-before-end"),
        ("added", "postgres-unit-before-commit"),
        ("filed", "delta-before-write"),
    ]
    assert world.each(cases, lambda case: woken_zombie(world, *case)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("family", STOPS)
def test_a_zombie_that_wakes_anywhere_is_fenced(world: World, family: str) -> None:
    """At every point after which it would still have an effect."""
    cases = [(kind, point) for kind in SCENARIOS[family] for point in STOPS[family]]
    assert world.each(cases, lambda case: woken_zombie(world, *case)) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["receive", *KINDS])
def test_two_drivers_at_once_make_one_result(world: World, kind: str) -> None:
    """Started at the same instant, many times: each ends well or is told, and a third run has nothing to mend."""

    def play(number: int) -> None:
        run = world.new(kind)
        drivers = [run.start(), run.start()]
        codes = {world.zygote.wait(pid) for pid in drivers}
        assert codes <= {0, SUPERSEDED, 75}, f"exit {codes}\n{run.told()}"
        run.finish()
        run.held(f"two drivers: {kind}", "at once", number)

    assert world.each(range(TIMES), play) == TIMES
