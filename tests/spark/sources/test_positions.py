"""Ids by position on Spark: a record is the byte of its file at which it begins, in the stream and in a bounded run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.core.errors import Refused
from onlyonce.database.connect import Database
from onlyonce.records import trace as tracing
from onlyonce.sources.record_id import asked
from tests.support import shop_oracle
from tests.support.check_placed_shop import check
from tests.support.platform import ROOT, Platform

pytestmark = pytest.mark.spark

PLACED = "tests/support/placed_shop.py"


def put(platform: Platform) -> tuple[list[list[dict[str, object]]], list[Path]]:
    """Two files with re-deliveries, late records and a line that is none."""
    files = shop_oracle.sales(240, 2, duplicates=0.3)
    files[0].insert(5, "no record")  # type: ignore[arg-type]
    paths = [platform.put("shop", f"sales-{number}.jsonl", records) for number, records in enumerate(files)]
    files[0].remove("no record")  # type: ignore[arg-type]
    return files, paths


def test_each_line_is_a_record_by_its_place_and_a_bounded_run_gives_it_the_same_id(
    new_platform: Callable[..., Platform], spark: object
) -> None:
    """Every delivery is kept once, without a unit of receive; `trace` finds one by file and byte; then columns are
    refused."""
    platform = new_platform(PLACED)
    files, paths = put(platform)

    platform.run("shop", "--close")

    check(platform, files, paths)
    assert platform.sql("SELECT 1 FROM onlyonce.commits WHERE sink = 'events'").empty
    modes = platform.sql("SELECT query, mode FROM onlyonce.batches GROUP BY 1, 2 ORDER BY 1")
    assert dict(modes.itertuples(index=False)) == {
        "balance": "exactly_once", "per_shop": "exactly_once", "receive": "by_position",
    }  # fmt: skip

    platform.run("shop", "--bounded")

    check(platform, files, paths, suffix="@1")
    pipeline = declarations.load()["shop"]
    second = paths[1].read_bytes().index(b"\n") + 1
    database = Database(settings.database_url())
    for given, seen in ((paths[1].name, True), (str(paths[1]), True), ("sales-7.jsonl", False)):
        _, found = tracing.trace(database, pipeline, "shop", asked(pipeline, [given, str(second)]))
        assert found is seen, given
    [fate] = tracing.trace(database, pipeline, "shop", asked(pipeline, [str(paths[1]), str(second)]))[0].tables["fates"]
    assert (fate["fate"], fate["batch"]) == ("kept", "shop/receive/1/1")

    with pytest.raises(Refused, match="record_id of shop has changed"):
        platform.run("shop", "--pipelines", str(ROOT / "tests/support/shop.py"))


CHAIN = [
    "receive-after-begin",
    "receive-after-delta",
    "receive-after-control",
    "receive-before-end",
    "receive-after-end",
]


@pytest.mark.slow
@pytest.mark.fault
def test_kills_do_not_show(new_platform: Callable[..., Platform], spark: object) -> None:
    """SIGKILL at each step of receive, one after the other; then the same command: each line once."""
    platform = new_platform(PLACED)
    files, paths = put(platform)

    for point in CHAIN:
        code, output = platform.run_killed(point, "shop", "--close")
        assert platform.struck(point) >= 1, f"{point} was never passed:\n{output[-3000:]}"
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
    platform.run("shop", "--close")

    check(platform, files, paths)
