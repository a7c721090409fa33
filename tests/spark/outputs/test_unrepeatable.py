"""What Spark's plan of a function shows of values that differ at the next run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F

from onlyonce import check
from onlyonce.api.joins_and_state import Join
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.core.unrepeatable import Kind
from onlyonce.core.windows import Fixed
from onlyonce.outputs.unrepeatable import found_in, shared

pytestmark = pytest.mark.spark
Function = Callable[[DataFrame], DataFrame]
CHANCE, CLOCK, ORDER = Kind.CHANCE, Kind.CLOCK, Kind.ORDER


def _column(made: Callable[[], Any]) -> Function:
    return lambda rows: rows.withColumn("c", made())


def _by_id(made: Callable[[], Any]) -> Function:
    return lambda rows: rows.groupBy("id").agg(made().alias("c"))


def _drawn(rows: DataFrame) -> DataFrame:
    return rows.withColumn("c", F.rand())


def _unsure() -> Any:
    return F.udf(lambda _: 1, "long").asNondeterministic()("a")


def _many_columns(rows: DataFrame) -> DataFrame:
    return rows.withColumn("c", F.struct(*[F.lit(n).alias(f"c{n}") for n in range(40)], F.now().alias("now")))


DIFFERS: dict[str, tuple[Function, Kind]] = {
    "rand": (_drawn, CHANCE),
    "rand of a seed": (_column(lambda: F.rand(7)), CHANCE),
    "randn": (_column(F.randn), CHANCE),
    "randstr": (_column(lambda: F.randstr(4)), CHANCE),
    "uniform": (_column(lambda: F.uniform(1, F.lit(4))), CHANCE),
    "uuid": (_column(lambda: F.expr("uuid()")), CHANCE),
    "shuffle": (_column(lambda: F.shuffle(F.array("a", "a"))), CHANCE),
    "monotonically_increasing_id": (_column(F.monotonically_increasing_id), CHANCE),
    "spark_partition_id": (_column(F.spark_partition_id), CHANCE),
    "input_file_name": (_column(F.input_file_name), CHANCE),
    "a Python function that says so": (_column(_unsure), CHANCE),
    "what the list does not have": (_column(lambda: F.expr("reflect('java.util.UUID', 'randomUUID')")), CHANCE),
    "in a subquery": (lambda rows: rows.filter("a > (SELECT max(r) FROM (SELECT rand() AS r))"), CHANCE),
    "a sample": (lambda rows: rows.sample(0.5), CHANCE),
    "current_timestamp": (_column(F.current_timestamp), CLOCK),
    "now": (_column(F.now), CLOCK),
    "current_date": (_column(F.current_date), CLOCK),
    "localtimestamp": (_column(F.localtimestamp), CLOCK),
    "current_time": (_column(lambda: F.expr("current_time()")), CLOCK),
    "unix_timestamp of nothing": (_column(F.unix_timestamp), CLOCK),
    "behind many columns": (_many_columns, CLOCK),
    "first": (_by_id(lambda: F.first("a")), ORDER),
    "last": (_by_id(lambda: F.last("a")), ORDER),
    "min_by": (_by_id(lambda: F.min_by("a", "t")), ORDER),
    "max_by": (_by_id(lambda: F.max_by("a", "t")), ORDER),
    "any_value": (_by_id(lambda: F.any_value("a")), ORDER),
    "collect_list": (_by_id(lambda: F.collect_list("a")), ORDER),
    "array_agg": (_by_id(lambda: F.array_agg("a")), ORDER),
    "collect_set": (_by_id(lambda: F.collect_set("a")), ORDER),
    "listagg": (_by_id(lambda: F.listagg("id")), ORDER),
    "string_agg": (_by_id(lambda: F.string_agg("id")), ORDER),
    "mode": (_by_id(lambda: F.mode("a")), ORDER),
    "a limit": (lambda rows: rows.limit(3), ORDER),
    "one of each": (lambda rows: rows.dropDuplicates(["id"]), ORDER),
}  # fmt: skip
SAME: dict[str, Function] = {
    "a sorted list": _by_id(lambda: F.array_sort(F.collect_list("a"))),
    "sort_array of a set": _by_id(lambda: F.sort_array(F.collect_set("a"))),
    "the size of a set": _by_id(lambda: F.size(F.collect_set("a"))),
    "the smallest in an order": _by_id(lambda: F.min(F.struct("t", "a")).a),
    "the same in SQL": _by_id(lambda: F.expr("min(struct(t, a)).a")),
    "a mode that breaks ties": _by_id(lambda: F.mode("a", True)),
    "a list in an order": _by_id(lambda: F.expr("listagg(id) WITHIN GROUP (ORDER BY id)")),
    "the first in an order": _column(lambda: F.first("a").over(SparkWindow.partitionBy("id").orderBy("a"))),
    "its name in a string": _column(lambda: F.lit("now()")),
    "a column of its name": lambda rows: rows.withColumnRenamed("a", "now"),
    "a whole duplicate": lambda rows: rows.dropDuplicates(),
    "the first of an order": lambda rows: rows.orderBy("id").limit(3),
    "the platform's own barrier": lambda rows: rows.filter(F.when(F.spark_partition_id() >= 0, F.col("a") > 1)),
    "a Python function": _column(lambda: F.udf(lambda _: 1, "long")("a")),
}
DECIDES: dict[str, tuple[Function, bool]] = {
    "a value": (_drawn, False),
    "a filter by it": (lambda rows: rows.filter(F.rand() > 0.5), True),
    "a filter by what is computed from it": (lambda rows: _drawn(rows).withColumn("d", F.col("c") + 1).filter("d > 1"), True),
    "a filter by another column": (lambda rows: _drawn(rows).filter("a > 1"), False),
    "a join by it": (lambda rows: _drawn(rows).join(rows.select(F.col("a").alias("b")), F.expr("c > b")), True),
    "a filter by the clock": (lambda rows: rows.filter(F.col("t") < F.current_timestamp()), True),
    "a filter by any value of a group": (lambda rows: rows.groupBy("id").agg(F.first("a").alias("any")).withColumn("d", F.col("any") + 1).filter("d > 1"), True),
    "any value of a group": (lambda rows: rows.groupBy("id").agg(F.first("a").alias("any")).filter("id > 'a'"), False),
    "any of some duplicates": (lambda rows: rows.dropDuplicates(["id"]), True),
    "a group of it": (lambda rows: _drawn(rows).groupBy("c").count(), True),
}  # fmt: skip


@pytest.fixture
def rows(spark: Any) -> DataFrame:
    """Frames without rows, as a check gives a function."""
    made: DataFrame = spark.createDataFrame([], "id string, a long, t timestamp")
    return made


@pytest.mark.parametrize("kind", DIFFERS)
def test_what_differs_is_found(rows: DataFrame, kind: str) -> None:
    """Once, with its kind."""
    function, wanted = DIFFERS[kind]
    assert [one.listed.kind for one in found_in(function(rows))] == [wanted]


@pytest.mark.parametrize("kind", SAME)
def test_what_is_the_same_is_not_staged(rows: DataFrame, kind: str) -> None:
    """It costs nothing then."""
    assert found_in(SAME[kind](rows)) == []


@pytest.mark.parametrize("kind", DECIDES)
def test_what_decides_which_rows_there_are_is_found(rows: DataFrame, kind: str) -> None:
    """Also by a column that is computed from it."""
    function, decides = DECIDES[kind]
    assert [one.decides for one in found_in(function(rows))] == [decides]


def with_number(rows: DataFrame) -> DataFrame:
    """A side of a join with a random value."""
    return rows.select("id", "oo_event_time", F.rand().alias("number"))


def some(rows: DataFrame) -> DataFrame:
    """A side of a join whose rows chance chooses."""
    return rows.filter(F.rand() > 0.5).select("id", "oo_event_time")


def any_of_each(rows: DataFrame) -> DataFrame:
    """A side of a join that keeps any record of some duplicates."""
    return rows.dropDuplicates(["id"]).select("id", "oo_event_time")


def recent(rows: DataFrame) -> DataFrame:
    """A side of a join that the clock chooses."""
    return rows.filter("oo_event_time < current_timestamp()").select("id", "oo_event_time")


def every(rows: DataFrame) -> DataFrame:
    """A side of a join."""
    return rows.select("id", "oo_event_time")


def drawn(rows: DataFrame) -> DataFrame:
    """A random sum of each window."""
    return rows.withColumn("c", F.rand()).groupBy("oo_window").agg(F.sum("c").alias("c"))


def counted(rows: DataFrame) -> DataFrame:
    """How many rows a window has."""
    return rows.groupBy("oo_window").agg(F.count("*").alias("rows"))


def timed(rows: DataFrame) -> DataFrame:
    """When it was counted."""
    return counted(rows).withColumn("now", F.current_timestamp())


def opened(rows: DataFrame) -> DataFrame:
    """Any record of each window."""
    return rows.groupBy("oo_window").agg(F.first("id").alias("id"))


ME = "tests.spark.outputs.test_unrepeatable"
MINUTE, HOUR, DAY = Fixed(timedelta(minutes=1)), Fixed(timedelta(hours=1)), Fixed(timedelta(days=1))


def _join(left: str) -> Output:
    join = Join(left=f"{ME}:{left}", right=f"{ME}:every", on="id", within=timedelta(seconds=1))
    return Output(name="pairs", join=join, sink=Delta())


def _shapes(spark: Any, *outputs: Output) -> Mapping[str, str]:
    pipeline = Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=outputs
    )
    found: dict[str, str] = {}
    for root in pipeline.roots():
        found |= check.function_shapes(spark, pipeline, root).staged
    return found


def _window(name: str, **given: Any) -> Output:
    options: dict[str, Any] = {"window": MINUTE} | given
    return Output(name=name, transform=f"{ME}:{name}", sink=Delta(), **options)


def _chained(before: str) -> tuple[Output, Output]:
    return _window(before), _window("counted", from_output=before, window=HOUR)


STAGED: dict[str, tuple[tuple[Output, ...], set[str]]] = {
    "nothing": ((_window("counted"),), set()),
    "a chance": ((_window("drawn"),), {"drawn"}),
    "the clock": ((_window("timed"),), {"timed"}),
    "the clock, not staged": ((_window("timed", stable_input=False),), set()),
    "declared": ((_window("counted", stable_input=True),), {"counted"}),
    "made from another": ((_window("drawn"), _window("counted", from_output="drawn", window=None)), {"drawn"}),
    "its own function": ((_window("counted"), _window("drawn", from_output="counted", window=None)), {"drawn"}),
    "a side with a random value": ((_join("with_number"),), {"pairs"}),
    "a join": ((_join("every"),), set()),
    "the end of a chain": ((_window("counted"), _window("drawn", from_output="counted", window=HOUR)), {"drawn"}),
    "the clock at the end of a chain": ((_window("counted"), _window("timed", from_output="counted", window=HOUR)), {"timed"}),
}  # fmt: skip
REFUSED: dict[str, tuple[tuple[Output, ...], str]] = {
    "chance, not staged": ((_window("drawn", stable_input=False),), r"is not deterministic \(rand\(\) draws .*stable_input=False"),
    "a side that chance chooses": ((_join("some"),), r"rand\(\) .*decides which rows a side has"),
    "a side that the order of rows chooses": ((_join("any_of_each"),), "Deduplicate .*decides which rows a side has"),
    "a side that the clock chooses": ((_join("recent"),), r"current_timestamp\(\) .*decides which rows a side has"),
    "chance before a chain": (_chained("drawn"), r"made from the closed windows of drawn, and there rand\(\) draws"),
    "the clock before a chain": (_chained("timed"), r"made from the closed windows of timed, and there current_timestamp\(\)"),
    "an order before a chain": (_chained("opened"), r"made from the closed windows of opened, and there first\(id\) takes"),
    "the clock at the beginning of a long chain": (
        (_window("timed"), _window("counted", from_output="timed", window=HOUR), _window("drawn", from_output="counted", window=DAY)),
        "made from the closed windows of timed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", STAGED)
def test_which_outputs_are_staged(spark: Any, kind: str) -> None:
    """Each by its own function; an output made from another one gets the stored rows."""
    outputs, staged = STAGED[kind]
    assert set(_shapes(spark, *outputs)) == staged


@pytest.mark.parametrize("kind", REFUSED)
def test_what_staging_cannot_keep_is_refused(spark: Any, kind: str) -> None:
    """Before anything is read."""
    outputs, said = REFUSED[kind]
    with pytest.raises(Refused, match=said):
        _shapes(spark, *outputs)


def test_a_draw_that_two_results_share_is_found(rows: DataFrame) -> None:
    """Two draws are none that they share."""
    one = _drawn(rows)
    assert shared(one.filter("a > 1").unionByName(one.filter("a <= 1"))) is not None
    assert shared(_drawn(rows).unionByName(_drawn(rows))) is None
