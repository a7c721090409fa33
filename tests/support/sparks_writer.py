"""Spark's own writer of Delta, which the platform does not use: what ours are held beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.sinks.delta import delta_upsert
from onlyonce.tables import commit


def append(frame: DataFrame, path: Path, commit: commit.Commit, by: list[str]) -> None:
    """Append rows under a transaction."""
    writer = frame.write.format("delta").mode("append").option("userMetadata", commit.note())
    writer = writer.option("txnAppId", commit.app_id).option("txnVersion", commit.version)
    (writer.partitionBy(*by) if by else writer).save(str(path))


def replace(frame: DataFrame, path: Path, where: str) -> None:
    """Put rows in the place of those that a predicate names."""
    frame.write.format("delta").mode("overwrite").option("replaceWhere", where).save(str(path))


def merge(rows: DataFrame, path: Path, keys: list[str], newer: Column | None = None, gone: str | None = None) -> None:
    """An upsert by MERGE."""
    from delta.tables import DeltaTable

    there: Any = DeltaTable.forPath(rows.sparkSession, str(path)).alias("t")
    merge = there.merge(rows.alias("s"), delta_upsert.matched(keys))
    stored = [name for name in rows.columns if name != gone]
    values: dict[str, str | Column] = {f"`{name}`": F.col(f"s.`{name}`") for name in stored}
    if gone is None:
        merge.whenMatchedUpdate(newer, set=values).whenNotMatchedInsert(values=values).execute()
        return
    wins, goes = F.lit(True) if newer is None else newer, F.col(f"s.{gone}")
    merge = merge.whenMatchedDelete(goes & wins).whenMatchedUpdate(~goes & wins, set=values)
    merge.whenNotMatchedInsert(~goes, values=values).execute()
