"""Tables that Spark writes: their changes are those of Spark's own reader of the feed; what only Spark can read is
refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onlyonce.api.pipeline import DeltaSource, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.sources.listing import InputFile
from tests.support import tables
from tests.support.shop import SHOP
from tests.support.tables import rows, take

pytestmark = pytest.mark.spark

CHANGES = f"{SHOP.schema}, _change_type string, _commit_version long, _commit_timestamp timestamp"
VALUES = ("id", "shop", "cents", "_change_type", "_commit_version")


def made(spark: SparkSession, at: Path, properties: str) -> str:
    """A table of two shops, each with a time as its second partition column; gives how SQL calls it."""
    name = f"delta.`{at}`"
    spark.sql(
        f"CREATE TABLE {name} (id STRING, shop STRING, at TIMESTAMP, cents BIGINT, weight DOUBLE) USING delta "
        f"PARTITIONED BY (shop, at) TBLPROPERTIES ({properties})"
    )
    spark.sql(
        f"INSERT INTO {name} SELECT 'r' || id, CASE WHEN id % 2 = 0 THEN 'a b' END, timestamp'2026-01-01 "
        "12:00:00.5Z', id, 0.5D FROM range(10)"
    )
    return name


def test_changes_are_those_that_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    """INSERT, UPDATE, DELETE, MERGE, OPTIMIZE and an overwrite; partition columns, times and nulls among them."""
    name = made(spark, tmp_path / "t", "delta.enableChangeDataFeed = true")
    spark.sql(f"UPDATE {name} SET cents = cents + 100 WHERE cents < 3")
    spark.sql(f"DELETE FROM {name} WHERE cents IN (4, 5)")
    spark.sql(f"OPTIMIZE {name}")
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT 'r7' AS id, 1L AS cents UNION ALL SELECT 'new', 2L) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET cents = s.cents WHEN NOT MATCHED THEN INSERT (id, shop, at, cents) VALUES "
        "(s.id, 'c', timestamp'2026-01-01 12:00:00Z', s.cents)"
    )
    spark.sql(f"DELETE FROM {name} WHERE shop = 'c'")
    spark.sql(f"INSERT OVERWRITE {name} SELECT 'last', 'z', timestamp'2026-01-01 12:00:00Z', 9, 1.0D")
    pipeline: Pipeline = replace(
        SHOP, source=DeltaSource(path=str(tmp_path / "t"), changes=True), schema=CHANGES, record_id=()
    )

    found = rows(pipeline, take(pipeline)[0])

    theirs = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", 0)
        .load(str(tmp_path / "t"))
    )
    wanted = theirs.select(*VALUES, "at").toArrow().to_pylist()
    assert Counter(tuple(row[column] for column in (*VALUES, "at")) for row in found) == Counter(
        tuple(row.values()) for row in wanted
    )
    assert len({(row["oo_file"], row["oo_position"]) for row in found}) == len(found)


def test_deletion_vectors_are_refused_where_they_are_and_read_past_where_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A table may have them; the appends of versions without are read."""
    name = made(spark, tmp_path / "t", "delta.enableDeletionVectors = true, delta.enableChangeDataFeed = true")
    appends = tables.of(tmp_path / "t")
    assert len(rows(appends, take(appends)[0])) == 10
    spark.sql(f"DELETE FROM {name} WHERE cents = 2")

    with pytest.raises(Refused, match=r"version 2 (rewrites rows|has files with deletion vectors)"):
        take(appends, tables.behind(take_before(appends), tables.NOTHING))


def take_before(pipeline: Pipeline) -> list[InputFile]:
    """The first page: what comes before a version that is refused."""
    return next(tables.pages(pipeline, tables.NOTHING))
