"""Files that Spark reads by their names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from onlyonce.engine import session

pytestmark = pytest.mark.spark


def test_a_path_is_no_pattern(spark: SparkSession, tmp_path: Path) -> None:
    """Each file is read once, and a file that a pattern would match is not read."""
    names = ["home [1]/a=1.parquet", "home [1]/b.parquet", "home {1}*/c?.parquet", "home 1/a=1.parquet"]
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"n": [number]}), tmp_path / name)
    rows = session.file_reader(spark).schema("n long").parquet(*[str(tmp_path / name) for name in names[:3]])
    assert sorted(tuple(row) for row in rows.collect()) == [(0,), (1,), (2,)]
