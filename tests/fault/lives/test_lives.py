"""Whatever befalls an output, and wherever it is struck meanwhile, its rows are those of the batch over its distinct
input."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault import ledger
from tests.fault.lives.cases import ALL_POINTS, Case, product
from tests.fault.lives.known import hole
from tests.fault.lives.play import Life
from tests.fault.lives.strikes import Strikes
from tests.fault.parts import Parts
from tests.support.platform import Server

pytestmark = [pytest.mark.spark, pytest.mark.fault]

Live = Callable[[Case], int]
SEED = int(os.environ.get("ONLYONCE_LIVES_SEED", "1"))
SAMPLE = (
    "sliding-delta_upsert-recompute-run.delta-unit-after-claim.3-end.delta-after-write.1-938",
    "session-other_append-reset-run.postgres-unit-after-rows.3-end.postgres-unit-after-commit.1-702",
    "made-other_increment-planned-run.marker-after-begin.1-life.postgres-after-units.1-end.receive-after-end.2-213",
    "early-files-reset-run.files-unit-after-claim.2-end.receive-after-begin.1-449",
    "raw-postgres_upsert-changed-run.postgres-unit-after-rows.1-end.output-after-begin.1-327",
)
"""Drawn once, and written down: a hole that is mended must not draw others into `make test`."""
CASES = list(product(SEED))
ONE = os.environ.get("ONLYONCE_LIVES_CASE")
"""A case by its name, as a failure tells it, to be played alone."""
SAMPLED = [case for case in product(1) if str(case) in SAMPLE] if ONE is None else [c for c in CASES if str(c) == ONE]


@pytest.fixture(scope="module")
def strikes(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Strikes]:
    """The fail-points of the one session that serves all cases."""
    made = Strikes(tmp_path_factory.mktemp("strikes"), ALL_POINTS)
    with made.at_hand(spark):
        yield made


@pytest.fixture
def live(server: Server, strikes: Strikes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Live:
    """Live a case, hold it against the oracle, give how often it was struck."""

    def lived(case: Case) -> int:
        life = Life(case, server, tmp_path / str(case), strikes, monkeypatch)
        try:
            for wanted, found in life.play():
                assert wanted == found, f"{case}: lost {wanted - found}, doubled {found - wanted}"
        finally:
            strikes.disarm()
            life.leave()
        return life.struck

    return lived


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.whole] * (at > 1), id=str(case)) for at, case in enumerate(SAMPLED)]
)
def test_a_life_gives_the_batch(live: Live, case: Case) -> None:
    """A sample of a few kinds, sinks, lives and steps."""
    live(case)


@pytest.mark.slow
@pytest.mark.timeout(12 * 3600)
def test_each_life_gives_the_batch(live: Live) -> None:
    """The whole product, in parts: `make test-matrix` goes on after a break."""
    parts = Parts("lives")
    judged = {one["case"] for one in parts.played}
    # In an order by chance, so that each part is a sample of the whole.
    for case in [case for case in random.Random(SEED).sample(CASES, len(CASES)) if str(case) not in judged]:
        if parts.is_over():
            break
        known, why, struck = hole(case), None, 0
        try:
            struck = live(case)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:3000]
        parts.add({"case": str(case), "struck": struck, "hole": known, "why": why})
        print(f"lives: {len(parts.played)} of {len(CASES)}: {case} {why or 'held'}", flush=True)
    tell(parts)
    assert [one for one in parts.played if one["why"] and not one["hole"]] == []


def tell(parts: Parts) -> None:
    """The counts of all parts so far, for the results."""
    held = [one for one in parts.played if not one["why"]]
    ledger.fact(
        "lives_cases",
        {
            "of": len(CASES), "played": len(parts.played), "held": len(held),
            "strikes": sum(one["struck"] for one in parts.played),
            "known_holes": sum(bool(one["why"] and one["hole"]) for one in parts.played),
            "failed": sum(bool(one["why"] and not one["hole"]) for one in parts.played),
        },
    )  # fmt: skip
