"""Turns rows of typed columns into records. The declared columns are there; only what a type can't guarantee is checked.

An invalid record is kept as JSON. No other row is written as JSON: that takes longer than all the rest of its way (tests/benchmarks/test_lines.py, parquet).
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StringType, StructField, StructType

from onlyonce.model.values.line_values import NUL
from onlyonce.session import encoding
from onlyonce.session.names import quoted
from onlyonce.sources.parse.parse_lines import NOT_UTF8
from onlyonce.sources.parse.shown_columns import shown


def columns(rows: DataFrame, schema: StructType) -> DataFrame:
    """`rows` has oo_line and oo_refused (of files that can't be read) and the declared columns; a row that is wrong has its reason."""
    strings = [~F.is_valid_utf8(column) for column in _characters(schema)]
    broken: Column = F.coalesce(reduce(or_, strings), F.lit(False)) if strings else F.lit(False)
    return rows.withColumn("oo_refused", F.coalesce("oo_refused", F.when(broken, F.lit(NOT_UTF8)), _with_nul(schema)))


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


def _characters(schema: StructType) -> list[Column]:
    """Return the columns of strings; nested ones as JSON, which has their strings."""
    flat = [F.col(quoted(field.name)) for field in schema.fields if field.dataType == StringType()]
    return flat + [F.to_json(F.struct(F.col(quoted(field.name)))) for field in schema.fields if _is_nested(field)]


def _is_nested(field: StructField) -> bool:
    return isinstance(field.dataType, ArrayType | MapType | StructType)


def _with_nul(schema: StructType) -> Column:
    """Return the reason for the first column whose string has the NUL character; null if none has."""
    texts = {f.name: F.col(quoted(f.name)) for f in schema.fields if f.dataType == StringType()}
    has = {name: F.contains(text, F.lit("\0")) for name, text in texts.items()}
    if not has:
        return F.lit(None).cast("string")
    first = F.coalesce(*(F.when(has[name], F.struct(F.lit(name).alias("column"), text.alias("value"))) for name, text in texts.items()))
    told = F.concat(F.lit(f"{NUL}; column "), first["column"], F.lit(": "), shown(first["value"]))
    return F.when(F.coalesce(reduce(or_, has.values()), F.lit(False)), told)
