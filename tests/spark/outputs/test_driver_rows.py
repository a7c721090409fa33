"""The driver holds no more rows than it has bytes for, however few they are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from onlyonce.core.frontier import Frontier
from onlyonce.core.windows import Fixed, Sliding, micros
from onlyonce.engine import driver_rows
from onlyonce.outputs import at_close
from onlyonce.receive.events import EventFiles, Stamp

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = micros(timedelta(hours=1))
TYPES = {
    "text": "repeat('é', 100 * {n})", "bytes": "cast(repeat('x', {n}) AS binary)", "long": "cast({n} AS bigint)", "decimal": "cast({n} AS decimal(38, 3))",
    "time": "timestamp_micros(cast({n} AS bigint))", "array": "array_repeat(repeat('x', {n}), {n})", "map": "map(repeat('k', {n}), repeat('v', {n}), 'b', '')",
    "struct": "named_struct('a', repeat('x', {n}), 'b', array(named_struct('c', {n}, 'd', 'x')))", "nothing": "cast(NULL AS string)",
    "floats": "array_repeat(cast({n} AS double), {n})", "a.b `c`": "repeat('x', {n})",
}  # fmt: skip


def rows(spark: SparkSession, count: int = 20) -> DataFrame:
    """Rows of every kind of type, of growing size."""
    return (
        spark.range(0, count, 1, 3)
        .selectExpr("cast(id AS int) AS id")
        .select(*[F.expr(made.format(n="id")).alias(name) for name, made in TYPES.items()])
    )


def sent(spark: SparkSession, work: Callable[[], Any]) -> int:
    """Return how many bytes the tasks of a piece of work have sent to the driver."""
    context = spark.sparkContext
    context.setJobGroup("sent", "")
    work()
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    tracker, store = context.statusTracker(), spark._jsparkSession.sparkContext().statusStore()  # type: ignore[attr-defined]
    stages = {stage for job in tracker.getJobIdsForGroup("sent") for stage in tracker.getJobInfo(job).stageIds}  # type: ignore[union-attr]
    return sum(store.lastStageAttempt(stage).resultSize() for stage in stages)


def test_a_row_is_measured_at_no_less_than_it_takes(spark: SparkSession) -> None:
    """Also without the columns whose measure has room to spare."""
    for frame in (rows(spark), rows(spark).select("text", "long", "floats", "map")):
        measured = frame.agg(F.sum(driver_rows.size(frame.schema)).alias("n")).collect()[0].n

        assert frame.toArrow().nbytes <= measured <= 20 * frame.toArrow().nbytes


def test_rows_that_fit_come_as_they_are(spark: SparkSession) -> None:
    found = driver_rows.fetched(rows(spark), 20)

    assert found is not None
    assert found.to_pylist() == rows(spark).toArrow().to_pylist()


def test_a_row_of_more_than_its_share_never_reaches_the_driver(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows have 100 times as many bytes as the driver holds, and one row alone has too many."""
    monkeypatch.setattr(driver_rows, "BYTES", 1 << 20)
    large = spark.range(0, 100, 1, 4).select("id", F.expr("repeat('x', 1 << 20)").alias("text"))
    one_large = spark.range(0, 100, 1, 4).select(
        "id", F.expr("CASE WHEN id = 50 THEN repeat('x', 1 << 22) ELSE '' END").alias("text")
    )
    found: list[Any] = []

    taken = sent(spark, lambda: found.append(driver_rows.fetched(large, 100)))
    assert taken < 1 << 20
    assert sent(spark, lambda: found.append(driver_rows.fetched(one_large, 100))) < 1 << 20
    assert found == [None, None]


@pytest.mark.parametrize("records", [1, 50])
def test_closing_records_are_read_if_their_bytes_fit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """A file of one large string many times is small; so many rows of it are not."""
    monkeypatch.setattr(driver_rows, "BYTES", 1 << 22)
    with EventFiles(tmp_path, Stamp(NOON, "shop/receive/1", 0, Frontier()), 0) as files:
        files.add(
            "kept",
            pa.record_batch(
                {
                    "oo_event_time": pa.array([NOON] * records, pa.timestamp("us", "UTC")),
                    "text": ["x" * (1 << 20)] * records,
                }
            ),
        )
    [path] = map(Path, files.paths)
    wanted = to_arrow_schema(
        StructType.fromDDL("oo_event_time timestamp, text string, oo_start timestamp, oo_end timestamp"), timezone="UTC"
    )
    noon = int(NOON.timestamp() * 1_000_000)

    found = at_close._held([path], wanted, Fixed(timedelta(hours=1)), 0, (noon, noon + HOUR))

    assert path.stat().st_size < 1 << 22
    assert (found is None) == (records == 50)
    if found is not None:
        assert [row["text"] for part in found for row in part.to_pylist()] == ["x" * (1 << 20)]


def test_records_are_held_once_for_each_closing_window(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file fits; its records in 60 windows do not."""
    monkeypatch.setattr(driver_rows, "BYTES", 1 << 22)
    with EventFiles(tmp_path, Stamp(NOON, "shop/receive/1", 0, Frontier()), 0) as files:
        files.add(
            "kept",
            pa.record_batch({"oo_event_time": pa.array([NOON], pa.timestamp("us", "UTC")), "text": ["x" * (1 << 20)]}),
        )
    wanted = to_arrow_schema(
        StructType.fromDDL("oo_event_time timestamp, text string, oo_start timestamp, oo_end timestamp"), timezone="UTC"
    )
    noon = int(NOON.timestamp() * 1_000_000)
    window = Sliding(timedelta(hours=1), timedelta(minutes=1))

    def held(ends: int) -> Any:
        return at_close._held([*map(Path, files.paths)], wanted, window, 0, (noon, noon + ends * HOUR // 60))

    assert len(held(2)) == 2
    assert held(60) is None
