"""A checkpoint and its incarnation must be of one mind: lost, swapped, old and damaged ones are refused, with the way
out."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.core.errors import Refused
from onlyonce.operate import audit
from onlyonce.run import reset
from tests.fault.test_kills import put_all
from tests.spark.sinks.test_sinks import found, sessions, sliding
from tests.support import shop_oracle
from tests.support.check_shop import check, check_outputs
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform, Server, multiset

pytestmark = pytest.mark.spark


def checkpoint(query: str, ordinal: int = 1) -> Path:
    """The folder of a query's checkpoint."""
    return settings.data_dir("shop") / "checkpoints" / query / str(ordinal)


def lost(folder: Path) -> None:
    """The folder is gone."""
    shutil.rmtree(folder)


def swapped(folder: Path) -> None:
    """Another query's identity is in it."""
    (folder / "metadata").write_text(json.dumps({"id": "00000000-0000-4000-8000-000000000000"}))


def damaged(folder: Path) -> None:
    """Its identity can't be read."""
    (folder / "metadata").write_text("{")


def old(folder: Path) -> None:
    """It is a copy from before its last two batches."""
    for kind in ("offsets", "commits"):
        numbers = sorted(int(p.name) for p in (folder / kind).glob("[0-9]*"))
        for number in numbers[-2:]:
            (folder / kind / str(number)).unlink()
            (folder / kind / f".{number}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("query", "damage"),
    [
        pytest.param("receive", lost, marks=pytest.mark.whole),
        pytest.param("receive", old, marks=pytest.mark.whole),
        ("per_shop", lost),
        pytest.param("per_shop", damaged, marks=pytest.mark.whole),
        pytest.param("per_shop", swapped, marks=pytest.mark.slow),
    ],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_a_checkpoint_that_is_not_the_registered_one_is_refused_and_a_new_incarnation_goes_on(
    platform: Platform, spark: object, query: str, damage: Callable[[Path], None]
) -> None:
    """The refusal names `onlyonce reset`, nothing was written, and after it the results are as if nothing
    had been: open windows complete, none twice."""
    files = shop_oracle.sales(360, 3)
    put_all(platform, files[:2])
    platform.run("shop")
    before = platform.sql("SELECT unique_id FROM onlyonce.commits ORDER BY 1")
    damage(checkpoint(query))
    platform.put("shop", "sales-0002.jsonl", files[2])

    with pytest.raises(Refused, match="onlyonce reset"):
        platform.run("shop", "--close")

    units = platform.sql("SELECT unique_id FROM onlyonce.commits ORDER BY 1")
    assert before.equals(units[units["unique_id"].isin(before["unique_id"])].reset_index(drop=True))
    reset.new(f"shop/{query}", yes=True)
    platform.run("shop", "--close")
    check(platform, files)


@pytest.mark.whole
def test_a_new_incarnation_of_any_kind_of_output_goes_on_with_what_is_open_and_writes_nothing_twice(
    new_platform: Callable[..., Platform], server: Server, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running totals are of all that ever came; windows and sessions that were written stay as they are, late rows stay
    out, and open ones hold what came before the new incarnation."""
    monkeypatch.setenv("TEST_OTHER_DATABASE", server.url("writer", server.new_database()))
    platform = new_platform("tests/support/kinds.py")
    files = shop_oracle.sales(300, 4)
    for number in range(3):
        platform.put("shop", f"{number}.jsonl", files[number])
        platform.run("shop")
    written = multiset(platform.table("shop/session"))
    assert written
    for query in ("totals", "sliding", "session"):
        lost(checkpoint(query))
        reset.new(f"shop/{query}", yes=True)
    platform.put("shop", "3.jsonl", files[3])
    platform.give(monkeypatch, ONLYONCE_OUTPUT_BATCH_COMMITS="1")

    platform.run("shop", "--close")

    assert audit.main([]).warnings == []  # what was counted is not counted again, however many batches read it again
    records = shop_oracle.distinct(files)
    totals = platform.table("shop/totals")
    assert multiset(shop_oracle.balance(records), "shop", "cents", "sales") == multiset(
        totals, "shop", "cents", "sales"
    )
    assert sliding(records, in_time=True) == found(platform.table("shop/sliding"))
    assert sessions(records, in_time=True) == found(platform.table("shop/session"))
    assert written <= multiset(platform.table("shop/session"))


def test_a_new_incarnation_of_receive_withdraws_a_half_written_batch(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Units and chunks of a batch whose rows never got to `events` go, or its records would count as duplicates."""
    files = shop_oracle.sales(240, 2)
    put_all(platform, files)
    assert ended_at(platform, monkeypatch, "receive-unit-after-commit", 2, "--close", "--max-files", "1")
    lost(checkpoint("receive"))

    reset.new("shop/receive", yes=True)
    platform.run("shop", "--close")

    check(platform, files)


@pytest.mark.parametrize("point", [pytest.param("marker-after-begin", marks=pytest.mark.whole), "marker-after-delta"])
def test_a_new_incarnation_of_receive_keeps_a_begun_close(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, spark: object, point: str
) -> None:
    """Outputs close windows by its control row. A later record of such a window is late to the new incarnation too."""
    files = shop_oracle.sales(120, 2)
    put_all(platform, files)
    assert ended_at(platform, monkeypatch, point, 1, "--close")
    lost(checkpoint("receive"))
    at = shop_oracle.distinct(files)["at"].max()
    platform.put("shop", "later.jsonl", [{"id": "behind", "shop": "shop-1", "at": at, "cents": 5, "weight": 1.0}])

    reset.new("shop/receive", yes=True)
    platform.run("shop", "--close")

    expected = shop_oracle.distinct(files)
    check_outputs(platform, expected[~expected["late"]])
    assert platform.sql("SELECT state FROM onlyonce.watermark_markers")["state"].tolist() == ["committed"]


def test_a_new_incarnation_that_finds_nothing_new_waits_for_it(platform: Platform, spark: object) -> None:
    """Of receive and of outputs: all was taken in, and nothing has come since."""
    files = shop_oracle.sales(240, 2)
    put_all(platform, files[:1])
    platform.run("shop")
    for query in ("receive", "per_shop", "balance"):
        lost(checkpoint(query))
        reset.new(f"shop/{query}", yes=True)
    platform.run("shop")
    platform.put("shop", "later.jsonl", files[1])
    platform.run("shop", "--close")

    check(platform, files)


@pytest.mark.whole
def test_a_first_offset_that_was_half_written_does_not_stop_the_next_run(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """A kill between Spark's file under another name and its own left the folder not empty, and Spark refused to
    begin."""
    files = shop_oracle.sales(120, 2)
    put_all(platform, files)
    assert ended_at(platform, monkeypatch, "start-after-bump")
    partial = checkpoint("receive") / "offsets" / ".0.1e2d3c4b.tmp"
    partial.parent.mkdir()
    partial.write_text("v1\n")

    platform.run("shop", "--close")

    check(platform, files)


def test_a_run_over_an_empty_inbox_is_a_run_like_any_other(platform: Platform, spark: object) -> None:
    """The first run of a pipeline may come before its first file."""
    platform.run("shop", "--close")
    told = platform.sql("SELECT records_in, conserved FROM onlyonce.conservation WHERE query = 'receive'")
    assert multiset(told) == Counter({(0, True): 1})
    files = shop_oracle.sales(120, 2)
    put_all(platform, files)

    platform.run("shop", "--close")

    check(platform, files)


def test_a_log_behind_the_checkpoint_is_refused(platform: Platform, spark: object) -> None:
    """PostgreSQL restored from an older backup than the tables: refused, and the message says so."""
    files = shop_oracle.sales(120, 2)
    put_all(platform, files)
    platform.run("shop")
    platform.sql("DELETE FROM onlyonce_private.batches WHERE incarnation = 'shop/receive/1' RETURNING 1")

    with pytest.raises(Refused, match="older backup"):
        platform.run("shop")
