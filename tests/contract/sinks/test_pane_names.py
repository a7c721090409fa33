"""Files that a user's function names, on a disk and in a store: the log decides the names, and no two files collide."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyarrow import fs

from onlyonce.api.sinks import FileSink
from onlyonce.commitlog.files import Files
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.database.connect import run
from onlyonce.database.statements import make_home
from onlyonce.sinks.files import file_stores, finalize, sink_files
from onlyonce.sinks.files.file_stores import _open
from tests.contract.conftest import NOON, Log
from tests.contract.shards import MINUTE, Shards, sales, wanted
from tests.contract.sinks.test_files import POINTS, finalizing

HERE = "tests.support.named_files"
STORES = ("memory", "disk")


@pytest.fixture(params=STORES)
def shop(request: pytest.FixtureRequest, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shards:
    """An output whose files are named by a function, on a platform of this test's own."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    place = "shop/sales" if request.param == "disk" else f"memory://b{uuid4().hex[:8]}/sales"
    return Shards(log, log.start("shop", "sales"), named("by_day"), place=place)


def named(function: str) -> FileSink:
    """A sink of two shards with this function."""
    return FileSink(shards=2, names=f"{HERE}:{function}")


def names(shop: Shards) -> list[str]:
    """The names that a reader finds: in the folder, or in the manifests of a store."""
    if "://" not in shop.place:
        return shop.names()
    system, root = _open(shop.place)
    manifests = system.get_file_info(fs.FileSelector(f"{root}/_manifests", allow_not_found=True))
    read = [json.loads(system.open_input_stream(one.path).read()) for one in manifests]
    return sorted(file["name"] for manifest in read for file in manifest["files"])


def by_day(minute: int, pane: int, shard: int) -> str:
    """The name by the function `by_day`."""
    start = NOON + minute * MINUTE
    return f"day={start:%Y-%m-%d}/{start:%H%M}-{start + MINUTE:%H%M}-p{pane}-{shard}of2.jsonl"


def in_log(shop: Shards) -> list[Any]:
    """What the log has of each file, except when."""
    return shop.log.rows(
        "SELECT file_no, pane, name, finalized_at IS NULL FROM onlyonce_private.files ORDER BY file_no"
    )


def check_next(shop: Shards, minute: int) -> None:
    """What a batch of this minute checks before it writes a file."""
    window = (NOON + minute * MINUTE, NOON + (minute + 1) * MINUTE)
    sink_files.check_pane_names(Files(shop.log.database), shop.output, shop.place, "shop", [window])


@pytest.mark.parametrize("shop", ["disk"], indirect=True)
def test_each_folder_of_a_final_name_is_made_durable(shop: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's own name is in its parent: after a power cut a durable file would have no path."""
    shop.sink = named("by_month_and_day")
    shop.batch(0, sales(3))
    synced: list[Path] = []
    monkeypatch.setattr(file_stores, "sync", synced.append)
    finalize.main([])

    assert {*synced} == {shop.folder, shop.folder / f"{NOON:%Y-%m}", shop.folder / f"{NOON:%Y-%m}" / f"{NOON:%d}"}


def test_panes_of_a_window_have_the_names_of_the_function(shop: Shards) -> None:
    """Each pane its own files. The names are known before the batch ends, and a repeated end changes none."""
    shop.batch(0, sales(3))
    shop.batch(1, sales(2, first=3) + sales(1, minute=1))
    before = in_log(shop)
    run(
        shop.log.database,
        lambda conn: sink_files.give_pane_names(Files(conn), shop.output, shop.place, shop.driver.incarnation, 1),
    )
    assert in_log(shop) == before

    finalize.main([])

    panes = [(0, 0), (0, 1), (1, 0)]
    assert names(shop) == sorted(by_day(minute, pane, shard) for minute, pane in panes for shard in range(2))
    if "://" not in shop.place:
        assert shop.lines() == wanted(*sales(5), *sales(1, minute=1))


@pytest.mark.parametrize("function", ["of_minute", "without_pane"])
def test_name_of_an_earlier_file_is_refused_before_anything_moves(shop: Shards, function: str) -> None:
    """A window an hour later, or a later pane. It is refused before the files are written, and at the batch's end."""
    shop.sink = named(function)
    minute = 60 if function == "of_minute" else 0
    shop.batch(0, sales(3))
    finalize.main([])
    there, known = names(shop), in_log(shop)

    with pytest.raises(Refused, match="gives two files the name") as early:
        check_next(shop, minute)
    assert "no file of the batch was written" in early.value.data
    assert early.value.hint
    with pytest.raises(Refused, match="gives two files the name") as late:
        shop.batch(1, sales(3, minute=minute))
    assert "no file was moved" in late.value.data
    assert finalize.main([]).facts == {"files": 0}
    assert names(shop) == there
    assert in_log(shop)[: len(known)] == known

    shop.sink = named("by_day")
    check_next(shop, minute)
    shop.end(1)
    finalize.main([])
    assert set(names(shop)) == {*there, *(by_day(minute, int(minute == 0), shard) for shard in range(2))}


@pytest.mark.parametrize("shop", ["disk"], indirect=True)
def test_kill_while_names_are_given_does_not_show(shop: Shards, tmp_path: Path) -> None:
    """SIGKILL in the middle of a pane, at each step; finalize calls no function, so the same command ends it."""
    for number, point in enumerate(POINTS):
        shop.batch(number, sales(5, minute=number))
        assert finalizing(tmp_path, f"finalize-{point}", 1 if point.endswith("mark") else 2), point
        finalize.main([])
        assert shop.names() == [by_day(minute, 0, shard) for minute in range(number + 1) for shard in range(2)]
    assert shop.pending() == []
    assert shop.log.multiset("SELECT state FROM onlyonce.output_files") == Counter({("final",): 10})


@pytest.mark.parametrize("shop", ["disk"], indirect=True)
def test_foreign_file_under_a_name_stops_the_whole_pane(shop: Shards) -> None:
    """No file of the pane moves if the name of its last file is taken."""
    shop.batch(0, sales(5))
    taken = shop.folder / by_day(0, 0, 1)
    taken.parent.mkdir(parents=True)
    taken.write_text("mine")
    with pytest.raises(InvariantBroken, match="should have"):
        finalize.main([])
    assert shop.names() == [by_day(0, 0, 1)]
    assert taken.read_text() == "mine"
