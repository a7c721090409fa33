"""The workers of an executor share what they keep of the catalog, in a folder that Spark removes with the executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from onlyonce.catalog import look_up
from onlyonce.catalog.worker_cache import LEAST
from onlyonce.engine.worker import Batches, each
from onlyonce.receive import batch_files

pytestmark = pytest.mark.spark


def task_of_nothing() -> None:
    """A task of receive, of a partition without a record."""
    nothing: Any = None
    assert list(batch_files.exactly_once(nothing, nothing, Path(), bounded=False)(iter([]))) == []


def test_workers_share_below_the_folder_into_which_spark_spills_and_a_driver_shares_nothing(
    spark: SparkSession,
) -> None:
    """What a task has kept the next finds; it lies beside Spark's own blocks."""

    def of_task(number: int) -> Batches:
        task_of_nothing()
        shared: Any = look_up._cache._shared
        there = shared.find("filter-0") is not None
        shared.keep("filter-0", [bytes(LEAST)])
        yield pa.RecordBatch.from_pydict({"folder": [str(shared.folder)], "there": [there]})

    told = [each(spark, [0], of_task, "folder string, there boolean").collect()[0] for _ in range(2)]
    task_of_nothing()

    assert [row.there for row in told] == [False, True]
    [folder] = {Path(row.folder) for row in told}
    assert (folder / "filter-0").exists()
    assert folder.parent.name.startswith("blockmgr-")
    assert str(folder.parent.parent) == spark.sparkContext.getConf().get("spark.local.dir")
    assert look_up._cache._shared is None
