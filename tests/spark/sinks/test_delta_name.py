"""A sink's Delta table under its name in Spark's own catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onlyonce.api.pipeline import Delta, Output
from onlyonce.core.errors import Refused
from onlyonce.sinks.delta import sink_delta
from onlyonce.tables import opening
from tests.support import shop_oracle
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

NAME = "spark_catalog.sales.each"


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[SparkSession]:
    """A schema of the catalog, empty in the end."""
    spark.sql("CREATE SCHEMA IF NOT EXISTS spark_catalog.sales")
    yield spark
    spark.sql("DROP SCHEMA spark_catalog.sales CASCADE")


def test_a_table_is_found_by_its_name_from_the_first_run_on(
    schema: SparkSession, new_platform: Callable[..., Platform]
) -> None:
    platform = new_platform("tests/support/named_shop.py")
    files = shop_oracle.sales(60, 2)
    for number, records in enumerate(files):
        platform.put("shop", f"sales-{number}.jsonl", list(records))
        platform.run("shop")
        seen = shop_oracle.distinct(files[: number + 1])
        assert multiset(schema.table(NAME).toPandas(), "id", "cents") == multiset(seen, "id", "cents")
    commits = opening.table(platform.home / "tables" / "shop" / "each").history()
    assert [entry for entry in commits if not entry.get("userMetadata")] == commits[
        -1:
    ]  # it was made; a name is no commit


def test_a_name_that_is_another_tables_or_in_no_schema_is_refused(schema: SparkSession, tmp_path: Path) -> None:
    for name in ("ours", "others"):
        schema.range(1).write.format("delta").save(str(tmp_path / name))
    output = Output(name="each", transform="tests.support.shop_transforms:each", sink=Delta(table=NAME))
    sink_delta.enter_name(schema, output, NAME, tmp_path / "ours")
    sink_delta.enter_name(schema, output, NAME, tmp_path / "ours")
    with pytest.raises(Refused, match=r"is a table at .*ours") as refused:
        sink_delta.enter_name(schema, output, NAME, tmp_path / "others")
    assert f"Delta(path='{tmp_path / 'ours'}'" in str(refused.value)
    with pytest.raises(Refused, match="does not take the table"):
        sink_delta.enter_name(schema, output, "spark_catalog.nowhere.each", tmp_path / "ours")
    schema.sql("CREATE TABLE spark_catalog.sales.plain (n INT) USING parquet")
    with pytest.raises(Refused, match="is a table of parquet"):
        sink_delta.enter_name(schema, replace(output), "spark_catalog.sales.plain", tmp_path / "ours")


def test_what_is_no_name_is_refused_where_it_is_declared() -> None:
    for wrong in ("each", "a.b.c.d", "s3://bucket/table"):
        with pytest.raises(Refused, match="not the name of a table"):
            Delta(table=wrong)
