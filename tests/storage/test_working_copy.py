"""The checkpoint that Spark works on a copy of: what is in the store is whole at each step, and of drivers at once one
plan stands."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from onlyonce import context
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.context import Query, WorkingCopy, run_query
from onlyonce.core.errors import Retryable
from onlyonce.core.locations import Location, location
from onlyonce.database.connect import Database
from onlyonce.tables import checkpoint, stores
from tests.support.s3 import S3

BATCHES, KEPT = 4, 6
ID = "5c9c9a4e-7a53-4b0e-9f0f-6a4f3c1d2b11"


def begun(place: Location) -> Location:
    """A checkpoint that has its identity, and no batch yet."""
    stores.of(place).put(place / "metadata", json.dumps({"id": ID}).encode())
    return place


def spark_writes(copy: WorkingCopy, kind: str, number: int, by: str = "us") -> None:
    """What Spark does in its folder."""
    (copy.path / kind).mkdir(parents=True, exist_ok=True)
    (copy.path / kind / str(number)).write_text(f'v1\n{{"by": "{by}"}}\n{{}}\n')


def a_batch(copy: WorkingCopy, number: int) -> None:
    """A batch from its plan to Spark's word of its end, which is in the store only with the next."""
    spark_writes(copy, "offsets", number)
    copy.planned(number)
    spark_writes(copy, "commits", number)


def test_the_store_has_the_plan_before_a_batch_and_its_end_before_the_next(place: Location, tmp_path: Path) -> None:
    """So whoever takes over finds the log at the checkpoint's last batch, or one ahead."""
    copy = WorkingCopy(begun(place), tmp_path / "copy")
    copy.fill()
    for number in range(BATCHES):
        a_batch(copy, number)
        assert (checkpoint.last(place, "offsets"), checkpoint.last(place, "commits")) == (number, number - 1)
        checkpoint.compare(place, "shop/receive/1", number)

    copy.ended()
    assert checkpoint.last(place, "commits") == BATCHES - 1
    after = WorkingCopy(place, tmp_path / "after")
    after.fill()
    assert checkpoint.last(after.path, "commits") == checkpoint.last(after.path, "offsets") == BATCHES - 1
    assert checkpoint.identity(after.path) == ID
    for number in (BATCHES - 2, BATCHES - 1):
        assert checkpoint.offsets(after.path, number) == checkpoint.offsets(place, number)


def test_of_two_drivers_with_one_batch_the_first_plan_stands(place: Location, tmp_path: Path) -> None:
    """The other one is told, and finds it at its next start."""
    ours, other = (WorkingCopy(begun(place), tmp_path / name) for name in ("ours", "other"))
    for copy, who in ((ours, "us"), (other, "them")):
        copy.fill()
        spark_writes(copy, "offsets", 0, by=who)
    other.planned(0)
    with pytest.raises(Retryable, match="another driver has planned batch 0"):
        ours.planned(0)
    assert "them" in str(checkpoint._text(place / "offsets" / "0"))

    ours.fill()
    ours.planned(0)  # of what is there
    assert checkpoint.offsets(ours.path, 0) == checkpoint.offsets(place, 0)


def test_a_checkpoint_has_no_more_than_its_last_batches(
    store: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what a kill between two steps has left goes at a start; and a batch asks for as much as any before."""
    monkeypatch.setattr(context, "KEPT", KEPT)
    monkeypatch.setattr(context, "AT_ONCE", 2)
    place = begun(location(f"{store.bucket()}/checkpoint"))
    copy, asked = WorkingCopy(place, tmp_path / "copy"), []
    copy.fill()
    for number in range(KEPT + BATCHES):
        store.well()
        a_batch(copy, number)
        asked.append(sum(store.counts.values()))
    assert max(asked) == 3  # that which removes some
    assert max(asked[:KEPT]) == asked[-1] == 2
    for kind in ("offsets", "commits"):
        assert len([*stores.of(place).names(place / kind)]) <= KEPT + 2
    stores.of(place).put(place / "offsets" / "0", b"left by a kill")
    copy.ended()
    copy.fill()
    for kind in ("offsets", "commits"):
        assert len([*stores.of(place).names(place / kind)]) == KEPT
    copy.fill()
    assert checkpoint.last(copy.path, "offsets") == KEPT + BATCHES - 1


@pytest.mark.spark
def test_a_query_goes_on_from_what_was_put_and_with_the_plan_of_another(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Spark itself: another driver plans the second batch just before, and the query starts again; then the copy
    is lost, as with its machine."""
    monkeypatch.setattr(Incarnations, "check_epoch", lambda *_: None)  # our epoch stays the highest
    for number in range(3):
        spark.createDataFrame([(number,)], "n long").coalesce(1).write.format("delta").mode("append").save(
            str(tmp_path / "table")
        )
    place, seen = begun(tmp_path / "checkpoint"), list[int]()
    query = Query(
        Driver("shop/receive/1", 1, 1, "run"),
        place,
        Database("postgresql://nowhere"),
        {},
        copy=WorkingCopy(place, tmp_path / "copy"),
    )

    def frame() -> DataFrame:
        return (
            context.working_copy_session(spark)
            .readStream.format("delta")
            .option("maxFilesPerTrigger", 1)
            .load(str(tmp_path / "table"))
        )

    def on_batch(rows: DataFrame, batch_id: int) -> None:
        seen.extend(row.n for row in rows.collect())
        if batch_id == 0:
            text = checkpoint._text(place / "offsets" / "0")
            theirs = text.replace('"index":0', '"index":1')
            assert theirs != text
            stores.of(place).put(place / "offsets" / "1", theirs.encode())

    run_query(query, frame(), "append", on_batch)
    assert sorted(seen) == [0, 1, 2]
    assert (checkpoint.last(place, "offsets"), checkpoint.last(place, "commits")) == (2, 2)

    shutil.rmtree(tmp_path / "copy")
    spark.createDataFrame([(3,)], "n long").coalesce(1).write.format("delta").mode("append").save(
        str(tmp_path / "table")
    )
    run_query(replace(query, copy=WorkingCopy(place, tmp_path / "another")), frame(), "append", on_batch)
    assert sorted(seen) == [0, 1, 2, 3]
