"""SIGKILL of drivers at each step of an early pane of sessions: the next run writes the pane that no kill would change.

A pane replaces the rows of all open sessions. So a kill may leave the rows of the pane before or of the next one, and
nothing in between.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from onlyonce.operate import audit
from tests.fault import ledger
from tests.spark.outputs.test_open_sessions import Oracle, in_sink, sales
from tests.support.early_sessions import EARLY
from tests.support.jvm import INTERPRETED
from tests.support.platform import Platform
from tests.support.warm_drivers import WarmDrivers

pytestmark = [pytest.mark.spark, pytest.mark.fault]

SIZE = 10
"""The records of a file."""
KILLS = {
    "written": [("postgres-unit-before-commit", 1), ("delta-after-replace", 1)],
    "in_postgres": [("output-after-begin", 1), ("postgres-unit-after-delete", 1), ("postgres-unit-after-commit", 1), ("output-before-end", 1)],
    "in_delta": [("output-after-begin", 2), ("delta-unit-after-commit", 1), ("delta-before-replace", 1), ("output-before-end", 2)],
    "in_files": [("output-after-begin", 3), ("files-unit-before-commit", 1), ("files-unit-after-commit", 1), ("output-before-end", 3)],
}  # fmt: skip
"""By chain: at which pass of which fail-point a driver is killed. The outputs pass those of each batch in order."""


@pytest.fixture(scope="module")
def drivers() -> Iterator[WarmDrivers]:
    """Drivers that wait with Spark up."""
    with WarmDrivers(conf=INTERPRETED) as waiting:
        yield waiting


@pytest.mark.parametrize(
    "chain", [pytest.param(name, marks=() if name == "written" else pytest.mark.whole) for name in KILLS]
)
def test_killed_pane_of_sessions_does_not_show(
    new_platform: Callable[..., Platform], drivers: WarmDrivers, spark: object, chain: str
) -> None:
    """After a kill each sink has the pane before or the next one; after the next run it has that of all records.

    More records arrive between a kill and the next run, and some of the earlier ones again.
    """
    platform, chance, oracle = new_platform("tests/support/early_sessions.py"), random.Random(chain), Oracle()
    records = sales(chance, SIZE * (2 * len(KILLS[chain]) + 1))
    history: list[Counter[Any]] = []

    def give() -> None:
        first = SIZE * len(history)
        new, again = records[first : first + SIZE], chance.sample(records[:first], min(first, 3))
        platform.put("shop", f"{first:04}.jsonl", [*new, *again])
        oracle.batch(new)
        history.append(oracle.sessions())

    give()
    platform.run("shop")
    for point, nth in KILLS[chain]:
        give()
        code, output = drivers.run(platform, point, nth, "shop")
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
        assert all(there in history[-2:] for there in _in_sinks(platform)), point
        give()
        platform.run("shop")
        pairs = [(history[-1], there) for there in _in_sinks(platform)]
        assert ledger.compared("spark: panes of sessions", point, nth, pairs) == (0, 0), point
    platform.run("shop", "--close")

    assert _in_sinks(platform) == [history[-1]] * len(EARLY.outputs)
    keys = [{(start, shop) for start, _, shop, *_ in sessions} for sessions in history]
    assert any(before - after for before, after in pairwise(keys)), "no session has changed"
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert audit.main(["--data"]).warnings == []


def _in_sinks(platform: Platform) -> list[Counter[Any]]:
    return [in_sink(platform, output) for output in EARLY.outputs]
