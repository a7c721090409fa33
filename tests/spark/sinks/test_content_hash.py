"""The content of rows, as Spark counts it: what units of earlier versions have kept, and what a task counts of the same
rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.core.units import Content, FloatSum
from onlyonce.engine.session import ADAPTIVE, PARTITIONS, frame_of_local_rows, planned_once
from onlyonce.sinks.base import content as base_content
from onlyonce.sinks.base.content import HASH, Tally

pytestmark = pytest.mark.spark

SCHEMA = "id long, shop string, note string, weight double, tags array<string>"
ROWS: list[tuple[Any, ...]] = [
    (1, "a", "x", 0.5, ["t"]), (2, "a", None, None, []), (3, None, "a", -1.25, None), (4, "a", None, 2.0, None),
    (None, None, None, None, None), (5, "", "", 0.0, ["", "u"]), (5, "", "", 0.0, ["", "u"]), *[(n, "many", "more", n / 8, ["t"]) for n in range(200)],
]  # fmt: skip


def rows(spark: SparkSession) -> DataFrame:
    """Nulls in each column, texts that are empty, a row twice; hashes of both signs."""
    return spark.createDataFrame(ROWS, SCHEMA)


def as_it_was() -> Column:
    """The hash that the first versions have written, by which their units are compared."""
    nulls = [F.col(name).isNull().cast("int").cast("string") for name in ("id", "shop", "note", "weight", "tags")]
    return F.xxhash64(F.concat(F.lit(""), *nulls), "id", "shop", "note", "tags")


def test_a_row_has_the_hash_that_earlier_versions_have_given_it(spark: SparkSession) -> None:
    """A batch that an earlier version has begun is compared by it; a null counts by its place."""
    found = rows(spark).select(base_content.row_hash(rows(spark).schema).alias("now"), as_it_was().alias("then"))

    got = found.collect()
    assert [row.now for row in got] == [row.then for row in got]
    assert len({row.now for row in got}) == len(ROWS) - 1


def test_spark_and_a_task_count_the_same_content(spark: SparkSession) -> None:
    """However the rows are cut: a replay may be compared by either. The sum is that of Python's own integers."""
    frame = rows(spark)
    schema = frame.schema
    hashed = frame.withColumn(HASH, base_content.row_hash(schema)).toArrow()
    tally = Tally(HASH, {"weight": "weight"})
    for batch in hashed.to_batches(max_chunksize=7):
        tally.add(batch)
    total, xor = 0, 0
    for value in hashed.column(HASH).to_pylist():
        total, xor = total + value, xor ^ value
    mask = (1 << 64) - 1

    for by in ([], [F.length("shop")], [F.length("shop"), F.col("id")]):
        groups = base_content.tallied(frame.repartition(3), schema, by)
        counted = base_content.total(schema, groups.values())
        assert (
            counted
            == tally.content()
            == Content(len(ROWS), f"{total & mask:016x}{xor & mask:016x}", {"weight": counted.floats["weight"]})
        )
        assert {key: one.content().rows for key, one in groups.items()} == Counter(
            tuple(row) for row in frame.select(*by).collect()
        )
    assert {value < 0 for value in hashed.column(HASH).to_pylist()} == {True, False}


NESTED = "points array<struct<x:double,name:string>>, by map<string,float>, inner struct<deep:struct<y:double>,n:int>"


def test_floats_inside_nested_columns_are_compared(spark: SparkSession) -> None:
    """And so is what is beside them in the column. Spark and a task count the same."""
    right: list[Any] = [
        ([(0.5, "a"), (float("nan"), "b"), None], {"u": 1.5, "v": None}, ((2.5,), 1)),
        (None, None, None),
        ([], {}, (None, 2)),
    ]
    wrong: list[Any] = [
        [([(0.6, "a"), (float("nan"), "b"), None], *right[0][1:]), *right[1:]],
        [([(0.5, "z"), (float("nan"), "b"), None], *right[0][1:]), *right[1:]],
        [([(0.5, "a"), (1.0, "b"), None], *right[0][1:]), *right[1:]],
        [(right[0][0], {"u": 1.25, "v": None}, right[0][2]), *right[1:]],
        [(right[0][0], {"w": 1.5, "v": None}, right[0][2]), *right[1:]],
        [(right[0][0], {"u": 1.5, "v": None}, ((2.0,), 1)), *right[1:]],
    ]

    def content(rows: list[Any]) -> Content:
        frame = spark.createDataFrame(rows, NESTED).coalesce(1)
        table = frame.select(
            base_content.row_hash(frame.schema).alias(HASH), *base_content.carried(frame.schema)
        ).toArrow()
        tally = Tally(HASH, base_content.names_of(table.column_names))
        for batch in table.to_batches():
            tally.add(batch)
        counted = base_content.total(frame.schema, base_content.tallied(frame, frame.schema).values())
        assert counted == tally.content()
        return counted

    there = content(right)
    assert there.same_as(content(right[::-1]))
    assert there.floats == {
        "`points`[].`x`": FloatSum(0.5, 0.5, 1), "`by`[value]": FloatSum(1.5, 1.5), "`inner`.`deep`.`y`": FloatSum(2.5, 2.5),
    }  # fmt: skip
    assert [there.same_as(content(rows)) for rows in wrong] == [False] * len(wrong)


def test_no_rows_have_the_content_of_none(spark: SparkSession) -> None:
    """Whether they are in a group or in none."""
    nothing = rows(spark).filter("false")
    for by in ([], [F.length("shop")]):
        found = base_content.total(nothing.schema, base_content.tallied(nothing, nothing.schema, by).values())
        assert found == Content(0, "0" * 32, {"weight": FloatSum()})


def test_sums_of_floats_are_the_same_however_spark_cuts_the_rows(spark: SparkSession) -> None:
    """To the last digit, also if what is left of them is only rounding."""
    ledger = (
        spark.range(4000)
        .select(F.expr("(CASE WHEN id % 2 = 0 THEN 1 ELSE -1 END) * (id DIV 2) / 7").alias("amount"))
        .persist()
    )
    found = [
        base_content.total(ledger.schema, base_content.tallied(cut, ledger.schema).values())
        for cut in (ledger.coalesce(1), ledger.repartition(5), ledger.orderBy("amount"))
    ]
    ledger.unpersist()

    assert found[0] == found[1] == found[2]
    assert found[0].floats["amount"].total == 0.0


def test_a_frame_planned_once_is_the_same_and_its_session_as_it_was(spark: SparkSession) -> None:
    """Another output may plan in the session at that moment. What the session holds is read, not made again."""
    before = spark.conf.get(ADAPTIVE)
    held = rows(spark).withColumn("chance", F.rand()).persist()
    try:
        assert held.count() == len(ROWS)
        wanted = held.repartition(3, "id")

        once = planned_once(wanted)

        assert sorted(map(repr, once.collect())) == sorted(map(repr, wanted.collect()))
        assert "AdaptiveSparkPlan" not in once._jdf.queryExecution().executedPlan().toString()
        assert spark.conf.get(ADAPTIVE) == before == "true"
    finally:
        held.unpersist()


def test_rows_that_the_driver_has_given_are_exchanged_as_one_partition_and_no_others(spark: SparkSession) -> None:
    """What is read from anywhere else may be of any size."""
    before = spark.conf.get(PARTITIONS)
    given = spark.createDataFrame(pa.table({"shop": ["a", "b", "a"]})).groupBy("shop").count()
    read = spark.range(7).selectExpr("id % 3 AS shop").groupBy("shop").count()

    few = frame_of_local_rows(given)

    assert sorted(map(repr, few.collect())) == sorted(map(repr, given.collect()))
    plan = few._jdf.queryExecution().executedPlan()
    assert "AdaptiveSparkPlan" not in plan.toString()
    assert plan.outputPartitioning().numPartitions() == 1
    assert frame_of_local_rows(read) is read
    joined = given.join(read.withColumn("shop", F.lit("a")), "shop", "left")
    assert frame_of_local_rows(joined) is joined
    asking = given.filter("shop IN (SELECT CAST(id AS string) FROM range(7))")
    assert frame_of_local_rows(asking) is asking
    assert spark.conf.get(PARTITIONS) == before != "1"
