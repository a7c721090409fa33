"""Appends to a user's Delta table by files and one commit, beside those of Spark's own writer."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from onlyonce.sinks.delta import sink_delta
from onlyonce.tables import commit
from tests.support import sparks_writer
from tests.support.platform import multiset

pytestmark = pytest.mark.spark

SCHEMA = (
    "flag boolean, tiny tinyint, small smallint, n int, big bigint, ratio float, share double, price "
    "decimal(20,3), word string, "
    "raw binary, day date, at timestamp, wall timestamp_ntz, list array<int>, inner struct<a:int,b:string>, "
    "`odd.é` string"
)
VALUES = """
(true, 1Y, 1S, 1, 1L, 1.5F, 2.5D, 1.125BD, 'a', X'00', DATE'1969-12-31', TIMESTAMP'1969-12-31 23:59:59.999999', TIMESTAMP_NTZ'2026-01-01 00:00:00.0005', array(1), named_struct('a', 1, 'b', 'x'), 'p'),
(false, -1Y, -1S, -7, 9000000000L, -1.5F, -2.5D, -12345.125BD, repeat('long', 20), X'FF', DATE'2026-01-01', TIMESTAMP'2026-01-01 00:00:00.0015', TIMESTAMP_NTZ'2026-03-01 00:00:00', array(), NULL, 'q'),
(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
COMMIT = commit.Commit("app", 0, "app/0", 1, "as meant")
FILTERS = (
    "n = -7", "big > 1", "price < 0", "word > repeat('long', 15)", "day < '1970-01-01'", "at >= timestamp'2026-01-01'", "word IS NULL",
    "wall > timestamp_ntz'2026-02-01'", "share <= -2.5", "flag", "inner.a = 1",
)  # fmt: skip


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Of each type that a column may have: a least, a largest and none."""
    return spark.sql(f"SELECT * FROM VALUES {VALUES.strip()}").toDF(*_names(spark)).to(_schema(spark))


def _schema(spark: SparkSession) -> Any:
    return spark.createDataFrame([], SCHEMA).schema


def _names(spark: SparkSession) -> list[str]:
    return _schema(spark).names


def _made(spark: SparkSession, path: Path, schema: Any, *, by: list[str], properties: dict[str, str]) -> Path:
    commit.make(path, schema, spark, by, properties)
    return path


def _statistics(path: Path) -> list[dict[str, Any]]:
    log = (path / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    return [json.loads(entry["add"]["stats"]) for entry in map(json.loads, log) if "add" in entry]


def test_an_append_by_files_is_read_and_skipped_as_sparks_own(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    """Of each type: the same rows by each filter, for Spark and for delta-rs; bounds that Spark's own bounds do not
    exceed."""
    ours = _made(spark, tmp_path / "ours", rows.schema, by=["day"], properties={})
    sparks = _made(spark, tmp_path / "sparks", rows.schema, by=["day"], properties={})
    assert sink_delta.append_rows(rows, ours, COMMIT) == 1
    sparks_writer.append(rows, sparks, COMMIT, ["day"])

    for chosen in ("true", *FILTERS):
        found, wanted = (
            Counter(map(str, spark.read.format("delta").load(str(path)).filter(chosen).collect()))
            for path in (ours, sparks)
        )
        assert found == wanted
        assert found
    plain = ["n", "big", "word"]
    assert multiset(DeltaTable(str(ours)).to_pandas(), *plain) == multiset(DeltaTable(str(sparks)).to_pandas(), *plain)
    assert _by_word(_statistics(ours)) == _by_word(_statistics(sparks))


def _by_word(found: list[dict[str, Any]]) -> dict[str, Any]:
    """By the words of a file, what both say of the columns whose bounds are exact: of times and long texts Delta has
    other ones."""
    exact = ("tiny", "small", "n", "big", "ratio", "share", "price", "odd.é", "inner")
    kept = {}
    for file in found:
        bounds = {
            part: {name: file[part].get(name) for name in exact if file[part].get(name) not in (None, {})}
            for part in ("minValues", "maxValues", "nullCount")
        }
        kept[str(file["minValues"].get("word"))] = {"rows": file["numRecords"], **bounds}
    return kept


def test_an_append_is_there_once_whoever_writes_it(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    """A replay by the other way finds the transaction of the first."""
    path = _made(spark, tmp_path / "table", rows.schema, by=[], properties={})
    sink_delta.append_rows(rows, path, COMMIT)
    sparks_writer.append(rows, path, COMMIT, [])
    sink_delta.append_rows(rows, path, COMMIT, replayed=True)

    assert spark.read.format("delta").load(str(path)).count() == 3
    assert DeltaTable(str(path)).version() == 1
