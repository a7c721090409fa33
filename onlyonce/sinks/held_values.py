"""State which values the types of a sink can't hold, and refuse a row that has one by its column and value.

The domain of values is that of `events`: dates and times of the years 1 to 9999. A function may compute others, and a sink may hold less. A database
refuses what it can't hold, but names neither the row nor, always, the column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
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

from onlyonce.declare.pipeline import MySQL, Output, Postgres, Sink
from onlyonce.model.errors import Refused
from onlyonce.session import encoding
from onlyonce.session.failures import translate
from onlyonce.session.names import quoted

LONGEST = 100
"""Characters of a value that an error shows."""
FIRST, LAST = -719_162, 2_932_896
"""The days 0001-01-01 and 9999-12-31, counted from 1970."""


@dataclass(frozen=True)
class Limit:
    """Values that a sink can't hold. `kinds`: the types that have them; `outside`: whether a value is one; `says`: what they are."""

    kinds: tuple[type[DataType], ...]
    outside: Callable[[Column, DataType], Column]
    says: str
    nested: bool = True


def _outside_years(column: Column, kind: DataType) -> Column:
    first, last = ("0001-01-01", "9999-12-31") if isinstance(kind, DateType) else ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")
    zone = "Z" if isinstance(kind, TimestampType) else ""
    return ~column.between(F.lit(first + zone).cast(kind), F.lit(last + zone).cast(kind))


YEARS = Limit((DateType, TimestampType, TimestampNTZType), _outside_years, "a year outside 1 to 9999")
NUL = Limit((StringType,), lambda column, _: F.contains(column, F.lit("\0")), "the NUL character, which no text or jsonb of PostgreSQL has")
NOT_FINITE = Limit(
    (FloatType, DoubleType), lambda column, _: F.isnan(column) | (F.abs(column) == float("inf")),
    "NaN or infinity, which no FLOAT or DOUBLE of MySQL has", nested=False,
)  # fmt: skip


def limits(sink: Sink) -> tuple[Limit, ...]:
    """Return what the types of a sink can't hold of the values that a function may give."""
    if isinstance(sink, Postgres):
        return (YEARS, NUL)
    return (YEARS, NOT_FINITE) if isinstance(sink, MySQL) else (YEARS,)


def outside_years(schema: StructType) -> Column | None:
    """Return whether a row has a date or time that no sink takes; None if it has no such columns."""
    found = [_any(F.col(quoted(field.name)), field.dataType, YEARS) for field in schema.fields if _has(field.dataType, YEARS)]
    return reduce(or_, found) if found else None


def any_outside_years(rows: pa.Table) -> bool:
    """Return whether rows in memory have a date or time that no sink takes. Nested columns are not searched: a small batch has them as strings."""
    return any(_most_outside(column) for column in rows.columns if pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type))


def _most_outside(column: pa.ChunkedArray) -> bool:
    a_day, whole = (1, pa.int32()) if pa.types.is_date32(column.type) else (86_400_000_000, pa.int64())
    most = pc.min_max(column.cast(whole))
    return most["min"].is_valid and not (FIRST * a_day <= most["min"].as_py() and most["max"].as_py() < (LAST + 1) * a_day)


@contextmanager
def named(output: Output, rows: DataFrame, *, outside: bool = False) -> Iterator[None]:
    """Inside, a sink's refusal names the column, the value and the row if the cause is a value that the sink can't hold. If the rows are known to
    have one (`outside`), refuse them before anything is written."""
    if outside and (found := _first(output, rows)):
        raise found
    try:
        yield
    except Exception as error:
        if not isinstance(translate(error), Refused) or (found := _first(output, rows)) is None:
            raise
        raise found from error


def _first(output: Output, rows: DataFrame) -> Refused | None:
    """Return the refusal of the first row with a value that the sink can't hold; None if no row has one."""
    wrong = [(field, limit) for field in rows.schema.fields for limit in limits(output.sink) if _has(field.dataType, limit)]
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
        f"output {output.name}: column {field.name} is {row[field.name]!r}, and its sink can't hold {limit.says}. The row is {record!r}",
        data="nothing of this row's unit was written",
        hint="let the function give another value, or reject the record",
    )


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
        parts = [_any(column.getField(field.name), field.dataType, limit) for field in kind.fields if _has(field.dataType, limit)]
    elif isinstance(kind, ArrayType):
        inside = kind.elementType
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
