"""A pipeline whose sinks are Iceberg tables, killed at random steps and cut at random: what is there is what a batch
computes, once."""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import onlyonce
from docs.generate import specification
from onlyonce import settings
from onlyonce.operate import audit, doctor
from onlyonce.run import reset
from onlyonce.sinks.iceberg import iceberg_catalogs
from tests.contract.conformance_iceberg import expire
from tests.fault.test_kills import put_all
from tests.fault.test_replay import forget_last_commit
from tests.support import shop_oracle
from tests.support.iceberg_shop import CATALOG, configured
from tests.support.platform import Platform, Server, multiset

pytestmark = [pytest.mark.spark, pytest.mark.fault]
SHOP = "tests/support/iceberg_shop.py"
POINTS = (*specification.points("iceberg-"), "output-before-end")
ALL = ("shop", "--from", "2025-12-31T00:00:00Z", "--to", "2026-01-01T00:30:00Z", "--output", "per_shop")


@pytest.fixture
def platform(
    new_platform: Callable[..., Platform],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: object,
) -> Platform:
    """With a catalog in a database of its own."""
    found = new_platform(SHOP)
    found.give(monkeypatch, **configured(server.url("writer", server.new_database()), tmp_path))
    return found


def test_a_replayed_batch_whose_snapshots_have_expired_adds_nothing(platform: Platform) -> None:
    """Tables, books and doctor agree; a backfill takes the late records in."""
    files = shop_oracle.sales(120, 2, seed=5)
    put_all(platform, files)
    platform.run("shop")
    with iceberg_catalogs.open_catalog(CATALOG) as found:
        expire(found.load_table("results.plain"))
    forget_last_commit("plain")
    forget_last_commit("per_shop")
    platform.run("shop", "--close")
    _check(files, in_time=True)
    platform.backfill(*ALL)
    _check(files, in_time=False)
    assert not audit.main(["--data"]).warnings
    assert not doctor.main([]).warnings


@pytest.mark.parametrize(
    "seed",
    [pytest.param(1, marks=pytest.mark.whole), *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))],
)
def test_iceberg_tables_are_what_a_batch_computes_whatever_was_killed(platform: Platform, seed: int) -> None:
    """Also after a backfill, which takes the late records in and replaces the windows that it computes again."""
    chance = random.Random(seed)
    files = shop_oracle.sales(chance.randrange(100, 200), chance.randrange(1, 4), seed=seed)
    put_all(platform, files)
    for point in chance.sample(POINTS, 2):
        code, output = platform.run_killed(point, "shop", "--close", nth=chance.randrange(1, 3))
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
    platform.run("shop", "--close")
    _check(files, in_time=True)
    platform.backfill(*ALL)
    _check(files, in_time=False)
    assert not audit.main(["--data"]).warnings


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("iceberg-before-commit", marks=pytest.mark.whole),
        pytest.param("iceberg-after-commit", marks=pytest.mark.slow),
    ],
)
def test_a_new_incarnation_finishes_a_batch_whose_commit_may_have_come_or_not(platform: Platform, point: str) -> None:
    """Its unit is there, its checkpoint is lost: the batch is written under its own name, and the new incarnation goes on
    behind it."""
    files = shop_oracle.sales(120, 2, seed=7)
    put_all(platform, files)
    code, output = platform.run_killed(point, "shop", "--close")
    assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
    shutil.rmtree(settings.data_dir("shop") / "checkpoints" / "per_shop")
    reset.new("shop/per_shop", yes=True)
    platform.run("shop", "--close")
    _check(files, in_time=True)


def _check(files: list[list[dict[str, Any]]], *, in_time: bool) -> None:
    records = shop_oracle.distinct(files)
    of_windows = records[~records["late"]] if in_time else records
    windows = shop_oracle.per_shop(of_windows)
    assert _there("plain", "id", "shop", "cents") == multiset(records, "id", "shop", "cents")
    assert _there("per_shop", "window_start", "shop", "sales", "cents") == _plain(
        windows, "window_start", "shop", "sales", "cents"
    )
    totals = windows.groupby("window_start")[["sales", "cents"]].sum().reset_index()
    assert _there("total", "window_start", "sales", "cents") == _plain(totals, "window_start", "sales", "cents")


def _there(output: str, *columns: str) -> Counter[Any]:
    return _plain(onlyonce.open("shop").output(output), *columns)


def _plain(frame: pd.DataFrame, *columns: str) -> Counter[Any]:
    if "window_start" in columns:
        frame = frame.assign(
            window_start=pd.to_datetime(frame["window_start"], utc=True).dt.strftime("%Y-%m-%d %H:%M:%S")
        )
    return multiset(frame, *columns)
