"""Rows that Spark computes a second time, because the executor that held them was lost, are compared with their unit
before they are committed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.core.backfill import Span
from onlyonce.core.batch import to_micros
from onlyonce.core.errors import InvariantBroken
from onlyonce.core.units import Content, UnitId
from onlyonce.outputs import results
from onlyonce.sinks.base import content, pinned
from onlyonce.sinks.delta import delta_upsert, sink_delta
from onlyonce.tables import rewrite
from onlyonce.tables.commit import Commit
from tests.support import shop_oracle
from tests.support.iceberg_shop import configured
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

UNIT = UnitId("shop/added/1", 0, "added", 0)
COMMIT = Commit("app", 0, str(UNIT), 1, "as meant")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPAN = Span(to_micros(NOON) or 0, to_micros(NOON + timedelta(hours=1)) or 0)


def test_no_sink_commits_rows_that_differ_from_their_unit(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: SparkSession, tmp_path: Path
) -> None:
    """What was held of the rows is lost between the look at them and the write, as with an executor."""
    for name, value in configured(f"sqlite:///{tmp_path}/lake.db", tmp_path).items():
        monkeypatch.setenv(name, value)
    platform = new_platform("tests/support/backfilled_shop.py")
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES="0")
    platform.put("shop", "sales.jsonl", shop_oracle.sales(40, 1)[0])
    monkeypatch.setattr(results, "measured", partial(_lost, results.measured))

    with pytest.raises(InvariantBroken) as stopped:
        platform.run("shop")

    reasons = [
        one for one in (stopped.value.what, *stopped.value.data.split("; so does ")) if "computed a second time" in one
    ]
    assert {name for name in ("added", "replaced", "iced") for one in reasons if f"/{name}/0 has 40 rows" in one} == {
        "added",
        "replaced",
        "iced",
    }
    assert platform.table("shop/added").empty
    assert platform.table("shop/replaced").empty
    units = platform.sql("SELECT sink, rows FROM onlyonce.commits WHERE sink <> 'events'").set_index("sink")["rows"]
    assert dict(units) == {"added": 40, "iced": 40}, "the files of an upsert are compared before there is a unit"


def _lost(measured: Any, rows: DataFrame, *sink: Any) -> Any:
    found = measured(rows, *sink)
    rows.sparkSession.catalog.clearCache()
    return found


def content_of(rows: DataFrame) -> Content:
    return content.total(rows.schema, content.tallied(rows, rows.schema).values())


@pytest.mark.parametrize("again", ["the same", "another"])
@pytest.mark.parametrize("how", ["append", "backfill"])
def test_files_are_compared_with_the_unit(spark: SparkSession, tmp_path: Path, again: str, how: str) -> None:
    """Rows that are written again beside new ones do not count."""
    path = tmp_path / "table"
    made = F.udf((lambda: uuid4().int / 2**128) if again == "another" else (lambda: 0.5), "double").asNondeterministic()
    rows = spark.range(50, numPartitions=4).select(F.lit(NOON).alias("window_start"), "id", made().alias("chance"))
    old = rows.filter("id < 3").withColumn("window_start", F.col("window_start") - F.expr("INTERVAL 1 HOUR"))
    write_deltalake(path, old.toArrow())
    check = partial(pinned.check, UNIT, content_of(rows))
    hashed = content.hashed(rows)

    def write() -> Any:
        if how == "append":
            return sink_delta.append_rows(hashed, path, COMMIT, check=check)
        whole = delta_upsert.Replace(hashed, path, SPAN, "window_date", check)
        return rewrite.change_rows(path, COMMIT, whole)

    if again == "another":
        with pytest.raises(InvariantBroken, match="Spark's tasks wrote 50 rows"):
            write()
    else:
        write()
    assert DeltaTable(path).to_pyarrow_table().num_rows == (3 if again == "another" else 53)
