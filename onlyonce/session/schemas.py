"""Schemas from their DDL, each parsed once. Spark parses in its JVM, which would slow a small batch down."""

from __future__ import annotations

from functools import cache

from pyspark.sql.types import StructType


@cache
def of(ddl: str) -> StructType:
    """The schema; nobody changes it."""
    return StructType.fromDDL(ddl)
