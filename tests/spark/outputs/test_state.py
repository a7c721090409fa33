"""Where the open windows of an output are kept: what it was begun with stays for its incarnation, and a new incarnation takes what is
set."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from onlyonce import settings
from onlyonce.engine.state import PROVIDERS
from onlyonce.operate import plan
from onlyonce.run import reset
from onlyonce.tables import checkpoint
from tests.spark.run.test_long_run import check, sales
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

DELTAS = "spark.sql.streaming.stateStore.minDeltasForSnapshot"


def kept_in(ordinal: int) -> set[str]:
    """The kinds of files that the state of an incarnation has."""
    folder = settings.data_dir("shop") / "checkpoints" / "per_shop" / str(ordinal) / "state" / "0" / "0"
    return {path.suffix for path in folder.glob("[0-9]*")}


def test_an_output_goes_on_in_the_store_that_it_was_begun_in_and_a_new_incarnation_takes_what_is_set(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """From memory to RocksDB; `plan` tells of it. Each record is counted once."""
    platform = new_platform("tests/support/quiet.py")
    for block, kind in enumerate(("memory", "rocksdb")):
        platform.give(monkeypatch, ONLYONCE_STATE=kind)
        platform.put("shop", f"sales-{block}.jsonl", sales(block))
        platform.run("shop")
        assert kept_in(1) == {".delta"}
    first = settings.data_dir("shop") / "checkpoints" / "per_shop" / "1"
    assert checkpoint.state_of(first) == checkpoint.State(PROVIDERS["memory"], 2)

    platform.give(monkeypatch, ONLYONCE_SHUFFLE_PARTITIONS="3")
    [told] = plan.main(["shop"]).warnings
    assert "state is memory, and the settings say rocksdb" in told
    assert "in 2 partitions, and the settings say 3; onlyonce reset shop/per_shop" in told

    reset.new("shop/per_shop", yes=True)
    platform.put("shop", "sales-2.jsonl", sales(2))
    platform.run("shop")

    assert kept_in(2) <= {".changelog", ".zip"}
    assert kept_in(2)
    assert checkpoint.state_of(first.with_name("2")) == checkpoint.State(PROVIDERS["rocksdb"], 3)
    check(platform, 3)


def test_a_driver_that_lives_for_a_moment_leaves_a_snapshot_of_its_state_now_and_then(
    new_platform: Callable[..., Platform], spark: SparkSession
) -> None:
    """The next one loads the state from there, and not from the changes of all batches that ever were."""
    platform = new_platform("tests/support/quiet.py")
    folder = settings.data_dir("shop") / "checkpoints" / "per_shop" / "1" / "state" / "0" / "0"
    spark.conf.set(DELTAS, "2")
    try:
        for block in range(3):
            platform.put("shop", f"sales-{block}.jsonl", sales(block))
            platform.run("shop")
            changes, snapshots = (
                sorted(int(p.stem) for p in folder.glob(f"[0-9]*.{kind}")) for kind in ("changelog", "zip")
            )
            assert max(changes) - max(snapshots) <= 2
    finally:
        spark.conf.unset(DELTAS)
    check(platform, 3)
