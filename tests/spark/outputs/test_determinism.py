"""Code that is not deterministic: right at every kill with stable input, stopped by the content hash without.

What Spark's plan shows is staged without a declaration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable

from onlyonce.core.errors import InvariantBroken
from tests.support import shop_oracle
from tests.support.ended_runs import ended_at
from tests.support.platform import ROOT, Platform, multiset

pytestmark = [pytest.mark.spark, pytest.mark.fault]


BY_TASKS = ("postgres-unit-after-rows",)
"""Steps of the tests' points that Spark's tasks take, which are other processes."""


@pytest.fixture
def restless(new_platform: Callable[..., Platform]) -> Platform:
    """A platform with the pipelines whose functions are not deterministic, and some input."""
    platform = new_platform("tests/support/restless.py")
    for pipeline in ("stable", "restless"):
        platform.put(pipeline, "sales.jsonl", shop_oracle.sales(200, 1, duplicates=0)[0])
    return platform


def _committed(restless: Platform) -> dict[str, Counter[Any]]:
    """The rows of both sinks; outputs run one after the other, so a kill in the first leaves the second without a
    table."""
    made = restless.sql("SELECT to_regclass('results.restless') IS NOT NULL AS made").loc[0, "made"]
    stored = restless.sql("SELECT * FROM results.restless") if made else pd.DataFrame()
    return {"delta": multiset(restless.table("restless/picked")), "postgres": multiset(stored)}


@pytest.mark.parametrize(
    "points",
    [
        ["delta-after-write"],
        pytest.param(["staging-after-write", "delta-after-write", "postgres-unit-after-rows"], marks=pytest.mark.whole),
        pytest.param(["staging-before-write", "postgres-after-units"], marks=pytest.mark.slow),
    ],
    ids=["once", "after", "beside"],
)
def test_stable_input_is_written_once_at_every_kill(
    restless: Platform, monkeypatch: pytest.MonkeyPatch, spark: object, points: list[str]
) -> None:
    """The rows that the first attempt stored are the rows in the sinks, each once, whatever the function gives
    later."""
    for point in points:
        if point in BY_TASKS:
            restless.run_killed(point, "stable")
            assert restless.struck(point) >= 1
        else:
            assert ended_at(restless, monkeypatch, point, pipeline="stable")
    restless.run("stable")

    events = set(restless.events("stable").query("oo_kind == 'kept'")["id"])
    for rows in (restless.table("stable/picked"), restless.sql("SELECT * FROM results.stable")):
        assert 0 < len(rows) < 200
        assert rows["id"].is_unique
        assert set(rows["id"]) <= events
    commits = restless.sql("SELECT sink, sum(rows) AS rows FROM onlyonce.commits GROUP BY 1").set_index("sink")["rows"]
    assert commits["picked"] == len(restless.table("stable/picked"))
    assert multiset(restless.table("stable/picked"), "id", "chance")


def test_stable_input_of_an_output_made_from_another_is_stored(
    restless: Platform, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Its function runs on the rows of the other output, which are the same at each attempt; its own are not."""
    restless.put("chained", "sales.jsonl", shop_oracle.sales(50, 1, duplicates=0)[0])
    assert ended_at(restless, monkeypatch, "delta-after-write", 2, "--close", pipeline="chained")
    first = multiset(restless.table("chained/drawn"))

    restless.run("chained", "--close")

    assert first
    assert multiset(restless.table("chained/drawn")) == first
    assert len(restless.table("chained/drawn")) == len(restless.table("chained/per_shop"))


def test_a_backfill_of_an_output_made_from_another_is_stored(restless: Platform, spark: object) -> None:
    """The rows that the backfill has put in the place of the old ones are those that it stored before, under its own
    incarnation."""
    restless.put("chained", "sales.jsonl", shop_oracle.sales(50, 1, duplicates=0)[0])
    restless.run("chained", "--close")
    columns = ("shop", "chance")
    before = multiset(restless.table("chained/drawn"), *columns)

    restless.backfill("chained", "--from", "2025-01-01", "--to", "2027-01-01", "--output", "per_shop")

    [folder] = (restless.home / "data" / "chained" / "staged" / "per_shop").glob("*-drawn")
    stored = DeltaTable(str(folder)).to_pandas()
    incarnations = restless.sql("SELECT incarnation FROM onlyonce.backfills")["incarnation"]
    now = multiset(restless.table("chained/drawn"), *columns)
    assert now == multiset(stored[stored["oo_incarnation"].isin(incarnations)], *columns)
    assert not now & before
    assert now.total() == before.total() > 0


@pytest.mark.parametrize(
    ("point", "sink", "written"),
    [
        pytest.param("delta-unit-after-commit", "delta", 0, marks=pytest.mark.whole),
        ("postgres-unit-after-commit", "postgres", 1),
    ],
)
def test_without_it_a_replay_is_stopped_and_told_the_option(
    restless: Platform, monkeypatch: pytest.MonkeyPatch, spark: object, point: str, sink: str, written: int
) -> None:
    """A replay that gives other rows stops its output before any task writes, and the message names stable_input. Of a
    Python function nothing is known before.

    (The other output is innocent and has its turn.)"""
    assert ended_at(restless, monkeypatch, point, pipeline="restless")
    before = _committed(restless)[sink]

    with pytest.raises(InvariantBroken, match="stable_input"):
        restless.run("restless")

    assert (before.total() > 0) == bool(written)
    assert _committed(restless)[sink] == before


TOLD = ("--pipelines", str(ROOT / "tests/support/restless_told.py"))


def test_a_batch_that_began_staged_ends_staged(
    restless: Platform, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Also if stable input is declared no more. Only a unit of the rows is there, and a replay that computes other
    rows would be stopped."""
    assert ended_at(restless, monkeypatch, "delta-unit-after-commit", 1, *TOLD, pipeline="restless")
    stored = restless.sql("SELECT rows FROM onlyonce.commits WHERE sink = 'picked'")["rows"].sum()

    restless.run("restless")

    assert len(restless.table("restless/picked")) == stored > 0
    facts = restless.sql(
        "SELECT facts->'staged' AS staged FROM onlyonce_private.batches WHERE incarnation LIKE '%/picked/%'"
    )
    assert facts["staged"].tolist() == [["picked"]]


def test_a_batch_that_began_unstaged_ends_unstaged(
    restless: Platform, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Also if stable input is declared since: it is stopped by the hash of its rows, and stores none."""
    assert ended_at(restless, monkeypatch, "delta-unit-after-commit", pipeline="restless")

    with pytest.raises(InvariantBroken, match="stable_input"):
        restless.run("restless", *TOLD)

    assert not (restless.home / "data" / "restless" / "staged" / "picked").exists()


ALL = ("--from", "2025-01-01", "--to", "2027-01-01", "--output", "weighed")


@pytest.mark.parametrize(
    "staged", [(True, False, True), pytest.param((False, True, False), marks=pytest.mark.whole)], ids=str
)
def test_backfill_whose_staging_changes_at_each_attempt(
    restless: Platform, monkeypatch: pytest.MonkeyPatch, spark: object, staged: tuple[bool, bool, bool]
) -> None:
    """An attempt at a backfill stages as it is declared then. The rows are those of the last attempt, in both sinks."""
    sales = shop_oracle.sales(50, 1, duplicates=0)[0]
    restless.put("remade", "sales.jsonl", sales)
    restless.run("remade", "--close")
    columns = ("shop", "cents", "chance")
    seen = [multiset(restless.table("remade/weighed"), *columns)]
    for stable, point in zip(staged, ("delta-after-replace", "backfill-before-end"), strict=False):
        more = (*ALL, *(TOLD if stable else ()))
        assert ended_at(restless, monkeypatch, point, 1, *more, pipeline="remade", command="backfill")
        seen.append(multiset(restless.table("remade/weighed"), *columns))

    restless.backfill("remade", *ALL, *(TOLD if staged[2] else ()))

    rows = restless.table("remade/weighed")
    assert multiset(rows, *columns) == multiset(restless.sql("SELECT * FROM results.copied"), *columns)
    assert multiset(rows, "shop", "cents") == _minutes(sales, "1min")
    assert not any(multiset(rows, *columns) & before for before in seen)
    assert len({*map(frozenset, seen)}) == 3
    states = restless.sql("SELECT state, rows FROM onlyonce_private.backfills ORDER BY batch_id")
    assert states["state"].tolist() == ["replaced", "replaced", "committed"]
    assert states["rows"].iloc[-1] == len(rows)


def _minutes(sales: list[Any], size: str) -> Counter[Any]:
    """The cents of each shop in each window."""
    frame = pd.DataFrame([sale for sale in sales if not isinstance(sale, str)])
    windows = frame.assign(window=pd.to_datetime(frame["at"], utc=True, format="ISO8601").dt.floor(size))
    return multiset(windows.groupby(["window", "shop"], as_index=False)["cents"].sum(), "shop", "cents")


def test_windows_of_closed_windows_are_staged_by_their_own_function(
    restless: Platform, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """A run that is lost after it has stored the longer windows, and another: each has the number that was stored."""
    sales = shop_oracle.sales(100, 1, duplicates=0)[0]
    restless.put("rolled", "sales.jsonl", sales)
    assert ended_at(restless, monkeypatch, "staging-after-write", 1, "--close", pipeline="rolled")
    restless.run("rolled", "--close")

    rows = restless.table("rolled/fives")
    [folder] = (restless.home / "data" / "rolled" / "staged" / "fives").glob("*")
    columns = ("shop", "cents", "chance")
    assert multiset(rows, *columns) == multiset(DeltaTable(str(folder)).to_pandas(), *columns)
    assert multiset(rows, "shop", "cents") == _minutes(sales, "5min")


@pytest.mark.parametrize(
    ("pipeline", "output", "column"),
    [("results", "dear", "mark"), ("joined", "pairs", "number"), ("numbered", "drawn", "chance")],
)
def test_further_results_joins_and_processors_are_staged(
    restless: Platform, monkeypatch: pytest.MonkeyPatch, spark: object, pipeline: str, output: str, column: str
) -> None:
    """A run that is lost after the unit, and another: each row is written once, with the value that was stored."""
    files = shop_oracle.sales(50, 2, duplicates=0)
    for name, records in enumerate(files):
        restless.put(pipeline, f"{name}.jsonl", records)
    nth = 2 if pipeline == "results" else 1
    assert ended_at(restless, monkeypatch, "delta-unit-after-commit", nth, "--close", pipeline=pipeline)

    restless.run(pipeline, "--close")

    rows = restless.table(f"{pipeline}/{output}")
    [folder] = (restless.home / "data" / pipeline / "staged").glob("*/*")
    stored = DeltaTable(str(folder)).to_pandas()
    stored.columns = [name.removeprefix(f"{output}:") for name in stored.columns]
    sales = [sale for records in files for sale in records]
    assert rows["id"].is_unique
    assert set(rows["id"]) == {sale["id"] for sale in sales if pipeline != "results" or sale["cents"] > 100}
    if pipeline == "numbered":  # its state goes on where the last batch has left it
        of_shop = pd.Series({sale["id"]: sale["shop"] for sale in sales})
        numbers = rows.groupby(of_shop.loc[rows["id"]].to_numpy())["number"]
        assert all(sorted(own) == list(range(len(own))) for _, own in numbers)
    assert multiset(rows, "id", column) == multiset(stored.dropna(subset=[column]), "id", column)
