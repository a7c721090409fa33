"""Spark's reader for files that are named one by one.

Spark takes a path as a pattern: `[1]` in the name of a folder above it is enough. `__globPaths__` stops that for the
first look at a path. Spark looks again at each path that could be a pattern when it lists files, and then reads all of
them once more for each; with `recursiveFileLookup` it lists only once.
"""

from __future__ import annotations

from pyspark.sql import DataFrameReader, SparkSession


def reader(session: SparkSession) -> DataFrameReader:
    """Return a reader that takes each path literally, and that takes no column from the name of a folder."""
    return session.read.option("__globPaths__", "false").option("recursiveFileLookup", "true")
