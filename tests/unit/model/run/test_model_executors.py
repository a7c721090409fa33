"""When a run on a cluster has lost its executors or its master for good."""

from __future__ import annotations

import pytest

from onlyonce.core.errors import Retryable
from onlyonce.core.executors import ClusterState, Watched, lost

WORKS = ClusterState(jobs=1, executors=2, registered=True)
WAITS = ClusterState(jobs=1, executors=0, registered=True)
UNKNOWN = ClusterState(jobs=1, executors=0, registered=False)
RESTS = ClusterState(jobs=0, executors=0, registered=True)


def given_up(*looks: ClusterState, patience: float = 10.0, every: float = 5.0) -> bool:
    """Return whether a run is given up after some looks, each a while after the one before."""
    seen = Watched()
    for number, look in enumerate(looks):
        seen = seen.after(look, number * every, patience)
    return seen.given_up


@pytest.mark.parametrize(
    "looks, expected",
    [
        ((WORKS, WAITS, WAITS, WAITS), True),
        ((WORKS, WAITS, WAITS), False),
        ((UNKNOWN, UNKNOWN, UNKNOWN), True),
        ((WAITS,) * 100, False),
        ((WORKS, WAITS, WORKS, WAITS, WAITS), False),
        ((WORKS, WAITS, RESTS, WAITS, WAITS), False),
        ((WORKS, *[RESTS] * 100, WAITS, WAITS), False),
        ((WORKS, WAITS, WAITS, WAITS, RESTS, WAITS), True),
        ((WORKS, WAITS, WAITS, WAITS, WORKS, WAITS), False),
    ],
    ids=[
        "lost for as long as the patience", "lost for less", "a master that never knew it", "in the queue", "replaced in time",
        "no job in between", "idle without executors", "the next job ends at once", "back again",
    ],
)  # fmt: skip
def test_a_run_is_given_up(looks: tuple[ClusterState, ...], expected: bool) -> None:
    assert given_up(*looks) == expected


@pytest.mark.parametrize("state, words", [(WAITS, "lost all its executors"), (UNKNOWN, "Spark's master")], ids=str)
def test_the_error_is_retryable_and_says_which_part_is_lost(state: ClusterState, words: str) -> None:
    error = lost(state, 300.0)

    assert (type(error), error.exit_code) == (Retryable, 75)
    assert words in error.what
    assert "nothing is lost or doubled" in error.data
    assert "run the same command again" in error.hint
