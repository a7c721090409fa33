"""Commits to the platform's own tables, beside those of Spark's own writer."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.core.locations import on_disk
from onlyonce.tables import commit as tables_commit
from onlyonce.tables import own_tables
from onlyonce.tables.commit import Appended, Own
from tests.support import sparks_writer

pytestmark = pytest.mark.spark

INDEXED = "high,at,incarnation"
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, 0, 0, 0, 999_000, tzinfo=UTC),
    datetime(9999, 12, 31, tzinfo=UTC),
]


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Of two kinds in two files each; one kind has no times."""
    given = [
        ("kept" if n % 2 else "control", n - 9, TIMES[n % 3] if n % 2 else None, f"shop/{n}", n) for n in range(18)
    ]
    return spark.createDataFrame(
        given, "kind string, high long, at timestamp, incarnation string, free int"
    ).repartition(2, "high")


def written(rows: DataFrame, folder: Path) -> list[Path]:
    """The same files as Spark's writer would have written into the table."""
    rows.write.partitionBy("kind").parquet(str(folder))
    return sorted(folder.rglob("*.parquet"))


def statistics(path: Path, version: int) -> Counter[Any]:
    """(kind, what Delta's log says of the file) of each file of a commit."""
    log = (path / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    added = [entry["add"] for entry in map(json.loads, log) if "add" in entry]
    return Counter(
        (file["partitionValues"]["kind"], json.dumps(json.loads(file["stats"]), sort_keys=True)) for file in added
    )


def _read(spark: SparkSession, path: Path, chosen: str) -> list[Any]:
    # Times as text: Python's own would be in the driver's time zone, which the year 1 is not in.
    rows = spark.read.format("delta").load(str(path)).filter(F.expr(chosen))
    return rows.withColumn("at", F.col("at").cast("string")).collect()


def test_what_spark_reads_and_skips_by_is_what_its_own_writer_would_have_written(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    """The same rows in the same files: the same statistics of each, the same rows by every filter, as a stream the
    same."""
    commit = tables_commit.Commit("app", 0, "app/0", 1, "")
    ours, sparks = tmp_path / "ours", tmp_path / "sparks"
    for path in (ours, sparks):
        tables_commit.make(path, rows.schema, spark, ["kind"], {tables_commit.SKIPPING: INDEXED})
    own_tables.append(lambda folder: written(rows, on_disk(folder)), Appended(ours), commit)
    sparks_writer.append(rows, sparks, commit, ["kind"])

    assert statistics(ours, 1) == statistics(sparks, 1)
    for chosen in (
        "true",
        "high = 3",
        "at >= timestamp'2026-01-01'",
        "kind = 'kept' AND incarnation > 'shop/3'",
        "at IS NULL",
    ):
        found, wanted = (Counter(map(str, _read(spark, path, chosen))) for path in (ours, sparks))
        assert found == wanted
        assert found
    streamed = spark.readStream.format("delta").load(str(ours)).writeStream.format("memory").queryName("streamed")
    streamed.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    streamed_rows = spark.table("streamed").withColumn("at", F.col("at").cast("string")).collect()
    assert Counter(map(str, streamed_rows)) == Counter(map(str, _read(spark, ours, "true")))


def test_spark_reads_a_new_version_without_a_job_by_a_checksum_that_it_finds_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also after a commit that left none: it is counted anew. Spark itself compares it with all that the table has."""
    path = tmp_path / "table"
    tables_commit.make(
        path, spark.range(1).withColumn("kind", F.lit("a")).schema, spark, ["kind"], tables_commit.KEEP_ALL
    )
    table = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(path))  # type: ignore[union-attr]
    none = getattr(getattr(spark._jvm.scala, "None$"), "MODULE$")  # type: ignore[union-attr]
    own, jobs = Own(path), []
    made = table.update(False, none, none).metadata()
    for number in range(1, 6):
        if number == 3:
            (path / "_delta_log" / f"{number - 1:020}.crc").unlink()
        own_tables.append_rows([[{"id": number}], [{"id": -number}]], own.look(), commit(number), {"kind": "a"})
        spark.sparkContext.setJobGroup(f"look {number}", "")
        snapshot = table.update(False, none, none)
        assert snapshot.metadata().equals(made)
        jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(f"look {number}")))
        assert (snapshot.version(), snapshot.checksumOpt().get().numFiles()) == (number, 2 * number)
        assert snapshot.validateChecksum(getattr(snapshot, "validateChecksum$default$1")())
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert jobs == [0] * 5


def test_a_checksum_goes_with_its_time(tmp_path: Path) -> None:
    path = tmp_path / "table"
    DeltaTable.create(str(path), pa.schema([("id", pa.int64())]))
    own = Own(path)
    for number in range(1, 2 * tables_commit.KEPT + 1):
        own_tables.append_rows([[{"id": number}]], own.look(), commit(number))
    assert len([*(path / "_delta_log").glob("*.crc")]) == tables_commit.KEPT + 1


def commit(number: int) -> tables_commit.Commit:
    """A commit of its own number."""
    return tables_commit.Commit("app", number, f"app/{number}", 1, "")
