"""Writes rows of typed columns: as JSON, and as a hash of all columns.

Whether a value fits its column was decided when it was read (`coercion`).

An invalid record is kept as JSON. No other row is written as JSON: that takes longer than all the rest of its way
(tests/benchmarks/test_lines.py, parquet).
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructField, StructType

from onlyonce.session import encoding
from onlyonce.session.names import quoted


def line(schema: StructType) -> Column:
    """Return the row as JSON, or how it begins if it is too large."""
    return F.coalesce("oo_line", F.to_json(F.struct(*[F.col(quoted(name)) for name in schema.names]), encoding.TIMES))


def content(schema: StructType) -> Column:
    """Return a hash of all columns. Null and a value, 0.0 and -0.0 are different in it."""
    parts: list[Column] = []
    for field in schema.fields:
        column = F.col(quoted(field.name))
        if _is_nested(field):
            column = F.to_json(F.struct(column), encoding.TIMES)
        parts += [column.isNotNull(), column]  # XXH64 of Spark leaves nulls out
        if isinstance(field.dataType, FloatType | DoubleType):
            parts.append((column == 0) & F.startswith(column.cast("string"), F.lit("-")))
    return F.xxhash64(*parts)


def _is_nested(field: StructField) -> bool:
    return isinstance(field.dataType, ArrayType | MapType | StructType)
