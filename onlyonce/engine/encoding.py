"""Encodes the values of a column as strings, exactly: one encoder for JSON, CSV, COPY and MySQL, which every sink uses.

Two different values have different strings, and a reader of the string gets the value back. Times have microseconds, a
null field of a struct is null, and bytes are Base64 (hexadecimal in COPY and MySQL). In JSON, NaN and infinity are the
strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from onlyonce.engine.session import quoted

TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
"""Spark writes times with milliseconds by default."""
JSON = TIMES | {"ignoreNullFields": "false", "timeZone": "UTC"}


def json(column: Column, kind: DataType) -> Column:
    """Return a nested column as JSON."""
    return F.to_json(_with_string_keys(column, kind), JSON)


def json_object(
    schema: StructType, names: Iterable[str] | None = None, named: Mapping[str, str] | None = None
) -> Column:
    """Return some columns of a row, or all, as one JSON object.

    `named` has the field of a column, if it is not its name.
    """
    fields = {name: (named or {}).get(name, name) for name in (schema.names if names is None else names)}
    chosen = StructType([StructField(field, schema[name].dataType) for name, field in fields.items()])
    return json(F.struct(*[F.col(quoted(name)).alias(field) for name, field in fields.items()]), chosen)


def strings(columns: Iterable[Column]) -> Column:
    """Return columns that are strings already as one JSON array of strings and nulls."""
    return F.to_json(F.array(*columns))


def is_nested(kind: DataType) -> bool:
    """Return whether a sink without nested types gets the column as JSON."""
    return isinstance(kind, StructType | ArrayType | MapType | VariantType)


def in_csv(field: StructField) -> Column:
    """Return a column in the form of CSV files: nested values as JSON, bytes in Base64."""
    column = F.col(quoted(field.name))
    if isinstance(field.dataType, BinaryType):
        return _base64(column).alias(field.name)
    return _flat(column, field.dataType).alias(field.name)


def in_copy(field: StructField) -> Column:
    """Return a column as PostgreSQL's COPY reads it: nested values as JSON, bytes in hexadecimal."""
    column = F.col(quoted(field.name))
    if isinstance(field.dataType, BinaryType):
        return F.concat(F.lit("\\x"), F.hex(column)).alias(field.name)
    return _flat(column, field.dataType).alias(field.name)


def in_mysql(field: StructField) -> Column:
    """Return a column as a string that MySQL reads as a value of the column's type. Bytes are in hexadecimal."""
    column, kind = F.col(quoted(field.name)), field.dataType
    if isinstance(kind, BooleanType):
        return column.cast("int").cast("string")
    if isinstance(kind, BinaryType):
        return F.hex(column)
    if isinstance(kind, FloatType):
        column = column.cast("double")  # the shortest string of the largest float is larger than the float
    return _flat(column, kind).cast("string")


def _base64(column: Column) -> Column:
    """Return bytes in Base64, for JSON. Spark's function breaks the string into lines of 76 characters."""
    return F.translate(F.base64(column), "\r\n", "")


def _flat(column: Column, kind: DataType) -> Column:
    return json(column, kind) if is_nested(kind) else column


def with_repeatable_keys(column: Column, kind: DataType) -> Column:
    """Return a column whose JSON is the same each time: `to_json` writes some keys as the address of an object."""
    by_address = _has_keys(kind, lambda key: isinstance(key, BinaryType) or is_nested(key))
    return _with_string_keys(column, kind) if by_address else column


def _with_string_keys(column: Column, kind: DataType) -> Column:
    """Return a value whose maps have strings as keys.

    `to_json` writes other keys as Spark holds them in memory: a time as a number, bytes as the address of an object.
    """
    if not _has_keys(kind, lambda key: not isinstance(key, StringType)):
        return column
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda value: _with_string_keys(value, kind.elementType))
    if isinstance(kind, MapType):
        by_string = F.transform_keys(column, lambda key, _: _key(key, kind.keyType))
        return F.transform_values(by_string, lambda _, value: _with_string_keys(value, kind.valueType))
    assert isinstance(kind, StructType)
    fields = [_with_string_keys(column.getField(field.name), field.dataType).alias(field.name) for field in kind.fields]
    return F.when(column.isNotNull(), F.struct(*fields))


def _has_keys(kind: DataType, of: Callable[[DataType], bool]) -> bool:
    if isinstance(kind, MapType):
        return of(kind.keyType) or _has_keys(kind.valueType, of)
    if isinstance(kind, ArrayType):
        return _has_keys(kind.elementType, of)
    return isinstance(kind, StructType) and any(_has_keys(field.dataType, of) for field in kind.fields)


def _key(key: Column, kind: DataType) -> Column:
    if isinstance(kind, BinaryType):
        return _base64(key)
    if isinstance(kind, TimestampType):
        return F.date_format(key, TIMES["timestampFormat"])
    if isinstance(kind, TimestampNTZType):
        return F.date_format(key, TIMES["timestampNTZFormat"])
    return _flat(key, kind).cast("string")
