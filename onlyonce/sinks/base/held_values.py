"""State which values the types of a sink can't hold, and refuse a row that has one by its column and value.

A user's function may compute a value that its sink can't hold. Such values are found at two moments:

1. Before any row is written: times outside the years 1 to 9999, strings that are not UTF-8, and strings and bytes that
   are too long for their column. No sink takes such a time or string, and a database may cut a string without an error.
   `outside` is the condition for a Spark frame, `any_outside` checks rows in memory.
2. After the sink has refused the rows: all limits of the sink. A database does not name the row, and not always the
   column. So `named` searches the rows and raises an error that names both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial, reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from onlyonce.api.pipeline import MySQL, Output, Postgres, Sink
from onlyonce.core import conversions
from onlyonce.core.column_types import Length
from onlyonce.core.errors import Refused
from onlyonce.engine import encoding
from onlyonce.engine.failures import translate
from onlyonce.engine.session import quoted
from onlyonce.sources.values import coercion

Lengths = Mapping[str, Length]
"""The columns of a table that take values up to a length, each with this length."""
LONGEST = 100
"""An error shows at most this many characters of a value."""


@dataclass(frozen=True)
class Limit:
    """Values that a sink can't hold.

    kinds     the types that have such values
    outside   returns the condition that is true for such a value, given the value and its type
    says      describes these values, for the error
    nested    whether the limit also holds for values inside structs, arrays and maps
    column    the column that has the limit; None: each column
    of_array  the same condition for an array of such values, if it needs no lambda: Spark compiles no lambda
    """

    kinds: tuple[type[DataType], ...]
    outside: Callable[[Column, DataType], Column]
    says: str
    nested: bool = True
    column: str | None = None
    of_array: Callable[[Column], Column] | None = None


def _outside_years(column: Column, kind: DataType) -> Column:
    of_kind = date if isinstance(kind, DateType) else datetime
    first, last = of_kind.min.isoformat(), of_kind.max.isoformat()
    zone = "Z" if isinstance(kind, TimestampType) else ""
    return ~column.between(F.lit(first + zone).cast(kind), F.lit(last + zone).cast(kind))


YEARS = Limit((DateType, TimestampType, TimestampNTZType), _outside_years, "a year outside 1 to 9999")
UTF8 = Limit(
    (StringType,), lambda column, _: ~F.is_valid_utf8(column), "bytes that are not UTF-8",
    of_array=lambda column: ~F.is_valid_utf8(F.array_join(column, ",")),
)  # fmt: skip
"""A cast from binary can make such a string. Nothing can read the smallest and largest string of its file."""
OF_EVERY_SINK = (YEARS, UTF8)
NUL = Limit(
    (StringType,),
    lambda column, _: F.contains(column, F.lit("\0")),
    "the NUL character, which no text or jsonb of PostgreSQL has",
)
NOT_FINITE = Limit(
    (FloatType, DoubleType), lambda column, _: F.isnan(column) | (F.abs(column) == float("inf")),
    "NaN or infinity, which no FLOAT or DOUBLE of MySQL has", nested=False,
)  # fmt: skip


def limits(sink: Sink, lengths: Lengths) -> tuple[Limit, ...]:
    """Return all limits of a sink: of every sink, of its kind of database, and of its table's columns."""
    own = (NUL,) if isinstance(sink, Postgres) else (NOT_FINITE,) if isinstance(sink, MySQL) else ()
    return (*OF_EVERY_SINK, *own, *_of_lengths(lengths))


def _of_lengths(lengths: Lengths) -> Iterator[Limit]:
    for name, length in lengths.items():
        says = (
            f"more than {length.most:,} {'bytes' if length.in_bytes else 'characters'}: it is {length.kind} in "
            "the table"
        )
        yield Limit((StringType, BinaryType), partial(_longer, length=length), says, nested=False, column=name)


def _longer(column: Column, kind: DataType, length: Length) -> Column:
    size = F.octet_length(column) if length.in_bytes or isinstance(kind, BinaryType) else F.char_length(column)
    return size > length.most


def outside(schema: StructType, lengths: Lengths) -> Column | None:
    """Return the condition that is true for a row to refuse before any row is written; None if no row can be one.

    Such a row has a time or string that no sink takes, or a value that is too long. A database may cut spaces from the
    end of a longer string without an error.
    """
    first = (*OF_EVERY_SINK, *_of_lengths(lengths))
    found = [
        _any(F.col(quoted(field.name)), field.dataType, limit)
        for field in schema.fields
        for limit in first
        if _limits(limit, field)
    ]
    return reduce(or_, found) if found else None


def any_outside(rows: pa.Table, lengths: Lengths) -> bool:
    """Return whether `outside` would be true for any of these rows, which the driver holds in memory."""
    times = (time for column in rows.columns for chunk in column.chunks for time in _times(chunk))
    return (
        any(map(_most_outside, times))
        or _is_damaged(rows)
        or any(
            _longest(rows.column(name), one) > one.most for name, one in lengths.items() if name in rows.column_names
        )
    )


def _is_damaged(rows: pa.Table) -> bool:
    """Return whether a string, or one inside a column, is not UTF-8."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        return True
    return False


def _longest(column: pa.ChunkedArray, length: Length) -> int:
    in_bytes = length.in_bytes or not pa.types.is_string(column.type)
    return pc.max(pc.binary_length(column) if in_bytes else pc.utf8_length(column)).as_py() or 0


def hidden(rows: StructType, written: StructType) -> bool:
    """Return whether times inside nested columns are written as parts of a string, which `any_outside` can't check."""
    strings = {field.name for field in written.fields if isinstance(field.dataType, StringType)}
    return any(field.name in strings and _has(field.dataType, YEARS) for field in rows.fields)


def _times(column: pa.Array) -> Iterator[pa.Array]:
    """Yield the dates and timestamps of a column, including those inside structs, arrays and maps."""
    if pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type):
        yield column
    elif pa.types.is_struct(column.type):
        for field in column.flatten():
            yield from _times(field)
    elif pa.types.is_nested(column.type):
        yield from _times(coercion.elements(column))


def _most_outside(column: pa.Array) -> bool:
    a_day, whole = (1, pa.int32()) if pa.types.is_date32(column.type) else (86_400_000_000, pa.int64())
    most = pc.min_max(column.cast(whole))
    return most["min"].is_valid and not (
        conversions.FIRST_DAY * a_day <= most["min"].as_py()
        and most["max"].as_py() < (conversions.LAST_DAY + 1) * a_day
    )


@contextmanager
def named(output: Output, rows: DataFrame, lengths: Lengths, *, outside: bool = False) -> Iterator[None]:
    """Run the block, which writes the rows. If the sink refuses them, raise an error that names the column and value.

    If no value is outside the sink's limits, the sink's own error is raised.

    outside   whether the rows have a value that is refused before any row is written (`outside`, `any_outside`); then
              the block does not run
    """
    if outside and (found := _first(output, rows, lengths)):
        raise found
    try:
        yield
    except Exception as error:
        if not isinstance(translate(error), Refused) or (found := _first(output, rows, lengths)) is None:
            raise
        raise found from error


def _first(output: Output, rows: DataFrame, lengths: Lengths) -> Refused | None:
    """Return the refusal of the first row with a value that the sink can't hold; None if no row has one."""
    wrong = [
        (field, limit)
        for field in rows.schema.fields
        for limit in limits(output.sink, lengths)
        if _limits(limit, field)
    ]
    if not wrong:
        return None
    outside = [_any(F.col(quoted(field.name)), field.dataType, limit) for field, limit in wrong]
    shown = [F.substring(_text(field), 1, LONGEST) for field in rows.schema.fields]
    found = rows.filter(reduce(or_, outside)).select(F.array(*outside), F.array(*shown)).limit(1).collect()
    if not found:
        return None
    flags, texts = found[0]
    field, limit = wrong[flags.index(True)]
    row = dict(zip(rows.columns, texts, strict=True))
    record = ", ".join(f"{name}={row[name]}" for name in output.sink.keys or rows.columns)
    return Refused(
        f"output {output.name}: column {field.name} is {row[field.name]!r} ({field.dataType.simpleString()}), and "
        f"its sink can't hold {limit.says}. The row is {record!r}",
        data="nothing of this row's unit was written",
        hint="let the function give another value, or reject the record",
    )


def _limits(limit: Limit, field: StructField) -> bool:
    return (limit.column is None or limit.column.lower() == field.name.lower()) and _has(field.dataType, limit)


def _has(kind: DataType, limit: Limit) -> bool:
    if isinstance(kind, limit.kinds):
        return True
    if not limit.nested:
        return False
    if isinstance(kind, StructType):
        return any(_has(field.dataType, limit) for field in kind.fields)
    if isinstance(kind, MapType):
        return _has(kind.keyType, limit) or _has(kind.valueType, limit)
    return isinstance(kind, ArrayType) and _has(kind.elementType, limit)


def _any(column: Column, kind: DataType, limit: Limit) -> Column:
    """Return whether a value, or one inside it, is outside a limit; false for a null."""
    if isinstance(kind, StructType):
        parts = [
            _any(column.getField(field.name), field.dataType, limit)
            for field in kind.fields
            if _has(field.dataType, limit)
        ]
    elif isinstance(kind, ArrayType):
        inside = kind.elementType
        if limit.of_array and isinstance(inside, limit.kinds):
            parts = [limit.of_array(column)]
        elif isinstance(inside, StructType):
            parts = [
                _any(column.getField(field.name), ArrayType(field.dataType), limit)
                for field in inside.fields
                if _has(field.dataType, limit)
            ]
        else:
            parts = [F.exists(column, lambda value: _any(value, inside, limit))]
    elif isinstance(kind, MapType):
        sides = ((F.map_keys(column), kind.keyType), (F.map_values(column), kind.valueType))
        parts = [_any(side, ArrayType(inside), limit) for side, inside in sides if _has(inside, limit)]
    else:
        parts = [limit.outside(column, kind)]
    return reduce(or_, [F.coalesce(part, F.lit(False)) for part in parts])


def _text(field: StructField) -> Column:
    column = F.col(quoted(field.name))
    return encoding.json(column, field.dataType) if encoding.is_nested(field.dataType) else column.cast("string")
