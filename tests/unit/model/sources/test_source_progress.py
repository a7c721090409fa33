"""How far a pipeline of several sources is: as far as the least that is not idle, and never back."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from onlyonce.core.frontier import Frontier, Progress, SourceBatch, SourceProgress, after_batch

IDLE = {"web": timedelta(microseconds=100), "till": timedelta(microseconds=100), "slow": None}


@pytest.mark.parametrize(
    ("of", "least"),
    [
        ({"web": SourceProgress(500, 0), "till": SourceProgress(10, 0)}, 10),
        ({"web": SourceProgress(500, 0), "till": SourceProgress(10, 0, idle=True)}, 500),
        ({"web": SourceProgress(500, 0), "till": SourceProgress(None, 0)}, None),
        ({"web": SourceProgress(500, 0), "till": SourceProgress(None, 0, idle=True)}, 500),
        ({"web": SourceProgress(500, 0, idle=True), "till": SourceProgress(10, 0, idle=True)}, 500),
        ({"web": SourceProgress(None, 0, idle=True), "till": SourceProgress(None, 0, idle=True)}, None),
    ],
)
def test_a_pipeline_is_as_far_as_the_least_source_that_is_not_idle(
    of: dict[str, SourceProgress], least: int | None
) -> None:
    """One of which nothing is kept holds it too; if all are idle nothing holds the furthest."""
    assert Progress(of).least() == least


def test_a_source_is_idle_after_its_time_unless_it_waits_or_has_none() -> None:
    """By the ingestion time of its last batch; and what was declared since, or never sent, by the time since when it is
    waited for."""
    known = Progress({"web": SourceProgress(5, 0)}).declared(IDLE, 50)
    assert known.of["till"] == SourceProgress(None, 50)

    assert [name for name, one in known.fallen_idle(100, IDLE, ()).of.items() if one.idle] == ["web"]
    assert [name for name, one in known.fallen_idle(100, IDLE, {"web"}).of.items() if one.idle] == []
    assert [name for name, one in known.fallen_idle(10_000, IDLE, ()).of.items() if one.idle] == ["web", "till"]


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_wakes_its_source_and_no_history_moves_the_pipeline_back(seed: int) -> None:
    """Each task of a batch tells the max event time as far as it knows: the largest of what they tell is that of the batch."""
    random = Random(seed)
    known, progress = Frontier(), Progress({})
    for clock in range(0, 2000, 40):
        names = random.sample(sorted(IDLE), random.randint(1, 3))
        progress = progress.declared(names, clock)
        source_batch = SourceBatch(random.choice(names), clock, progress)
        largest = [random.choice([None, random.randint(0, 3000)]) for _ in range(3)]
        whole = max((one for one in largest if one is not None), default=None)

        told = [after_batch(known, source_batch, one).max_event_time for one in largest]
        after = after_batch(known, source_batch, whole)
        assert after.max_event_time == max((one for one in told if one is not None), default=None)
        assert known.max_event_time is None or (
            after.max_event_time is not None and after.max_event_time >= known.max_event_time
        )

        known, progress = after, source_batch.after(whole)
        assert not progress.of[source_batch.source].idle
        assert Progress.read(progress.told()) == progress
        progress = progress.fallen_idle(clock, IDLE, ())
        known = known.after_batch(progress.least())
