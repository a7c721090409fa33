"""Functions that are wrong in ways that a test of a user's should find out, and right ones that look like them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def listed(rows: DataFrame) -> DataFrame:
    """The ids in the order in which they came."""
    return rows.groupBy("oo_window").agg(F.collect_list("id").alias("ids"))


def drawn(rows: DataFrame) -> DataFrame:
    """A draw."""
    return rows.withColumn("drawn", F.rand()).groupBy("oo_window", "shop").agg(F.sum("drawn").alias("weight"))


def firsts(rows: DataFrame) -> DataFrame:
    """The first price that came."""
    return rows.groupBy("oo_window", "shop").agg(F.first("cents").alias("opening"))


def by_batch(rows: DataFrame) -> DataFrame:
    """Numbers that depend on where in its batch a row is."""
    return rows.select("oo_window", "id", F.rand(7).alias("number"))


def sorted_list(rows: DataFrame) -> DataFrame:
    """The ids in their own order."""
    return rows.groupBy("oo_window").agg(F.array_sort(F.collect_list("id")).alias("ids"), F.avg("weight").alias("mean"))


def opening(rows: DataFrame) -> DataFrame:
    """The price of the earliest sale."""
    return rows.groupBy("oo_window", "shop").agg(F.min_by("cents", F.struct("oo_event_time", "id")).alias("opening"))


def misspelled(rows: DataFrame) -> DataFrame:
    """A column that is not there."""
    return rows.groupBy("oo_window").agg(F.sum("cent").alias("cents"))


def ranked(rows: DataFrame) -> DataFrame:
    """What a stream can't do."""
    return rows.groupBy("oo_window").agg(F.sum("cents").alias("cents")).orderBy("cents")
