"""What must not be null inside a column of a Delta table, as functions of Spark's make them: a list that is collected
has no null, says its type."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from onlyonce.api.pipeline import Delta, Output
from onlyonce.core.errors import Refused
from onlyonce.sinks.delta import delta_files, delta_rows, sink_delta
from onlyonce.tables import commit, opening

pytestmark = pytest.mark.spark

NUMBER = IntegerType()
INNER = StructType([StructField("a", NUMBER, nullable=False), StructField("b", NUMBER)])
OUTPUT = Output(name="each", transform="tests.support.shop_transforms:each", sink=Delta())
KINDS: dict[str, tuple[Any, Any, list[Any], list[Any]]] = {
    "list": (ArrayType(NUMBER, containsNull=False), ArrayType(NUMBER), [[1, 2], [], None], [[1, None]]),
    "inner": (INNER, StructType([StructField("a", NUMBER), StructField("b", NUMBER)]), [(1, None), None], [(None, 1)]),
    "map": (MapType(StringType(), NUMBER, valueContainsNull=False), MapType(StringType(), NUMBER), [{"x": 1}, {}, None], [{"x": None}]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_null_where_the_table_has_none_is_refused_and_no_other(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    strict, loose, right, wrong = KINDS[kind]
    there, given = StructType([StructField("v", strict)]), StructType([StructField("v", loose)])
    commit.make(tmp_path / "table", there, spark, [], {})
    delta_rows.refuse_features(opening.table(tmp_path / "table"), tmp_path / "table", changes=False)
    fits = spark.createDataFrame([(value,) for value in right], given)
    delta_files.check_fit(OUTPUT, tmp_path / "table", fits, fits)
    sink_delta.append_rows(fits, tmp_path / "table", commit.Commit("app", 0, "app/0", 1, ""))
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == len(right)
    for value in wrong:
        rows = spark.createDataFrame([(value,)], given)
        with pytest.raises(Refused, match="NOT NULL within column v"):
            delta_files.check_fit(OUTPUT, tmp_path / "table", rows, rows)
    assert delta_files.inside_conditions(there, there) == {}


def test_a_table_of_collected_lists_is_written_again(spark: SparkSession, tmp_path: Path) -> None:
    """As an output makes it, by the types of its function; no row has to be looked into."""
    rows = (
        spark.range(4)
        .groupBy((F.col("id") % 2).alias("k"))
        .agg(F.collect_list("id").alias("ids"), F.struct(F.lit(1).alias("one")).alias("s"))
    )
    commit.make(tmp_path / "table", rows.schema, spark, [], {})
    for number in range(2):
        table = opening.table(tmp_path / "table")
        delta_rows.refuse_features(table, tmp_path / "table", changes=True)
        delta_files.check_fit(replace(OUTPUT), tmp_path / "table", rows, rows)
        sink_delta.append_rows(rows, tmp_path / "table", commit.Commit("app", number, f"app/{number}", 1, ""))
    assert opening.table(tmp_path / "table").to_pyarrow_table().num_rows == 4
