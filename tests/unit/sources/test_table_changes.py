"""The change data feed of a Delta table: every change once, deletes as records of their own, and what nobody wrote down
refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce.api.pipeline import DeltaSource, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.sources import delta_log
from tests.support import tables
from tests.support.changed_table import FEED, SCHEMA, VALUES, change
from tests.support.shop import SHOP
from tests.support.tables import NOTHING, append, behind, ids, pages, rows, take


def of(path: Path, **options: Any) -> Pipeline:
    """The test pipeline over the changes of a table."""
    return replace(SHOP, source=DeltaSource(path=str(path), changes=True, **options), record_id=(), schema=SCHEMA)


@pytest.mark.parametrize("seed", range(8))
def test_all_changes_are_read_once_and_make_the_table(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever versions there are and however looks are cut: what is inserted less what is deleted is what the table
    holds, at each version."""
    monkeypatch.setattr(delta_log, "PAGE", 2)
    chance, pipeline, read = random.Random(seed), of(tmp_path), NOTHING
    found: list[Any] = []
    for number in range(9):
        change(tmp_path, chance, number)
        if chance.random() < 0.5:
            page = next(pages(pipeline, read), [])
            found, read = found + page, behind(page, read)
    found += take(pipeline, read)[0]
    changes = rows(pipeline, found)

    assert len({(row["oo_file"], row["oo_position"]) for row in changes}) == len(changes)
    for version in range(DeltaTable(str(tmp_path)).version() + 1):
        net: Counter[Any] = Counter()
        for row in changes:
            if row["_commit_version"] <= version:
                net[row["id"], row["shop"], row["cents"]] += {"insert": 1, "update_postimage": 1}.get(
                    row["_change_type"], -1
                )
        held = DeltaTable(str(tmp_path), version=version).to_pyarrow_table().to_pylist()
        assert {key: count for key, count in net.items() if count} == Counter(
            (row["id"], row["shop"], row["cents"]) for row in held
        )


def test_changes_are_those_of_the_feed_as_another_reader_has_it(tmp_path: Path) -> None:
    """delta-rs' own reader of the feed, all columns but for its times."""
    chance = random.Random(3)
    for number in range(7):
        change(tmp_path, chance, number)
    pipeline = of(tmp_path)

    found = Counter(tuple(row[name] for name in VALUES) for row in rows(pipeline, take(pipeline)[0]))

    theirs = pa.table(DeltaTable(str(tmp_path)).load_cdf(starting_version=0).read_all()).to_pylist()
    assert found == Counter(tuple(row[name] for name in VALUES) for row in theirs)


def test_the_time_of_a_change_is_its_commits(tmp_path: Path) -> None:
    """By the clock of whoever committed."""
    write_deltalake(str(tmp_path), pa.Table.from_pylist(tables.sales(["a"]), tables.SCHEMA), configuration=FEED)
    pipeline = of(tmp_path)

    [row] = rows(pipeline, take(pipeline)[0])

    assert row["_commit_timestamp"].timestamp() * 1000 == DeltaTable(str(tmp_path)).history()[0]["timestamp"]


def _delete(path: Path) -> None:
    DeltaTable(str(path)).delete("id = 'a'")


def _update(path: Path) -> None:
    DeltaTable(str(path)).update(updates={"cents": "cents + 1"})


@pytest.mark.parametrize("without_feed", [_delete, _update])
def test_a_change_that_nobody_wrote_down_is_refused(without_feed: Callable[[Path], None], tmp_path: Path) -> None:
    """Also where the feed was switched on later: as of its version there was none."""
    append(tmp_path, ["a", "b"])
    without_feed(tmp_path)
    DeltaTable(str(tmp_path)).alter.set_table_properties(FEED)
    pipeline = of(tmp_path)
    found = next(pages(pipeline, NOTHING))

    assert ids(pipeline, found) == {"a": 1, "b": 1}
    with pytest.raises(Refused, match="version 1 deletes or rewrites rows, and the table has no change data feed"):
        take(pipeline, behind(found, NOTHING))
