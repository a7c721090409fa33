"""A table beside the rows: the version that a batch saw is fixed by its row, whatever becomes of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pandas as pd
import pytest

from onlyonce.failpoints import FailPoint
from onlyonce.outputs import outputs
from tests.support.looks_up import write_cities
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
SHOPS = ["a", "b", "c"]
POINTS = ["output-after-begin", "output-consumed", "output-before-end", "output-after-end"]


def sale(number: int, second: int, shop: str) -> dict[str, Any]:
    """One record."""
    return {"id": f"s{number}", "shop": shop, "at": (START + timedelta(seconds=second)).isoformat(), "cents": number}


def versions(platform: Platform, query: str) -> dict[int, int]:
    """The version of the cities that each batch of an output saw, by the view."""
    found = platform.sql(f"SELECT batch, version FROM onlyonce.lookups WHERE query = '{query}' AND lookup = 'cities'")
    return {int(row.batch): int(row.version) for row in found.itertuples()}


def killed(platform: Platform, monkeypatch: pytest.MonkeyPatch, point: str, nth: int, *arguments: str) -> bool:
    """Run until that pass of a fail-point; gives whether it came."""
    passed: list[str] = []

    def passing(name: str) -> None:
        passed.append(name)
        if name == point and passed.count(name) == nth:
            raise FailPoint(name)

    with monkeypatch.context() as armed:
        armed.setattr(outputs, "passing", passing)
        try:
            platform.run("shop", *arguments)
        except FailPoint:
            return True
    return False


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_each_row_is_joined_with_the_version_that_its_batch_began_with(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object, seed: int
) -> None:
    """The table changes before each run, also between a kill and the run after it. A batch sees what was there when it first began: the rows of each output are
    those of a batch join with that version."""
    random, platform = Random(seed), new_platform("tests/support/looks_up.py")
    history: list[dict[str, str]] = []
    wanted: Counter[Any] = Counter()
    named: dict[str, dict[str, str]] = {}
    seen: dict[str, set[int]] = {"each": set(), "per_city": set(), "per_shop": set()}
    number = 0

    def change() -> None:
        history.append({shop: f"{random.choice('xyz')}{len(history)}" for shop in SHOPS[: random.randint(1, 3)]})
        assert write_cities(history[-1]) == len(history) - 1

    for step in range(4):
        change()
        came = [sale(number + n, 60 * step + random.randint(0, 40), random.choice(SHOPS)) for n in range(6)]
        number += len(came)
        platform.put("shop", f"{step}.jsonl", came)
        last = step == 3
        close = ["--close"] if last else []
        if step % 2 == 0 or last:
            killed(platform, monkeypatch, random.choice(POINTS), random.randint(1, 4), *close)
            check_begun(platform, seen, len(history) - 1)
            change()
        platform.run("shop", *close)
        check_begun(platform, seen, len(history) - 1)

    events = platform.events()
    kept = events[events["oo_kind"] == "kept"]
    version_of = read_by(platform, "each")
    for row in kept.itertuples():
        cities = history[version_of(row.oo_batch)]
        wanted[row.id, cities.get(row.shop), row.cents] += 1
    assert multiset(platform.sql("SELECT id, city, cents FROM results.each")) == wanted

    assert multiset(platform.table("shop/per_city"), "city", "cents", "sales", "window_start") == per_city(
        kept, history, read_by(platform, "per_city")
    )
    written = platform.sql(
        "SELECT window_start, lookups->'cities'->>'version' AS version FROM onlyonce.panes WHERE output = 'named'"
    )
    named = {row.window_start: history[int(row.version)] for row in written.itertuples()}
    counts = platform.table("shop/per_shop")
    assert multiset(platform.table("shop/named"), "window_start", "shop", "city", "sales") == Counter(
        (row.window_start, row.shop, named[row.window_start].get(row.shop), row.sales) for row in counts.itertuples()
    )
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty


def check_begun(platform: Platform, seen: dict[str, set[int]], newest: int) -> None:
    """Each batch that is new in the log since the last look has the version that the table had then."""
    for query, before in seen.items():
        found = versions(platform, query)
        assert {found[batch] for batch in found.keys() - before} <= {newest}, (query, found)
        before.update(found)


def read_by(platform: Platform, query: str) -> Callable[[int], int]:
    """Which version the rows of a receive batch met: that of the output's batch that has read them."""
    found = platform.sql(f"""
        SELECT r.batch_id AS batch, (SELECT (o.lookups->'cities'->>'version')::int FROM onlyonce_private.batches o
            WHERE o.lineage = 'shop/{query}/1' AND (o.source_to->>'reservoirVersion')::bigint
                  - CASE WHEN (o.source_to->>'index')::bigint < 0 THEN 1 ELSE 0 END >= r.delta_version
            ORDER BY o.batch_id LIMIT 1) AS version
        FROM onlyonce_private.batches r WHERE r.lineage = 'shop/receive/1'""")
    by_batch = {int(row.batch): int(row.version) for row in found.itertuples()}
    return by_batch.__getitem__


def per_city(kept: pd.DataFrame, history: list[dict[str, str]], version_of: Callable[[int], int]) -> Counter[Any]:
    """The windows as a batch join gives them."""
    groups: dict[Any, list[int]] = {}
    for row in kept.itertuples():
        start = row.at.floor("1min")
        groups.setdefault((history[version_of(row.oo_batch)].get(row.shop), start), []).append(row.cents)
    return Counter((city, sum(cents), len(cents), start) for (city, start), cents in groups.items())
