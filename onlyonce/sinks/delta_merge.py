"""A MERGE into a Delta table by keys, under a transaction id: its parts, as the sink and what it deletes share them. `t` is the table, `s` what arrives.

Who calls it: `sink_delta`, `delta_deletes`. Errors: those of Delta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.model.location import Location
from onlyonce.session.names import quoted
from onlyonce.storage import delta

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder

APP_ID = "spark.databricks.delta.write.txnAppId"
VERSION = "spark.databricks.delta.write.txnVersion"
NOTE = "spark.databricks.delta.commitInfo.userMetadata"


def matched(keys: Iterable[str], *further: Column) -> Column:
    """Whether a row of the table has the keys of one that arrives."""
    return reduce(and_, [*(F.col(f"t.{quoted(key)}").eqNullSafe(F.col(f"s.{quoted(key)}")) for key in keys), *further])


def as_new(newest_by: Iterable[str]) -> Column:
    """Whether an arriving row is as new as the one of its keys, or newer."""
    # A null is before all else: a row of before there was an order gives way.
    there, arriving = (F.struct(*[F.col(f"{side}.{quoted(name)}") for name in newest_by]) for side in "ts")
    return there <= arriving


def values(names: Iterable[str]) -> dict[str, str | Column]:
    """What is set, by column. Not by the actions that take all columns: they don't know a backtick in a name."""
    return {quoted(name): F.col(f"s.{quoted(name)}") for name in names}


def into(rows: DataFrame, path: Location, keys: Iterable[str], *further: Column) -> DeltaMergeBuilder:
    """A MERGE of rows into a table, without what becomes of them."""
    from delta.tables import DeltaTable

    table = DeltaTable.forPath(rows.sparkSession, str(path)).alias("t")
    return table.merge(rows.alias("s"), matched(keys, *further))


def under(session: SparkSession, commit: delta.Commit, write: Callable[[], None]) -> Callable[[], None]:
    """The same write under a transaction id."""

    def written() -> None:
        # The transaction of a MERGE is a session setting, and one that stays set skips later writes.
        settings_of_write = {APP_ID: commit.app_id, VERSION: str(commit.version), NOTE: commit.note()}
        for key, value in settings_of_write.items():
            session.conf.set(key, value)
        try:
            write()
        finally:
            for key in settings_of_write:
                session.conf.unset(key)

    return written
