"""Reads lines of JSON and CSV by the conversion table (`onlyonce/model/values`), as an expression over a column of lines.

The expression is a Python function over Arrow arrays, so no parser of the JVM decides what a value is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, StringType, StructField, StructType, TimestampType

from onlyonce.model.values import conversions, line_values
from onlyonce.model.values.conversions import Cell, Unfit
from onlyonce.model.values.line_values import Row

REASON, MORE, RECORD = "reason", "more", "record"
NOT_UTF8 = f"{line_values.NOT_UTF8}; its bytes are in hexadecimal"


def reader(columns: StructType, named: Mapping[str, str], layout: str) -> Callable[[Column], Column]:
    """Return the expression from a line to REASON, MORE (it has fields that are none of the declared columns) and RECORD with some
    columns. `named` has the name in the source of each declared column."""
    known = named.values()
    kinds = json.dumps([(field.name, named[field.name], field.dataType.simpleString(), field.dataType.jsonValue()) for field in columns.fields])
    _reader(kinds, tuple(known), layout)  # a type that no line can hold is refused before a task begins
    gives = StructType([StructField(REASON, StringType()), StructField(MORE, BooleanType()), StructField(RECORD, columns)])
    shape = to_arrow_type(gives, timezone="UTC")

    def read(lines: pa.Array) -> pa.Array:
        return _rows(lines, _reader(kinds, tuple(known), layout), shape)

    return arrow_udf(read, gives)


@cache
def instants() -> Callable[[Column], Column]:
    """Return the expression from a string to the instant that it is by the conversion table, or null."""

    def read(texts: pa.Array) -> pa.Array:
        return pa.array([None if text is None else _instant(text) for text in texts.to_pylist()], pa.timestamp("us", "UTC"))

    return arrow_udf(read, TimestampType())


def _instant(text: str) -> Any:
    try:
        return conversions.instant(Cell(text), [])
    except Unfit:
        return None


@cache
def _reader(kinds: str, known: tuple[str, ...], layout: str) -> Callable[[str], Row]:
    of = conversions.of_cell if layout == "csv" else conversions.of_type
    columns = [line_values.Column(name, named, kind, of(declared)) for name, named, kind, declared in json.loads(kinds)]
    return line_values.csv_reader(columns) if layout == "csv" else line_values.json_reader(columns, known)


def _rows(lines: pa.Array, read: Callable[[str], Row], shape: pa.StructType) -> pa.Array:
    rows = [_row(line, read) for line in lines.cast(pa.binary()).to_pylist()]
    reasons = pa.array([row.reason for row in rows], pa.string())
    more = pa.array([row.more for row in rows], pa.bool_())
    fields = list(shape.field(RECORD).type)
    nothing = [None] * len(fields)
    values = list(zip(*(row.values or nothing for row in rows), strict=True)) or [()] * len(fields)
    columns = [pa.array(column, field.type) for column, field in zip(values, fields, strict=True)]
    record = pa.StructArray.from_arrays(columns, fields=fields) if fields else pa.array([{}] * len(rows), pa.struct([]))
    return pa.StructArray.from_arrays([reasons, more, record], fields=list(shape))


def _row(line: bytes | None, read: Callable[[str], Row]) -> Row:
    if line is None:
        return Row(None)
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return Row(None, NOT_UTF8)
    return read(text)
