"""A Delta table's constraints and generated columns over columns that the rows do not give."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onlyonce.api.pipeline import Delta, Output
from onlyonce.core.errors import Refused
from onlyonce.sinks.delta import delta_files, delta_upsert, sink_delta
from onlyonce.tables import commit as tables_commit
from onlyonce.tables import rewrite

pytestmark = pytest.mark.spark

APPEND = Output(name="each", transform="a:b", sink=Delta())
UPSERT = Output(name="each", transform="a:b", sink=Delta(write="upsert", keys=("id",)))


def commit(number: int) -> tables_commit.Commit:
    """The commit of a batch."""
    return tables_commit.Commit("app", number, f"app/{number}", 1, "")


def test_a_check_sees_rows_as_they_will_be_in_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """A new row has nulls where the output gives nothing, and a row of an upsert keeps what it had; so has what is
    generated from these."""
    path = tmp_path / "table"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id string, low int, high int, width int GENERATED ALWAYS AS (high - low)) "
        "USING delta"
    )
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT ordered CHECK (high IS NULL OR low <= high)")
    first = spark.createDataFrame([("a", 1, 5), ("b", 1, 2)], "id string, low int, high int")
    sink_delta.append_rows(first, path, commit(0))
    without = spark.createDataFrame([("c", 9)], "id string, low int")
    delta_files.check_fit(APPEND, path, without, without)
    sink_delta.append_rows(without, path, commit(1))

    for number, (low, right) in enumerate([(4, True), (6, False)], 2):
        rows = spark.createDataFrame([("a", low), ("d", low)], "id string, low int")
        plan = delta_upsert.Upsert(rows, path, ["id"])
        if right:
            delta_files.check_fit(UPSERT, path, rows, rows, lambda plan=plan: plan)  # type: ignore[misc]
            rewrite.change_rows(path, commit(number), plan)
        else:
            with pytest.raises(Refused, match="constraint ordered"):
                delta_files.check_fit(UPSERT, path, rows, rows, lambda plan=plan: plan)  # type: ignore[misc]
    found = {tuple(row) for row in spark.read.format("delta").load(str(path)).collect()}
    assert found == {("a", 4, 5, 1), ("b", 1, 2, 1), ("c", 9, None, None), ("d", 4, None, None)}

    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT named CHECK (high IS NOT NULL OR low > 3)")
    wrong = spark.createDataFrame([("e", 1)], "id string, low int")
    with pytest.raises(Refused, match="constraint named"):
        delta_files.check_fit(APPEND, path, wrong, wrong)
