"""The content of rows, whatever their order: a count, a hash over the exact values, and sums of the floats, also of those inside nested columns.

`of_groups` adds up what Spark has aggregated, `Tally` adds up Arrow batches. The figures are the same however the rows are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType, VariantType

from onlyonce.model.units import Content, FloatSum
from onlyonce.session import encoding
from onlyonce.session.names import quoted

MASK = (1 << 64) - 1
CARRIED = "oo_float_"
"""What the name of a column begins with that carries floats of the rows to a Tally and is not written."""
LOW = 0xFFFFFFFF
HASH = "oo_hash"
"""The column with the `row_hash` of each row, while rows are on their way to a sink."""


def row_hash(schema: StructType) -> Column:
    """A 64-bit hash of the exact columns of a row; nulls count by their place."""
    exact = [_exact(F.col(quoted(f.name)), f.dataType) for f in schema.fields if not isinstance(f.dataType, FloatType | DoubleType)]
    return F.xxhash64(_nulls(schema), *exact)


def aggregates(schema: StructType) -> list[Column]:
    """The aggregates of a group of rows, to be read by `of_groups`."""
    hashed = row_hash(schema)
    parts = [
        F.count(F.lit(1)).alias("rows"),
        # In halves: a sum of longs is a tenth of the work of one of decimals, and a half has room for 2^31 rows.
        F.sum(F.shiftright(hashed, 32)).alias("high"),
        F.sum(hashed.bitwiseAND(F.lit(LOW))).alias("low"),
        F.bit_xor(hashed).alias("xor"),
    ]
    return parts + [part.alias(f"{place} {name}") for name, column in floats(schema).items() for place, part in enumerate(_float_sum(column, array=name not in schema.names))]


def of_groups(groups: pa.Table) -> Content:
    """The content of all groups together; `groups` has the columns of `aggregates`."""
    rows, high, low = (_sum(groups.column(name)) for name in ("rows", "high", "low"))
    xor = int(np.bitwise_xor.reduce(pc.fill_null(groups.column("xor"), 0).to_numpy()))
    names = [column.removeprefix("0 ") for column in groups.column_names if column.startswith("0 ")]
    sums = {name: _added(*(groups.column(f"{place} {name}") for place in range(5))) for name in names}
    return Content(rows, _text((high << 32) + low, xor), sums)


class Tally:
    """Adds up the content of Arrow batches that carry their `row_hash` in a column. `floats`: column → its name in `floats`."""

    def __init__(self, hash_column: str, floats: dict[str, str]) -> None:
        self._hash_column, self._names = hash_column, floats
        self._rows, self._total, self._xor = 0, 0, 0
        self._floats = dict.fromkeys(floats.values(), FloatSum())

    def add(self, batch: pa.RecordBatch) -> None:
        """Count one batch in."""
        hashes = batch.column(self._hash_column).to_numpy(zero_copy_only=False)
        self._rows += batch.num_rows
        self._total += (int((hashes >> 32).sum()) << 32) + int((hashes & LOW).sum())
        self._xor ^= int(np.bitwise_xor.reduce(hashes)) if len(hashes) else 0
        for column, name in self._names.items():
            self._floats[name] += FloatSum.of(_values(batch.column(column)))

    def content(self) -> Content:
        """What was counted so far."""
        return Content(self._rows, _text(self._total, self._xor), dict(self._floats))


def floats(schema: StructType) -> dict[str, Column]:
    """Return what a unit keeps sums of: the float columns by their names, and arrays of the floats inside nested columns by their paths."""
    found = {}
    for field in schema.fields:
        column = F.col(quoted(field.name))
        if isinstance(field.dataType, FloatType | DoubleType):
            found[field.name] = column.cast("double")
        else:
            found |= {quoted(field.name) + path: inside(column) for path, inside in _inside(field.dataType)}
    return found


def carried(schema: StructType, written: Collection[str] = ()) -> list[Column]:
    """Return the floats as columns beside the rows as they are written, without those that are `written` under their own names. See `names_of`."""
    return [column.alias(CARRIED + name) for name, column in floats(schema).items() if name not in written]


def names_of(columns: Sequence[str]) -> dict[str, str]:
    """Return the columns of `carried` among others, each with the name under which its sum is kept."""
    return {column: column.removeprefix(CARRIED) for column in columns if column.startswith(CARRIED)}


def _inside(kind: DataType) -> list[tuple[str, Callable[[Column], Column]]]:
    """Return the paths to the floats inside a type, each with what makes an array of them."""
    if isinstance(kind, FloatType | DoubleType):
        return [("", lambda value: F.array(value.cast("double")))]
    if isinstance(kind, StructType):
        return [(f".{quoted(f.name)}{path}", _of_field(f.name, inside)) for f in kind.fields for path, inside in _inside(f.dataType)]
    if isinstance(kind, ArrayType):
        return [(f"[]{path}", _of_each(lambda value: value, inside)) for path, inside in _inside(kind.elementType)]
    if isinstance(kind, MapType):
        keys = [(f"[key]{path}", _of_each(F.map_keys, inside)) for path, inside in _inside(kind.keyType)]
        return keys + [(f"[value]{path}", _of_each(F.map_values, inside)) for path, inside in _inside(kind.valueType)]
    return []


def _of_field(name: str, inside: Callable[[Column], Column]) -> Callable[[Column], Column]:
    return lambda value: inside(value.getField(name))


def _of_each(elements: Callable[[Column], Column], inside: Callable[[Column], Column]) -> Callable[[Column], Column]:
    # Spark's flatten gives null if one of the arrays is null.
    return lambda value: F.flatten(F.transform(elements(value), lambda one: F.coalesce(inside(one), F.array().cast("array<double>"))))


def _float_sum(column: Column, *, array: bool) -> list[Column]:
    """Return the aggregates that make a FloatSum, in the order of its fields."""
    inf = F.lit(float("inf"))

    def finite(value: Column) -> Column:
        return ~F.isnan(value) & (F.abs(value) != inf)

    if not array:
        whole = F.when(finite(column), column)
        return [F.sum(whole), F.sum(F.abs(whole)), F.count_if(F.isnan(column)), F.count_if(column == inf), F.count_if(column == -inf)]
    inside = F.filter(column, finite)
    sums = [F.aggregate(inside, F.lit(0.0), lambda added, one: added + one), F.aggregate(inside, F.lit(0.0), lambda added, one: added + F.abs(one))]
    counts = [F.filter(column, lambda one: F.isnan(one)), F.filter(column, lambda one: one == inf), F.filter(column, lambda one: one == -inf)]
    return [F.sum(one) for one in [*sums, *map(F.array_size, counts)]]


def _added(*columns: pa.ChunkedArray) -> FloatSum:
    total, size, nan, high, low = (pc.sum(column).as_py() or 0 for column in columns)
    return FloatSum(float(total), float(size), nan, high, low)


def _values(column: pa.Array) -> list[float]:
    flat = column.flatten() if pa.types.is_list(column.type) else column
    return flat.drop_null().to_pylist()  # type: ignore[no-any-return]


def _text(total: int, xor: int) -> str:
    return f"{total & MASK:016x}{xor & MASK:016x}"


def _sum(column: pa.ChunkedArray) -> int:
    return sum(int(pc.sum(chunk).as_py() or 0) for chunk in column.chunks)


def _nulls(schema: StructType) -> Column:
    """Which columns are null, as a text of a sign for each. Mostly none is, and then no text is made."""
    nulls = [F.col(quoted(f.name)).isNull() for f in schema.fields]
    if not nulls:
        return F.lit("")
    told = F.concat(F.lit(""), *[one.cast("int").cast("string") for one in nulls])
    return F.when(reduce(or_, nulls), told).otherwise(F.lit("0" * len(nulls)))


def _exact(value: Column, kind: DataType) -> Column:
    """Return a value as it is hashed: without its floats, but with whether each is null."""
    if not _holds_float(kind):
        # Spark can't hash a map: its entries have no order.
        return encoding.json(value, kind) if isinstance(kind, MapType | VariantType) else value
    if isinstance(kind, StructType):
        return F.struct(value.isNull(), *[_exact(value.getField(f.name), f.dataType) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return F.struct(value.isNull(), F.transform(value, lambda one: _exact(one, kind.elementType)))
    if isinstance(kind, MapType):
        entries = F.transform(F.map_entries(value), lambda one: F.struct(_exact(one.key, kind.keyType), _exact(one.value, kind.valueType)))
        return F.struct(value.isNull(), F.array_sort(entries))
    return value.isNull()


def _holds_float(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_float(f.dataType) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return _holds_float(kind.elementType)
    if isinstance(kind, MapType):
        return _holds_float(kind.keyType) or _holds_float(kind.valueType)
    return isinstance(kind, FloatType | DoubleType)
