"""Tables by the names that a catalog of Spark's has for them: Hive's metastore, Unity, a REST catalog, whichever the
session is configured with.

Who calls it: the source that reads a table by name, and the sink whose table has one. Errors: AnalysisException, as
Spark raises it for a name that the catalog does not have.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from onlyonce.model.storage import location as locations
from onlyonce.model.storage.location import Location
from onlyonce.session.names import quoted

LOCAL = "file:"


def described(spark: SparkSession, name: str) -> tuple[str, str]:
    """The format of a table, and where it is, as the catalog says it."""
    found = spark.sql(f"DESCRIBE DETAIL {full(name)}").select("format", "location").first()
    return (found.format, found.location) if found else ("nothing", "")


def full(name: str) -> str:
    """A name of two or three parts as SQL has it."""
    return ".".join(map(quoted, name.split(".")))


def place(where: str, whose: str) -> Location:
    """A location as a catalog says it. Raises Refused for a store that the platform does not know."""
    if not where.startswith(LOCAL):
        return locations.location(where, whose)
    return Path("/" + where.removeprefix(LOCAL).lstrip("/"))
