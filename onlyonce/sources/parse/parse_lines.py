"""Reads lines of JSON and CSV by the conversion table (`onlyonce/model/values`), as an expression over a column of
lines.

The expression is a Python function over Arrow arrays, so no parser of the JVM decides what a value is. Arrow reads a
block of lines first (`arrow_lines`); what it leaves is read line by line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, StringType, StructField, StructType, TimestampType

from onlyonce.model.values import conversions, line_values
from onlyonce.model.values.conversions import Cell, Unfit
from onlyonce.model.values.line_values import Row
from onlyonce.sources.parse import arrow_lines
from onlyonce.sources.parse.arrow_lines import Found

REASON, MORE, RECORD = "reason", "more", "record"
NOT_UTF8 = f"{line_values.NOT_UTF8}; its bytes are in hexadecimal"


class Reader(NamedTuple):
    """What reads a line by the table, and what reads a block of lines by Arrow before it."""

    read: Callable[[str], Row]
    by_arrow: Callable[[pa.Array], Found]


def reader(
    columns: StructType, named: Mapping[str, str], forms: Mapping[str, str], layout: str
) -> Callable[[Column], Column]:
    """Return the expression from a line to REASON, MORE (it has fields that are none of the declared columns) and
    RECORD with some columns.

    `named` has the name in the source of each declared column, `forms` the form of some times."""
    known = named.values()
    types = {
        field.name: conversions.with_forms(field.name, field.dataType.jsonValue(), forms) for field in columns.fields
    }
    kinds = json.dumps(
        [(field.name, named[field.name], field.dataType.simpleString(), types[field.name]) for field in columns.fields]
    )
    reader_of(kinds, tuple(known), layout)  # a type that no line can hold is refused before a task begins
    gives = StructType(
        [StructField(REASON, StringType()), StructField(MORE, BooleanType()), StructField(RECORD, columns)]
    )
    shape = to_arrow_type(gives, timezone="UTC")

    def read(lines: pa.Array) -> pa.Array:
        return rows(lines, reader_of(kinds, tuple(known), layout), shape)

    return arrow_udf(read, gives)


@cache
def instants() -> Callable[[Column], Column]:
    """Return the expression from a string to the instant that it is by the conversion table, or null."""

    def read(texts: pa.Array) -> pa.Array:
        return pa.array(
            [None if text is None else _instant(text) for text in texts.to_pylist()], pa.timestamp("us", "UTC")
        )

    return arrow_udf(read, TimestampType())


def _instant(text: str) -> Any:
    try:
        return conversions.instant(Cell(text), [])
    except Unfit:
        return None


@cache
def reader_of(kinds: str, known: tuple[str, ...], layout: str) -> Reader:
    """Return what reads lines into columns; `kinds` is JSON: of each column its name, its name in the source, its type
    as people write it, and `DataType.jsonValue` with the forms of its times."""
    declared = json.loads(kinds)
    of = conversions.of_cell if layout == "csv" else conversions.of_type
    columns = [line_values.Column(name, named, kind, of(json_type)) for name, named, kind, json_type in declared]
    types = {named: json_type for _, named, _, json_type in declared}
    if layout == "csv":
        return Reader(line_values.csv_reader(columns), partial(arrow_lines.read_csv, kinds=types))
    return Reader(line_values.json_reader(columns, known), partial(arrow_lines.read, kinds=types))


def rows(lines: pa.Array, reader: Reader, shape: pa.StructType) -> pa.Array:
    """Return what the lines are: by Arrow where it reads as the table does, and the others line by line."""
    by_arrow = reader.by_arrow(lines)
    if not len(by_arrow.rows):
        return by_table(lines, reader.read, shape)
    others = np.ones(len(lines), bool)
    others[by_arrow.rows] = False
    count, fields = len(by_arrow.rows), list(shape.field(RECORD).type)
    columns = [arrow_lines.typed(column, field.type) for column, field in zip(by_arrow.columns, fields, strict=True)]
    made = [
        pa.nulls(count, pa.string()),
        pa.repeat(pa.scalar(False), count),
        pa.StructArray.from_arrays(columns, fields=fields),
    ]
    found = pa.StructArray.from_arrays(made, fields=list(shape))
    if not others.any():
        return found
    rest = by_table(lines.filter(pa.array(others)), reader.read, shape)
    return arrow_lines.merged(Found(by_arrow.rows, [found]), Found(np.flatnonzero(others), [rest])).columns[0]


def by_table(lines: pa.Array, read: Callable[[str], Row], shape: pa.StructType) -> pa.Array:
    """Return what the lines are, line by line by the table."""
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
