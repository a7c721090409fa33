"""The declared type of a column, told from its values. Pure.

It is a type that a declaration takes (Spark's DDL). If values disagree, or there are none, it is `string`, by which
nothing is lost. Who calls it: `sample`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types

from onlyonce.model.values import conversions
from onlyonce.model.values.conversions import Cell, Number, Unfit

TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?")
DAY = re.compile(r"\d{4}-\d\d-\d\d")

PLAIN: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (types.is_boolean, "boolean"),
    (types.is_int8, "tinyint"),
    (types.is_int16, "smallint"),
    (types.is_int32, "int"),
    (types.is_uint8, "smallint"),
    (types.is_uint16, "int"),
    (types.is_integer, "long"),
    (types.is_float16, "float"),
    (types.is_float32, "float"),
    (types.is_floating, "double"),
    (types.is_date, "date"),
    (types.is_timestamp, "timestamp"),
    (types.is_binary, "binary"),
    (types.is_large_binary, "binary"),
    (types.is_fixed_size_binary, "binary"),
)


def of_json(values: Sequence[Any]) -> str:
    """The type of a field of JSON objects. A text that is a time everywhere is a time."""
    there = [value for value in values if value is not None]
    kinds = {type(value) for value in there}
    if not there:
        return "string"
    if kinds == {bool}:
        return "boolean"
    if kinds <= {int, float}:
        # A double has not all integers of 19 digits: the conversion table refuses those.
        kind = "bigint" if kinds == {int} else "double"
        fits = all(_is(kind, Number(repr(value))) for value in there)
        return "string" if not fits else "long" if kind == "bigint" else kind
    if kinds == {str}:
        return _of_texts(there)
    if kinds == {list}:
        return f"array<{of_json([one for value in there for one in value])}>"
    if kinds == {dict}:
        return _struct(there)
    return "string"


def of_csv(texts: Sequence[str | None]) -> str:
    """The type of a column of CSV; nothing between two commas is null."""
    there = [text for text in texts if text]
    if not there:
        return "string"
    for kind in ("boolean", "bigint", "double"):
        if all(_is(kind, Cell(text)) for text in there):
            return "long" if kind == "bigint" else kind
    return _of_texts(there)


def of_arrow(kind: pa.DataType) -> str:
    """The type of a column of Parquet or Avro.

    One that a declaration has no word for is `string`: the file then says what does not fit."""
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_map(kind):
        return f"map<{of_arrow(kind.key_type)},{of_arrow(kind.item_type)}>"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{of_arrow(kind.value_type)}>"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{of_arrow(field.type)}' for field in kind)}>"
    if types.is_dictionary(kind):
        return of_arrow(kind.value_type)
    return next((name for fits, name in PLAIN if fits(kind)), "string")


def _is(kind: str, value: Any) -> bool:
    try:
        conversions.of_type(kind)(value, [])
    except Unfit:
        return False
    return True


def _of_texts(texts: Sequence[str]) -> str:
    if all(TIME.fullmatch(text) for text in texts):
        return "timestamp"
    return "date" if all(DAY.fullmatch(text) for text in texts) else "string"


def _struct(objects: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for one in objects for name in one))
    if not names or not all(re.fullmatch(r"\w+", name) for name in names):
        return "string"
    return f"struct<{','.join(f'{name}:{of_json([one.get(name) for one in objects])}' for name in names)}>"
