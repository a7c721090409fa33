"""Pipelines of each kind that people write, struck in each step: what is there is what a batch computes over the distinct records."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fault.lives.strikes import INTERPRETED
from tests.fault.pipelines.case import Case
from tests.fault.pipelines.panes import Panes
from tests.fault.pipelines.play import How, play, strikes
from tests.fault.pipelines.processors import Silences, SilencesAnew
from tests.fault.pipelines.results import Rejections, Results
from tests.support.platform import Platform
from tests.support.warm_drivers import WarmDrivers

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(3600)]

CASES: dict[str, type[Case]] = {
    "panes": Panes,
    "results": Results,
    "rejections": Rejections,
    "state": Silences,
    "state anew": SilencesAnew,
}
KILLS: tuple[How, ...] = ("driver", "driver", "worker", "moment")
SEEDS = (2,)


@pytest.fixture(scope="module", autouse=True)
def interpreted(spark: Any) -> Iterator[None]:
    """Plans of a few rows are not compiled."""
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    yield
    for name in INTERPRETED:
        spark.conf.unset(name)


@pytest.fixture(scope="module")
def drivers() -> Iterator[WarmDrivers]:
    """Those that are killed."""
    with WarmDrivers(conf=INTERPRETED) as waiting:
        yield waiting


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_kills_do_not_show(
    name: str, seed: int, new_platform: Callable[..., Platform], drivers: WarmDrivers, request: pytest.FixtureRequest, spark: object
) -> None:
    """SIGKILL of drivers and workers, at steps of the protocol and between them."""
    chance, kind = random.Random(f"{name} {seed}"), CASES[name]
    case = kind(new_platform(kind.declared), chance, request)
    play(case, drivers, strikes(kind, chance, KILLS))
