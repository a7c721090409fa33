"""Guess the type of a column by its values, and the form of its times. Pure.

A type is one that a declaration takes (Spark's DDL). If values disagree, or there are none, it is `string`, by which
nothing is lost.

Only a form of times that is certain is proposed. A count since 1970 needs a column whose name says that it is a time.
The order of day and month is known only if the sample has a day beyond 12, or writes its dates with dots: then the day
comes first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import product
from typing import Any

import pyarrow as pa
from pyarrow import types

from onlyonce.core import conversions
from onlyonce.core.conversions import Cell, Number, Unfit

HAPPENED = ("event_time", "event_timestamp", "occurred", "happened", "timestamp", "time", "ts", "at", "created", "date")
"""Words in the name of a time at which something happened, the clearest first."""
HANDLED = ("updated", "modified", "loaded", "ingested", "inserted", "received", "processed", "arrived", "landed")
"""Words in the name of a time at which a system handled a record: that comes later, and again."""
FIRST, LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""A count since 1970 is taken for a time of these years only."""
DAYS = [
    order.replace("/", by) for by in "./-" for order in ("%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d/%b/%Y", "%d/%B/%Y")
]
LOOKS_LIKE = re.compile(r"[0-9]{1,4}[./-]")
CLOCKS = ("", "%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
PATTERNS = [
    f"{day}{by}{clock}{zone}"
    for day, clock in product(DAYS, CLOCKS)
    for by in ((" ", "T", ", ", ":") if clock else ("",))
    for zone in (("", "%z", " %z") if clock else ("",))
]


@cache
def _reader(pattern: str) -> conversions.Read:
    return conversions.time_reader(pattern)


def time_form_words(name: str) -> list[str]:
    """Return the words of a column's name in small letters."""
    return [word.lower() for word in re.split(r"_|(?<=[a-z])(?=[A-Z])", name) if word]


def time_form_of(name: str, kind: str, values: Sequence[Any]) -> tuple[str, tuple[str, ...]]:
    """Return the type of a column, and the forms that read all its values as times.

    If one form is left, it is certain; if several are left, none is. Without a form the type stays what it was.
    """
    there = [_written(value) for value in values if value is not None]
    if kind == "string" and there and all(isinstance(value, str) for value in values if value is not None):
        found = tuple(form for form in PATTERNS if all(map(_reader(form), there))) if LOOKS_LIKE.match(there[0]) else ()
        if found:
            return ("timestamp" if conversions.format_has_clock(found[0]) else "date"), found
    says_time = any(word in (*HAPPENED, *HANDLED) for word in time_form_words(name))
    if says_time and kind in ("long", "string") and there:
        found = tuple(form for form in conversions.EPOCHS if all(_is_count(value, form) for value in there))
        return ("timestamp" if found else kind), found
    return kind, ()


def read_time_form(value: Any, form: str) -> datetime | None:
    """Return the time of a value by a form; None if it has none."""
    try:
        found = conversions.formatted("timestamp", form)(_written(value), [])
    except Unfit:
        return None
    assert isinstance(found, datetime)
    return found


def has_time_form(value: Any, form: str | None) -> bool:
    """Return whether a value is a string that is a time by a form, or by ISO 8601 if the form is None."""
    if not isinstance(value, str):
        return False
    return bool(_reader(form)(Cell(value)) if form else TIME.fullmatch(value))


def _written(value: Any) -> str:
    return Cell(value) if isinstance(value, str) else Number(value)


def _is_count(value: str, form: str) -> bool:
    return (
        bool(conversions.WHOLE.fullmatch(value))
        and (found := read_time_form(Number(value), form)) is not None
        and FIRST <= found < LAST
    )


TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?")
DAY = re.compile(r"\d{4}-\d\d-\d\d")
COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The names that Spark takes without quotes."""
WITH_COMMA = re.compile(r"[-+]?(?:[0-9]{1,3}(?:[. \u00a0\u202f][0-9]{3})+|[0-9]+)(?:,[0-9]+)?")
THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})*")

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


def types_of_json(values: Sequence[Any]) -> str:
    """Return the type of a field of JSON objects. A string that is a time in every record is a time."""
    there = [value for value in values if value is not None]
    kinds = {type(value) for value in there}
    if not there:
        return "string"
    if kinds == {bool}:
        return "boolean"
    if kinds <= {int, float}:
        # A double does not have all integers of 19 digits, so the conversion table refuses such integers.
        kind = "bigint" if kinds == {int} else "double"
        fits = all(_is(kind, Number(repr(value))) for value in there)
        return "string" if not fits else "long" if kind == "bigint" else kind
    if kinds == {str}:
        return _of_texts(there)
    if kinds == {list}:
        return f"array<{types_of_json([one for value in there for one in value])}>"
    if kinds == {dict}:
        return _struct(there)
    return "string"


def types_of_csv(texts: Sequence[str | None]) -> str:
    """Return the type of a column of CSV; nothing between two commas is null."""
    there = [text for text in texts if text]
    if not there:
        return "string"
    for kind in ("boolean", "bigint", "double"):
        if all(_is(kind, Cell(text)) for text in there):
            return "long" if kind == "bigint" else kind
    return _of_texts(there)


def types_of_arrow(kind: pa.DataType) -> str:
    """Return the type of a column of Parquet or Avro.

    A type that a declaration has no word for becomes `string`: the file then shows what does not fit.
    """
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_map(kind):
        return f"map<{types_of_arrow(kind.key_type)},{types_of_arrow(kind.item_type)}>"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{types_of_arrow(kind.value_type)}>"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{types_of_arrow(field.type)}' for field in kind)}>"
    if types.is_dictionary(kind):
        return types_of_arrow(kind.value_type)
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
    if not names or not all(map(COLUMN.fullmatch, names)):
        return "string"
    return f"struct<{','.join(f'{name}:{types_of_json([one.get(name) for one in objects])}' for name in names)}>"
