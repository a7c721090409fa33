"""A pipeline whose sinks are in a MySQL, killed at random steps and cut at random: what is there is what a batch
computes, once."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from onlyonce.operate import audit
from tests.fault.test_kills import put_all
from tests.support import shop_oracle
from tests.support.mariadb import MariaDB
from tests.support.mysql_shop import THERE
from tests.support.platform import Platform, multiset

pytestmark = [pytest.mark.spark, pytest.mark.fault]
POINTS = (
    "postgres-before-units", "postgres-unit-before-claim", "postgres-unit-after-claim", "postgres-unit-after-rows",
    "postgres-unit-before-commit", "postgres-unit-after-commit", "postgres-after-units", "output-before-end",
)  # fmt: skip


@pytest.mark.parametrize(
    "seed",
    [pytest.param(1, marks=pytest.mark.whole), *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))],
)
def test_tables_in_mysql_are_what_a_batch_computes_whatever_was_killed(
    new_platform: Callable[..., Platform], mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch, spark: object, seed: int
) -> None:
    """Also after a backfill, which takes the late records in and replaces the windows that it computes again; the books
    agree."""
    chance, name = random.Random(seed), mariadb.new_database()
    platform = new_platform("tests/support/mysql_shop.py")
    platform.give(monkeypatch, **{THERE: mariadb.url(name)})
    files = shop_oracle.sales(chance.randrange(100, 200), chance.randrange(1, 4), seed=seed)
    put_all(platform, files)

    for point in chance.sample(POINTS, 2):
        code, output = platform.run_killed(point, "shop", "--close", nth=chance.randrange(1, 3))
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
    platform.run("shop", "--close")

    records = shop_oracle.distinct(files)
    in_time = records[~records["late"]]
    assert there(mariadb, name, "id, shop, cents", "plain") == multiset(records, "id", "shop", "cents")
    assert windows(mariadb, name) == oracle(in_time)
    assert newest(mariadb, name) == latest(in_time)

    platform.backfill("shop", "--from", "2025-12-31T00:00:00Z", "--to", "2026-01-01T00:30:00Z", "--output", "per_shop")
    assert windows(mariadb, name) == oracle(records)
    assert newest(mariadb, name) == latest(records)
    assert not audit.main(["--data"]).warnings
    mariadb.rows("", f"DROP DATABASE {name}")


def there(server: MariaDB, database: str, columns: str, table: str) -> Counter[Any]:
    """The rows of a table."""
    return Counter(server.rows(database, f"SELECT {columns} FROM {table}"))


def newest(server: MariaDB, database: str) -> Counter[Any]:
    """The rows that replace each other."""
    return there(server, database, "shop, cents", "newest")


def latest(records: pd.DataFrame) -> Counter[Any]:
    """The same by a plain computation: the last window of each shop."""
    return multiset(shop_oracle.per_shop(records).sort_values("window_start").groupby("shop").tail(1), "shop", "cents")


def windows(server: MariaDB, database: str) -> Counter[Any]:
    """The windows that were appended."""
    return there(server, database, "CAST(window_start AS CHAR(19)), shop, sales, cents", "per_shop")


def oracle(records: pd.DataFrame) -> Counter[Any]:
    """The same by a plain computation."""
    found = shop_oracle.per_shop(records)
    found["window_start"] = found["window_start"].dt.strftime("%Y-%m-%d %H:%M:%S")
    return multiset(found, "window_start", "shop", "sales", "cents")
