"""What no sink can hold of a column is found by Spark, and named."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from onlyonce.api.pipeline import Delta, Output
from onlyonce.core.errors import Refused
from onlyonce.outputs import results
from onlyonce.sinks.base import held_values

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "column", ["s", "named_struct('s', s)", "array(named_struct('s', s))", "map(s, 1)", "array(array(s))"]
)
def test_string_that_is_not_utf8_is_refused_by_its_row(spark: SparkSession, column: str) -> None:
    """Before any row is written, inside a column too. A null and other characters than ASCII pass."""
    output = Output(name="copied", transform="a:b", sink=Delta(path="copied"))
    valid = "(1, coalesce(cast(X'c3a9' AS string), '')), (2, '')"
    of = f"SELECT id, {column} AS note FROM VALUES {{}} AS rows (id, s)"
    assert not results.measured(spark.sql(of.format(valid)), output.sink).outside

    found = results.measured(spark.sql(of.format(f"{valid}, (3, cast(X'ff41' AS string))")), output.sink)

    assert found.outside
    with (
        pytest.raises(Refused, match=r"column note is .*its sink can't hold bytes that are not UTF-8. .*id=3"),
        held_values.named(output, found.rows, {}, outside=True),
    ):
        pytest.fail("the rows are written")
