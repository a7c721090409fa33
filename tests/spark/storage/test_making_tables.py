"""A Delta table that several drivers make at once, or that one was killed at: there is one table, and no run is
stuck."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tenacity
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from onlyonce.tables import commit

pytestmark = pytest.mark.spark

SCHEMA = StructType().add("n", "long")


def make(spark: SparkSession, path: Path) -> None:
    """By the product's function."""
    commit.make(path, SCHEMA, spark, [], commit.KEEP_ALL)


def begun(path: Path) -> Path:
    """A folder as it is between the making of its log and the first commit."""
    log = path / "_delta_log"
    log.mkdir(parents=True)
    (log / "_staged_commits").mkdir()
    (log / ".00000000000000000000.json.1f0c.tmp").write_text("{}")
    return path


def test_a_table_that_another_driver_is_making_is_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the other's table in the end, and no second one."""
    make(spark, other := tmp_path / "other")
    path = begun(tmp_path / "table")

    def ends(state: Any) -> float:
        shutil.copytree(other / "_delta_log", path / "_delta_log", dirs_exist_ok=True)
        return 0

    monkeypatch.setattr(commit, "MADE_WAIT", ends)
    make(spark, path)

    assert DeltaTable(str(path)).metadata().id == DeltaTable(str(other)).metadata().id
    assert DeltaTable(str(path)).version() == 0


def test_what_a_killed_driver_left_of_a_table_is_made_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run would ever begin again otherwise: Delta makes no table in a folder that is not empty."""
    monkeypatch.setattr(commit, "MADE_WAIT", tenacity.wait_none())
    monkeypatch.setattr(commit, "MADE_UNTIL", tenacity.stop_after_attempt(3))
    path = begun(tmp_path / "table")

    make(spark, path)

    assert DeltaTable(str(path)).version() == 0
    assert DeltaTable(str(path)).metadata().configuration == commit.KEEP_ALL


def test_a_folder_of_something_else_is_refused_at_once_and_stays(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a begun log too: whose file it is nobody knows."""
    monkeypatch.setattr(commit, "MADE_WAIT", lambda state: pytest.fail("nobody is waited for"))
    path = tmp_path / "table"
    path.mkdir()
    (path / "theirs.parquet").write_text("x")

    for there in (["theirs.parquet"], ["_delta_log", "theirs.parquet"]):
        with pytest.raises(AnalysisException, match="DELTA_"):
            make(spark, path)

        assert sorted(entry.name for entry in path.iterdir()) == there
        (path / "_delta_log").mkdir(exist_ok=True)
