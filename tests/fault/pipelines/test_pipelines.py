"""Pipelines of each kind that people write, struck in each step: what is there is what a batch computes over the
distinct records."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.fault.pipelines.case import Case
from tests.fault.pipelines.chains import Chains, ChainsAnew
from tests.fault.pipelines.changes import Changes, ChangesInAvro, ChangesOfMySQL
from tests.fault.pipelines.erasing import Forgotten
from tests.fault.pipelines.joins import Joins
from tests.fault.pipelines.lookups import Copies, Lookups
from tests.fault.pipelines.panes import Panes
from tests.fault.pipelines.play import How, play, strikes
from tests.fault.pipelines.processors import Silences, SilencesAnew, SilencesAnewInDelta, SilencesInPostgres
from tests.fault.pipelines.results import Rejections, Results
from tests.fault.pipelines.sources import Sources, SourcesOneIdle, TableChanges
from tests.fault.pipelines.warehouses import InIceberg, InMySQL, InWriteStreams
from tests.support.jvm import INTERPRETED
from tests.support.platform import Platform
from tests.support.warm_drivers import WarmDrivers

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(3600)]

CASES: dict[str, type[Case]] = {
    "sources": Sources,
    "sources, one idle": SourcesOneIdle,
    "changes of a table": TableChanges,
    "joins": Joins,
    "chains": Chains,
    "chains anew": ChainsAnew,
    "changes": Changes,
    "changes of mysql": ChangesOfMySQL,
    "changes in avro": ChangesInAvro,
    "panes": Panes,
    "lookups": Lookups,
    "lookups of copies": Copies,
    "iceberg": InIceberg,
    "mysql": InMySQL,
    "write streams": InWriteStreams,
    "forgotten": Forgotten,
    "results": Results,
    "rejections": Rejections,
    "state": Silences,
    "state in postgres": SilencesInPostgres,
    "state anew": SilencesAnew,
    "state anew in delta": SilencesAnewInDelta,
}
KILLS: tuple[How, ...] = ("driver", "driver", "worker", "moment")
SEED = {"joins": 3, "chains anew": 37, "lookups": 4, "state anew in delta": 10}
"""Of the cases that seed 2 gives no late record, or no strike that is reached: they say so themselves."""


@pytest.fixture(scope="module")
def drivers() -> Iterator[Callable[[], WarmDrivers]]:
    """The row of drivers, which begins where the first is to be killed."""
    begun: list[WarmDrivers] = []

    def row() -> WarmDrivers:
        if not begun:
            begun.append(WarmDrivers(conf=INTERPRETED))
        return begun[0]

    yield row
    for one in begun:
        one.end()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_kills_do_not_show(
    name: str,
    new_platform: Callable[..., Platform],
    drivers: Callable[[], WarmDrivers],
    request: pytest.FixtureRequest,
    spark: object,
) -> None:
    """SIGKILL of drivers and workers, at steps of the protocol and between them, by a seed."""
    chance, kind = random.Random(f"{name} {SEED.get(name, 2)}"), CASES[name]
    play(kind(new_platform(kind.declared), chance, request), drivers, strikes(kind, chance, KILLS))
