"""The staged rows of an output with stable input."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from onlyonce.api.pipeline import Delta, Output
from onlyonce.outputs.results import staged

pytestmark = pytest.mark.spark
OUTPUT = Output(name="picked", transform="a:b", sink=Delta(), stable_input=True)


def test_rows_are_staged_again_if_the_function_has_changed(spark: SparkSession, tmp_path: Path) -> None:
    """A batch without a unit begins again under the changed declaration, with a new column and another type.

    Under one declaration the first rows stay.
    """
    context: Any = SimpleNamespace(folder=tmp_path / "a [1]", spark=spark)
    query: Any = SimpleNamespace(driver=SimpleNamespace(epoch=1))

    def rows_under(declaration: str, frame: DataFrame) -> list[tuple[Any, ...]]:
        batch: Any = SimpleNamespace(
            plan=SimpleNamespace(incarnation="shop/picked/1", batch_id=3, declaration_hash=declaration)
        )
        return [tuple(row) for row in staged(context, query, OUTPUT, batch, frame).collect()]

    old, again = (spark.createDataFrame([("a", cents)], "id string, cents long") for cents in (1, 2))
    new = spark.createDataFrame([("a", "1 EUR", True)], "id string, cents string, paid boolean")
    assert rows_under("before", old) == [("a", 1)]
    assert rows_under("before", again) == [("a", 1)]
    assert rows_under("after", new) == [("a", "1 EUR", True)]
    assert rows_under("before", again) == [("a", 1)]
