"""A pipeline over a Delta table, on Spark: appended to, compacted and killed, each row is one record; and a pipeline
over another one's output."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from onlyonce import settings
from tests.support import shop_oracle, table_shop, tables
from tests.support.check_shop import check_outputs
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

PIPELINES = "tests/support/table_shop.py"
POINTS = [
    "receive-registered",
    "receive-after-begin",
    "receive-after-delta",
    "receive-after-control",
    "receive-before-end",
    "receive-after-end",
]


def append(records: list[dict[str, Any]], chance: random.Random) -> Path:
    """A version with these records, in one file or one for each shop; now and then another that only compacts."""
    path = settings.tables_dir() / table_shop.TABLE
    typed = [record | {"at": datetime.fromisoformat(record["at"])} for record in records]
    write_deltalake(str(path), pa.Table.from_pylist(typed, tables.SCHEMA), mode="append", partition_by=["shop"])
    if chance.random() < 0.4:
        tables.compact(path)
    return path


def check_kept(platform: Platform, records: list[list[dict[str, Any]]], instance: str = "shop") -> None:
    """Each row is kept once, at a place of its own."""
    events = platform.events(instance)
    kept = events[events["oo_kind"] == "kept"]
    assert (events["oo_kind"] == "invalid").sum() == 0
    assert multiset(shop_oracle.every(records), "id", "shop", "cents") == multiset(kept, "id", "shop", "cents")
    places = Counter(map(tuple, kept[["oo_high", "oo_low"]].itertuples(index=False)))
    assert len(places) == len(kept)


@pytest.mark.fault
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
def test_each_row_is_a_record_whatever_is_compacted_and_killed(
    seed: int, new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Random versions and kills between them, then the same command; a bounded run is the batch over all rows."""
    platform, chance = new_platform(PIPELINES), random.Random(seed)
    rounds = 2 if seed == 1 else 5
    parts = shop_oracle.sales(40 * rounds, rounds, duplicates=0.2, seed=seed)
    for number, records in enumerate(parts):
        half = len(records) // 2
        append(records[:half], chance)
        append(records[half:], chance)
        if number == 0 or chance.random() < 0.5:
            assert ended_at(platform, monkeypatch, chance.choice(POINTS))
        else:
            platform.run("shop")
    platform.run("shop", "--close")

    check_kept(platform, parts)
    log = platform.sql("SELECT * FROM onlyonce.conservation WHERE instance = 'shop'")
    assert log["conserved"].all()
    platform.run("shop", "--bounded")
    check_kept(platform, parts, "shop@1")
    check_outputs(platform, shop_oracle.every(parts), "@1")


def test_a_pipeline_reads_the_output_of_another(new_platform: Callable[..., Platform], spark: object) -> None:
    """Each committed row of its table once, as it comes, with the window's times; compacted or not."""
    platform, chance = new_platform(PIPELINES), random.Random(5)
    for number, records in enumerate(shop_oracle.sales(120, 2, duplicates=0)):
        append(records, chance)
        platform.run("shop", *(["--close"] if number else []))
        tables.compact(settings.tables_dir() / "shop/per_shop")
        platform.run("hourly", *(["--close"] if number else []))

    rows = platform.table("shop/per_shop")
    events = platform.events("hourly")
    kept = events[events["oo_kind"] == "kept"]
    columns = ["window_start", "window_end", "shop", "sales", "cents", "window_date"]
    assert multiset(kept, *columns) == multiset(rows, *columns)
    hours = (
        rows.assign(window_start=rows["window_start"].dt.floor("h"))
        .groupby(["window_start", "shop"])[["sales", "cents"]]
        .sum()
        .reset_index()
    )
    found = platform.table("hourly/sums")
    assert multiset(found, "window_start", "shop", "sales", "cents") == multiset(
        hours, "window_start", "shop", "sales", "cents"
    )


def test_a_table_is_one_of_several_sources(new_platform: Callable[..., Platform], spark: object) -> None:
    """Each row once, in the pipeline's columns, beside the records of files."""
    platform, chance = new_platform(PIPELINES), random.Random(6)
    of_table, of_files = (
        shop_oracle.sales(40, 2, duplicates=0),
        shop_oracle.sales(30, 2, duplicates=0, seed=2, first=100),
    )
    for number in range(2):
        append(of_table[number], chance)
        platform.put("both/till", f"{number}.jsonl", of_files[number])
        platform.run("both")

    wanted = Counter((record["id"], record["shop"], record["cents"] + 1) for part in of_table for record in part)
    wanted += Counter((record["id"], record["shop"], record["cents"]) for part in of_files for record in part)
    assert multiset(platform.table("both/each"), "id", "shop", "cents") == wanted
