"""A record's id from columns: the strings of their values by `onlyonce/model/values/id_strings.py`, and two chained
XXH64 hashes of them.

Spark's cast and Arrow's give the same strings for the types in AS_CAST; a test holds them against each other. The other
types are written by Python, since Spark's cast of a float or a decimal depends on the version of Java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf
from pyspark.sql.types import StringType, StructType

from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.values import id_strings
from onlyonce.session.names import quoted

AS_CAST = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz")
"""The types that Spark's and Arrow's own casts write as `id_strings` does."""


def hashes(identity: Iterable[Column]) -> tuple[Column, Column]:
    """Return both halves of an id from the strings of its values."""
    strings = [*identity]
    return F.xxhash64(*strings), F.xxhash64(F.lit("low"), *strings)


def salt(pipeline: Pipeline) -> list[Column]:
    """Return what goes before the values of an id if each of several sources has an id space of its own."""
    return [F.lit(pipeline.part.salt)] if pipeline.part and pipeline.part.salt else []


def strings(schema: StructType, names: Iterable[str]) -> list[Column]:
    """Return the strings of the id columns in order."""
    return [_string(name, schema[name].dataType.simpleString()) for name in names]


def of_arrow(column: pa.Array, kind: str) -> pa.Array:
    """Return the strings of a column of a type in AS_CAST."""
    if kind == "timestamp":
        return pc.replace_substring_regex(column.cast(pa.string()), r"\.?0*Z\z", "")
    return column.cast(pa.string())


def _string(name: str, kind: str) -> Column:
    column = F.col(quoted(name))
    return column.cast("string") if id_strings.named(kind) in AS_CAST else _written(id_strings.named(kind))(column)


@cache
def _written(name: str) -> Callable[[Column], Column]:
    def write(values: pa.Array) -> pa.Array:
        form = id_strings.FORMS[name]
        return pa.array([None if value is None else form(value) for value in values.to_pylist()], pa.string())

    return arrow_udf(write, StringType())
