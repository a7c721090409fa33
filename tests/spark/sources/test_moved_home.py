"""A home that was moved: the run asks, and once it is told, nothing is read again and everything goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from onlyonce.api import load as declarations
from onlyonce.core.errors import Refused
from onlyonce.sources import discovery
from tests.support import shop_oracle
from tests.support.check_placed_shop import check
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform

pytestmark = pytest.mark.spark


def test_a_home_that_was_moved_asks_and_then_goes_on(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a file that was registered and not yet read; records have the ids of the places where they were first; a
    folder that is said to be another is new as a whole."""
    platform = new_platform("tests/support/placed_shop.py")
    files = shop_oracle.sales(240, 3, duplicates=0.3)
    paths = [platform.put("shop", f"sales-{number}.jsonl", records) for number, records in enumerate(files)]
    paths[2].rename(platform.home / "later")
    platform.run("shop", "--max-files", "1")
    before = platform.sql("SELECT count(*) AS batches FROM onlyonce.batches WHERE query = 'receive'")["batches"][0]

    elsewhere = platform.home.with_name(f"{platform.home.name}-moved")
    shutil.copytree(platform.home, elsewhere)
    shutil.rmtree(platform.home)
    moved = replace(platform, home=elsewhere)
    moved.give(monkeypatch, ONLYONCE_HOME=str(elsewhere))
    with pytest.raises(Refused, match=r"was .*, and is .* now") as asked:
        moved.run("shop")
    assert "onlyonce inbox shop --moved" in asked.value.hint
    shop = declarations.load()["shop"]
    assert discovery.look_at_inbox(shop, None).warnings
    discovery.look_at_inbox(shop, "moved")
    with pytest.raises(Refused, match="is where it was"):
        discovery.look_at_inbox(shop, "moved")
    assert moved.run("shop").facts["batches"] == 0

    (elsewhere / "later").rename(elsewhere / "inbox" / "shop" / paths[2].name)
    moved.run("shop", "--close")

    shutil.copytree(
        elsewhere / "inbox", platform.home / "inbox"
    )  # for the oracle, which reads the files by their names
    check(moved, files, paths)
    after = platform.sql("SELECT count(*) AS batches FROM onlyonce.batches WHERE query = 'receive'")["batches"][0]
    assert after - before == 1


@pytest.mark.whole
def test_what_was_registered_before_a_move_is_read_after_it(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was killed between the manifest and the batch: its file is found where it is now."""
    platform = new_platform("tests/support/placed_shop.py")
    files = shop_oracle.sales(60, 1, duplicates=0.3)
    paths: list[Path] = [platform.put("shop", "sales.jsonl", files[0])]
    assert ended_at(platform, monkeypatch, "receive-registered")
    elsewhere = platform.home.with_name(f"{platform.home.name}-moved")
    platform.home.rename(elsewhere)
    moved = replace(platform, home=elsewhere)
    moved.give(monkeypatch, ONLYONCE_HOME=str(elsewhere))
    discovery.look_at_inbox(declarations.load()["shop"], "moved")

    moved.run("shop", "--close")

    shutil.copytree(
        elsewhere / "inbox", platform.home / "inbox"
    )  # for the oracle, which reads the files by their names
    check(moved, files, paths)
