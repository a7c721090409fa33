"""The spine on an undisturbed run: stream, rerun, bounded run, against the oracle."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.commitlog.batches import Batches
from onlyonce.core.errors import InvariantBroken, Superseded
from tests.support import shop_oracle
from tests.support.check_shop import check, check_outputs
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform

pytestmark = pytest.mark.spark


def put_all(platform: Platform, files: list[list[dict[str, Any]]], first: int = 0) -> None:
    """One file for each list."""
    for number, records in enumerate(files, first):
        platform.put("shop", f"sales-{number:04}.jsonl", records)


def test_stream_equals_batch_over_the_rows_in_time(platform: Platform, spark: object) -> None:
    """Every record has one fate, and each output is the batch computation over what was in time."""
    files = shop_oracle.sales(600, 4)
    put_all(platform, files)

    platform.run("shop", "--close")

    assert shop_oracle.distinct(files)["late"].any()
    check(platform, files)


def test_rerun_changes_nothing(platform: Platform, spark: object) -> None:
    """A second run with nothing new commits nothing and leaves every table as it was."""
    files = shop_oracle.sales(200, 2)
    put_all(platform, files)
    platform.run("shop", "--close")
    before = platform.sql("SELECT unique_id, content_hash, committed_at FROM onlyonce.commits ORDER BY 1")

    report = platform.run("shop", "--close")

    after = platform.sql("SELECT unique_id, content_hash, committed_at FROM onlyonce.commits ORDER BY 1")
    assert report.facts["batches"] == 0
    assert before.equals(after)
    check(platform, files)


@pytest.mark.whole
def test_runs_one_after_the_other_equal_one_run(platform: Platform, spark: object) -> None:
    """Files that come between runs are included as if they had been there, with the same cut into batches."""
    files = shop_oracle.sales(400, 4)
    for number, records in enumerate(files):
        platform.put("shop", f"sales-{number:04}.jsonl", records)
        platform.run("shop", *(["--close"] if number == 3 else []))

    check(platform, files)


def test_bounded_run_equals_batch_over_everything(platform: Platform, spark: object) -> None:
    """A bounded run has targets of its own, and nothing is late in it."""
    files = shop_oracle.sales(400, 3)
    put_all(platform, files)
    platform.run("shop", "--close")
    looked = [platform.run("shop", "--dry-run", *bounded) for bounded in ((), ("--bounded",))]

    platform.run("shop", "--bounded")

    assert [(dry.title.split(":")[0], dry.facts["new files"]) for dry in looked] == [("shop", 0), ("shop@1", 3)]
    check(platform, files)
    check(platform, files, suffix="@1", late=False)


def test_bounded_run_that_is_retried_leaves_newer_input_out(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One output is written, and another has begun. The retry finishes both from the same input, and the next bounded
    run reads all."""
    platform.give(monkeypatch, ONLYONCE_OUTPUTS_AT_ONCE="1")
    files = shop_oracle.sales(120, 3)
    put_all(platform, files[:2])
    assert ended_at(platform, monkeypatch, "output-after-begin", 2, "--bounded")
    put_all(platform, files[2:], first=2)

    platform.run("shop", "--bounded")
    platform.run("shop", "--bounded")

    check(platform, files[:2], suffix="@1", late=False)
    check(platform, files, suffix="@2", late=False)


def test_retry_of_a_finished_bounded_run_reads_nothing(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver was lost when all was written. A run that was cleared after it had ended well is a new bounded run."""
    task = ("--bounded", "--dag-id", "shop_bounded", "--run-id", "manual__1")
    put_all(platform, shop_oracle.sales(60, 1))
    assert ended_at(platform, monkeypatch, "driver-before-end", 1, *task)

    def runs() -> list[str]:
        return list(platform.sql("SELECT instance FROM onlyonce_private.pipelines ORDER BY 1").instance)

    reported = platform.run("shop", *task)
    assert (runs(), reported.facts["batches"] > 0) == (["shop@1"], True)
    assert ended_at(platform, monkeypatch, "driver-after-begin", 1, *task)
    platform.run("shop", *task)
    assert runs() == ["shop@1", "shop@2"]


@pytest.mark.whole
def test_redelivered_records_are_kept_once(platform: Platform, spark: object) -> None:
    """Half of all records delivered again, in the same and in later batches (the other tests: a tenth), leave no
    trace but their count."""
    files = shop_oracle.sales(400, 3, duplicates=0.5)
    put_all(platform, files)

    platform.run("shop", "--close")

    check(platform, files)


def test_data_after_a_close_is_judged_by_it(platform: Platform, spark: object) -> None:
    """After --close, records for closed windows are late and later windows go on."""
    files = shop_oracle.sales(200, 2)
    put_all(platform, files)
    platform.run("shop", "--close")
    records = shop_oracle.distinct(files)
    closed = records["window_start"].max() + shop_oracle.MINUTE
    more = [
        {"id": "behind", "shop": "shop-1", "at": records["at"].max(), "cents": 5, "weight": 1.0},
        {"id": "ahead", "shop": "shop-1", "at": closed.isoformat(), "cents": 7, "weight": 1.0},
    ]
    platform.put("shop", "sales-9.jsonl", more)

    platform.run("shop", "--close")

    expected = shop_oracle.distinct([*files, more])
    expected.loc[expected["id"] == "behind", "late"] = True
    expected.loc[expected["id"] == "ahead", "late"] = False
    check_outputs(platform, expected[~expected["late"]])


@pytest.mark.parametrize("older", [False, True])
def test_a_table_that_lacks_committed_rows_is_refused(platform: Platform, spark: object, older: bool) -> None:
    """Events deleted, or put back from before the last batch. A new table would hide that rows are gone."""
    files = shop_oracle.sales(60, 2)
    events = settings.data_dir("shop") / "events"
    platform.put("shop", "0.jsonl", files[0])
    platform.run("shop")
    if older:
        shutil.copytree(events, platform.home / "before")
        platform.put("shop", "1.jsonl", files[1])
        platform.run("shop")
    shutil.rmtree(events)
    if older:
        shutil.copytree(platform.home / "before", events)

    with pytest.raises(InvariantBroken, match="the log vouches for version"):
        platform.run("shop")

    assert events.exists() == older


def test_a_driver_that_starts_beside_another_finds_nothing_lost(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one makes `events` and commits its batches while this one asks the log what should be there."""
    files = shop_oracle.sales(60, 2)
    put_all(platform, files)
    asked = Batches.last_taken_in

    def slowly(batches: Batches, instance: str) -> int | None:
        monkeypatch.setattr(Batches, "last_taken_in", asked)
        platform.run("shop")
        return asked(batches, instance)

    monkeypatch.setattr(Batches, "last_taken_in", slowly)

    with pytest.raises(Superseded):  # and not: rows are gone
        platform.run("shop", "--close")

    platform.run("shop", "--close")
    check(platform, files)
