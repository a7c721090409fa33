"""A table by the name that a catalog of Spark's has for it: found at each look, its place kept and compared."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onlyonce.api.pipeline import DeltaSource, Pipeline
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.errors import Refused
from onlyonce.sources import backlog
from onlyonce.sources.all_sources import source_of
from tests.spark.sources.test_table_manifest import entries, inbox_of, register
from tests.support import tables
from tests.support.shop import SHOP
from tests.support.tables import rows

pytestmark = pytest.mark.spark


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    """A schema of the session's catalog, for one test."""
    spark.sql("CREATE SCHEMA named_tables")
    yield "named_tables"
    spark.sql("DROP SCHEMA named_tables CASCADE")


def of(name: str) -> Pipeline:
    """The test pipeline over the table of that name."""
    return replace(SHOP, source=DeltaSource(table=name), record_id=())


def put(spark: SparkSession, name: str, at: Path) -> None:
    """The name is of this folder's table."""
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{at}'")


def test_a_table_is_read_by_its_name_where_the_catalog_has_it(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    """Each row once, by places that the path would give too."""
    at = tmp_path / "a lake" / "sales"
    tables.append(at, ["a", "b"])
    put(spark, f"{schema}.sales", at)
    inbox = inbox_of(of(f"{schema}.sales"), tmp_path / "files")
    register(inbox, spark)
    tables.append(at, ["c"])
    register(inbox, spark)

    found = rows(inbox.pipeline, entries(inbox))

    assert Counter(row["id"] for row in found) == {"a": 1, "b": 1, "c": 1}
    by_path = tables.of(at)
    assert {(row["oo_file"], row["oo_position"]) for row in found} == {
        (row["oo_file"], row["oo_position"]) for row in rows(by_path, tables.take(by_path)[0])
    }


def test_a_table_that_is_elsewhere_now_is_refused(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    """Even where it is a copy of the old one, with its id."""
    tables.append(tmp_path / "old", ["a"])
    put(spark, f"{schema}.sales", tmp_path / "old")
    inbox = inbox_of(of(f"{schema}.sales"), tmp_path / "files")
    register(inbox, spark)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    put(spark, f"{schema}.sales", tmp_path / "new")

    with pytest.raises(Refused, match=f"is at {tmp_path}/new now, and was at {tmp_path}/old"):
        register(inbox, spark)


def test_a_name_without_a_delta_table_is_refused(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    """No such name, no such catalog, a table of another kind."""
    spark.sql(f"CREATE TABLE {schema}.plain (id STRING) USING parquet LOCATION '{tmp_path}/plain'")
    for name in (f"{schema}.nowhere", f"lake.{schema}.sales", f"{schema}.plain"):
        with pytest.raises(Refused, match="no Delta table"):
            register(inbox_of(of(name), tmp_path / name), spark)


def test_unread_rows_are_known_once_a_run_has_found_the_table(
    spark: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`onlyonce lag` asks no catalog. Before the first run nothing is known; then the rows by the log, at that place."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    tables.append(tmp_path / "sales", ["a", "b"])
    put(spark, f"{schema}.sales", tmp_path / "sales")
    pipeline = of(f"{schema}.sales")
    with pytest.raises(Refused, match="only Spark's catalog knows where"):
        backlog.unread(pipeline, None, {})
    source = source_of(pipeline, "shop", None)
    source.register(spark, Driver("shop/receive/1", 1, 1, "test"), datetime.now(UTC))
    tables.append(tmp_path / "sales", ["c", "d", "e"])

    found = backlog.unread(pipeline, source.last_batch(), {})

    assert (found.records, found.detail, found.failed) == (3, {"versions": 1, "files": 1}, False)
