"""Schemas from their DDL, each parsed once: Spark asks its JVM for the parse, which a small batch would feel."""

from __future__ import annotations

from functools import cache

from pyspark.sql.types import StructType


@cache
def of(ddl: str) -> StructType:
    """The schema; nobody changes it."""
    return StructType.fromDDL(ddl)
