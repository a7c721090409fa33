"""A table beside the rows: the version that a batch saw is fixed by its row, whatever becomes of the table."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from onlyonce import Delta, Lookup
from onlyonce.core.errors import Refused
from onlyonce.lookups import delta_versions, postgres_versions, tables
from onlyonce.lookups.seen import Seen
from onlyonce.outputs import query
from tests.support.ended_runs import ended_at
from tests.support.looks_up import cities_path, copied_cities, write_cities, write_copied_cities
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
SHOPS = ["a", "b", "c"]
POINTS = ["output-after-begin", "output-consumed", "output-before-end", "output-after-end"]


def sale(number: int, second: int, shop: str) -> dict[str, Any]:
    """One record."""
    return {"id": f"s{number}", "shop": shop, "at": (START + timedelta(seconds=second)).isoformat(), "cents": number}


class Cities:
    """A Delta table of cities, all that it has been, and which of these a version is."""

    def __init__(self) -> None:
        self.history: list[dict[str, str]] = []

    def change(self, cities: dict[str, str]) -> None:
        """The table has these rows now."""
        self.history.append(cities)
        assert write_cities(cities) == len(self.history) - 1

    def of(self, seen: dict[str, Any]) -> int:
        """Where in the history a version is, by what the log says of it."""
        return int(seen["version"])


class CopiedCities(Cities):
    """A table in PostgreSQL.

    The platform's copy says what the version was; rows are joined by Spark, and compared with the history.
    """

    def change(self, cities: dict[str, str]) -> None:
        """See there."""
        self.history.append(cities)
        write_copied_cities(cities)

    def of(self, seen: dict[str, Any]) -> int:
        """See there."""
        copy = pq.read_table(str(postgres_versions.file(copied_cities(), seen))).to_pylist()
        return self.history.index({row["shop"]: row["city"] for row in copy})


def versions(platform: Platform, query: str, cities: Cities | None = None) -> dict[int, int]:
    """Which of all that the cities were each batch of an output saw, by the view."""
    found = platform.sql(
        f"SELECT batch, version, table_id FROM onlyonce.lookups WHERE query = '{query}' AND lookup = 'cities'"
    )
    of = (cities or Cities()).of
    return {int(row.batch): of({"version": row.version, "table": row.table_id}) for row in found.itertuples()}


@pytest.mark.parametrize(
    ("seed", "runs"), [(4, 2), *(pytest.param(seed, 3, marks=pytest.mark.slow) for seed in (2, 3))]
)
def test_each_row_is_joined_with_the_version_that_its_batch_began_with(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object, seed: int, runs: int
) -> None:
    """The table changes before each run, also between a kill and the run after it.

    A batch sees what was there when it first began: the rows of each output are those of a batch join with that
    version."""
    check_batches(new_platform("tests/support/looks_up.py"), monkeypatch, Cities(), seed, runs)


@pytest.mark.parametrize(
    ("seed", "runs"), [(4, 2), *(pytest.param(seed, 3, marks=pytest.mark.slow) for seed in (2, 3))]
)
def test_each_row_is_joined_with_the_copy_that_its_batch_began_with(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object, seed: int, runs: int
) -> None:
    """The same of a PostgreSQL table, which has only what it is now."""
    check_batches(new_platform("tests/support/looks_up_copies.py"), monkeypatch, CopiedCities(), seed, runs)


def check_batches(platform: Platform, monkeypatch: pytest.MonkeyPatch, cities: Cities, seed: int, runs: int) -> None:
    """Runs of a seed, with a table that changes, compared with batch joins."""
    random, history = Random(seed), cities.history
    seen: dict[str, set[int]] = {"each": set(), "per_city": set(), "per_shop": set()}
    number = 0

    def change() -> None:
        cities.change({shop: f"{random.choice('xyz')}{len(history)}" for shop in SHOPS[: random.randint(1, 3)]})

    points = iter(POINTS[seed:] + POINTS[:seed])
    for step in range(runs):
        change()
        came = [sale(number + n, 60 * step + random.randint(0, 40), random.choice(SHOPS)) for n in range(6)]
        number += len(came)
        platform.put("shop", f"{step}.jsonl", came)
        last = step == runs - 1
        close = ["--close"] if last else []
        if step in (0, 2):
            ended_at(platform, monkeypatch, next(points), random.randint(1, 3), *close)
            check_begun(platform, seen, cities)
            change()
        platform.run("shop", *close)
        check_begun(platform, seen, cities)
    check_rows(platform, cities)


def check_rows(platform: Platform, cities: Cities) -> None:
    """The rows of each output are those of a batch join with the version that each batch saw."""
    history = cities.history
    wanted: Counter[Any] = Counter()
    events = platform.events()
    kept = events[events["oo_kind"] == "kept"]
    version_of = read_by(platform, "each", cities)
    for row in kept.itertuples():
        wanted[row.id, history[version_of(row.oo_batch)].get(row.shop), row.cents] += 1
    assert multiset(platform.sql("SELECT id, city, cents FROM results.each")) == wanted

    assert multiset(platform.table("shop/per_city"), "city", "cents", "sales", "window_start") == per_city(
        kept, history, read_by(platform, "per_city", cities)
    )
    written = platform.sql("SELECT window_start, lookups->'cities' AS seen FROM onlyonce.panes WHERE output = 'named'")
    named = {row.window_start: history[cities.of(row.seen)] for row in written.itertuples()}
    counts = platform.table("shop/per_shop")
    assert multiset(platform.table("shop/named"), "window_start", "shop", "city", "sales") == Counter(
        (row.window_start, row.shop, named[row.window_start].get(row.shop), row.sales) for row in counts.itertuples()
    )
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty


def check_begun(platform: Platform, seen: dict[str, set[int]], cities: Cities) -> None:
    """Each batch that is new in the log since the last look has the version that the table had then."""
    for name, before in seen.items():
        found = versions(platform, name, cities)
        assert {found[batch] for batch in found.keys() - before} <= {len(cities.history) - 1}, (name, found)
        before.update(found)


def read_by(platform: Platform, query: str, cities: Cities) -> Callable[[int], int]:
    """Which version the rows of a receive batch met: that of the output's batch that has read them."""
    found = platform.sql(f"""
        SELECT r.batch_id AS batch, (SELECT o.lookups->'cities' FROM onlyonce_private.batches o
            WHERE o.incarnation = 'shop/{query}/1' AND (o.source_to->>'reservoirVersion')::bigint
                  - CASE WHEN (o.source_to->>'index')::bigint < 0 THEN 1 ELSE 0 END >= r.delta_version
            ORDER BY o.batch_id LIMIT 1) AS seen
        FROM onlyonce_private.batches r WHERE r.incarnation = 'shop/receive/1'""")
    by_batch = {int(row.batch): cities.of(row.seen) for row in found.itertuples()}
    return by_batch.__getitem__


def per_city(kept: pd.DataFrame, history: list[dict[str, str]], version_of: Callable[[int], int]) -> Counter[Any]:
    """The windows as a batch join gives them."""
    groups: dict[Any, list[int]] = {}
    for row in kept.itertuples():
        start = row.at.floor("1min")
        groups.setdefault((history[version_of(row.oo_batch)].get(row.shop), start), []).append(row.cents)
    return Counter((city, sum(cents), len(cents), start) for (city, start), cents in groups.items())


@pytest.mark.slow
def test_a_query_with_another_batch_to_do_is_started_again_where_the_table_has_a_newer_version(
    platform_of_cities: Platform, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Rows that were joined before, and wait in its state for their window, stay as they were joined."""
    platform = platform_of_cities
    write_cities({"a": "x", "b": "x"})
    platform.put("shop", "0.jsonl", [sale(1, 10, "a"), sale(2, 200, "b")])
    ended: list[str] = []

    def change(name: str) -> None:
        ended.extend([name] if name == "output-after-end" else [])
        if (
            name == "output-after-end" and len(ended) == 2
        ):  # the first of per_city: the next one has no rows, and closes a window
            write_cities({"a": "y", "b": "y"})

    monkeypatch.setattr(query, "passing", change)
    platform.run("shop")
    assert versions(platform, "per_city") == {0: 0, 1: 1}
    assert multiset(platform.table("shop/per_city"), "city", "sales") == {("x", 1): 1}


@pytest.fixture
def platform_of_cities(new_platform: Callable[..., Platform]) -> Platform:
    """A platform with the shop that looks up cities."""
    return new_platform("tests/support/looks_up.py")


@pytest.mark.slow
def test_a_backfill_sees_what_each_window_saw_or_the_newest(
    new_platform: Callable[..., Platform], spark: object
) -> None:
    """Windows that saw different versions are made again each with its own, late rows included; with the newest where
    that is asked for, and then that is what they saw.

    A table with a key twice, and a version that is gone, are refused with the way out."""
    platform = new_platform("tests/support/looks_up.py")
    hour = ["shop", "--from", "2026-01-01T00:00Z", "--to", "2026-01-01T01:00Z"]
    write_cities({"a": "x", "b": "x"})
    DeltaTable(cities_path()).delete()
    write_deltalake(cities_path(), pd.DataFrame({"shop": ["a", "a"], "city": ["x", "y"]}), mode="append")
    platform.put("shop", "0.jsonl", [sale(1, 10, "a"), sale(2, 70, "b")])
    with pytest.raises(Refused, match="2 rows have the keys shop=a"):
        platform.run("shop", "--close")
    assert platform.sql("SELECT * FROM onlyonce.lookups").empty

    write_cities({"a": "x", "b": "x"})
    platform.run("shop", "--close")
    write_cities({"a": "y"})
    platform.put("shop", "1.jsonl", [sale(3, 130, "a"), sale(4, 200, "b")])
    platform.run("shop", "--close")
    platform.put("shop", "2.jsonl", [sale(5, 20, "a"), sale(6, 140, "a")])  # late for both
    platform.run("shop")
    write_cities({"a": "z", "b": "z"})

    platform.backfill(*hour, "--lookups", "then")
    assert cities(platform) == {0: {"x": 2}, 1: {"x": 1}, 2: {"y": 2}, 3: {None: 1}}
    platform.backfill(*hour, "--lookups", "now")
    assert cities(platform) == {0: {"z": 2}, 1: {"z": 1}, 2: {"z": 2}, 3: {"z": 1}}
    newest = write_cities({})
    platform.backfill(*hour)
    assert cities(platform) == {0: {"z": 2}, 1: {"z": 1}, 2: {"z": 2}, 3: {"z": 1}}

    DeltaTable(cities_path()).vacuum(0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(Refused, match=f"version {newest - 1} of the table is gone") as gone:
        platform.backfill(*hour)
    assert "--lookups now" in gone.value.hint
    platform.backfill(*hour, "--lookups", "now")
    assert cities(platform) == {0: {None: 2}, 1: {None: 1}, 2: {None: 2}, 3: {None: 1}}
    asked = platform.sql("SELECT lookups FROM onlyonce.backfills WHERE output = 'per_city' ORDER BY begun_at")
    assert list(asked["lookups"]) == ["then", "now", "then", "now"]


def test_merging_sessions_that_saw_other_lookups_are_refused(
    new_platform: Callable[..., Platform], spark: object
) -> None:
    """Only the second session is in the interval. A late record merges it with the first one."""
    platform = new_platform("tests/support/looks_up.py")
    for step, city in enumerate("xy"):
        write_cities({"a": city})
        platform.put("visits", f"{step}.jsonl", [sale(step, 90 * step, "a")])
        platform.run("visits", "--close")
    platform.put("visits", "2.jsonl", [sale(2, 45, "a")])
    platform.run("visits")
    of_second = ["visits", "--from", "2026-01-01T00:01:30Z", "--to", "2026-01-01T00:02Z"]

    with pytest.raises(Refused, match="sessions saw different versions of its lookups"):
        platform.backfill(*of_second)

    assert sorted(platform.table("visits/sessions")["city"]) == ["x", "y"]
    platform.backfill(*of_second, "--lookups", "now")
    assert platform.table("visits/sessions")[["city", "sales"]].to_numpy().tolist() == [["y", 3]]


def test_a_backfill_sees_the_copy_of_then_or_todays(new_platform: Callable[..., Platform], spark: object) -> None:
    """A table in PostgreSQL has only today's rows. A copy that is gone is refused with the way out."""
    platform = new_platform("tests/support/looks_up_copies.py")
    hour = ["shop", "--output", "per_city", "--from", "2026-01-01T00:00Z", "--to", "2026-01-01T01:00Z"]
    for step, of_shop in enumerate(({"a": "x"}, {"a": "y"})):
        write_copied_cities(of_shop)
        platform.put("shop", f"{step}.jsonl", [sale(step, 10 + 120 * step, "a")])
        platform.run("shop", "--close")
    write_copied_cities({"a": "z"})

    def found() -> dict[int, str]:
        return {row.window_start.minute: row.city for row in platform.table("shop/per_city").itertuples()}

    platform.backfill(*hour, "--lookups", "then")
    assert found() == {0: "x", 2: "y"}
    postgres_versions.file(copied_cities(), saw(platform)).unlink()  # type: ignore[union-attr]
    with pytest.raises(Refused, match="version 1 of the table is gone: its copy") as gone:
        platform.backfill(*hour)
    assert "--lookups now" in gone.value.hint
    platform.backfill(*hour, "--lookups", "now")
    assert found() == {0: "z", 2: "z"}


def saw(platform: Platform) -> dict[str, Any]:
    """What the first batch of an output saw of the cities."""
    [row] = platform.sql(
        "SELECT version, table_id FROM onlyonce.lookups WHERE query = 'per_city' AND batch = 0"
    ).itertuples()
    return {"version": row.version, "table": row.table_id}


def cities(platform: Platform) -> dict[int, dict[str | None, int]]:
    """The sales of each city by the minute, as a reader has them; both outputs say the same."""
    found: list[dict[int, dict[str | None, int]]] = []
    for table in ("shop/per_city", "shop/named"):
        minutes: dict[int, dict[str | None, int]] = {}
        for row in platform.table(table).itertuples():
            city = None if pd.isna(row.city) else row.city
            of_minute = minutes.setdefault(row.window_start.minute, {})
            of_minute[city] = of_minute.get(city, 0) + row.sales
        found.append(minutes)
    assert found[0] == found[1]
    return found[0]


def test_a_version_is_read_however_long_ago_it_was_committed(spark: SparkSession, tmp_path: Path) -> None:
    """A table that had stood still for weeks has changed: the batch that saw it before is tried again.

    Delta by itself refuses that.
    """
    path = tmp_path / "cities"
    for city in ("Rome", "Oslo", "Bern"):
        write_deltalake(str(path), pa.table({"shop": ["a"], "city": [city]}), mode="overwrite")
    weeks_ago = (START - timedelta(days=40)).timestamp()
    for version in (0, 1):
        entry = path / "_delta_log" / f"{version:020}.json"
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = int(weeks_ago * 1000)
        entry.write_text("\n".join(map(json.dumps, lines)))
        os.utime(entry, (weeks_ago, weeks_ago))
    cities = Lookup(name="cities", table=Delta(path=str(path)), keys="shop")

    [row] = delta_versions.frame(spark, cities, {"version": 1, "table": ""}).collect()

    assert row.city == "Oslo"


def test_a_key_with_a_dot_in_its_name_is_looked_for_twice(spark: SparkSession) -> None:
    """Its name is no path to a field."""
    rows = spark.createDataFrame([("a", 1), ("a", 2), (None, 3), (None, 4)], "`shop.id` string, n int")
    lookup = Lookup(name="shops", table=Delta(path="/shops"), keys="shop.id")

    with pytest.raises(Refused, match=r"2 rows have the keys shop\.id=a in version 1"):
        tables.check_keys({"shops": lookup}, Seen({"shops": {"version": 1}}, {"shops": rows}))
    tables.check_keys({"shops": lookup}, Seen({"shops": {"version": 1}}, {"shops": rows.filter("n > 1")}))
