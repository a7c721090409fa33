"""The content of rows, whatever their order: a count, a hash over the exact columns, and sums of the float columns.

`of_groups` adds up what Spark has aggregated, `Tally` adds up Arrow batches. The figures are the same however the rows are cut.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructField, StructType, VariantType

from onlyonce.model.units import Content
from onlyonce.session import encoding
from onlyonce.session.names import quoted

MASK = (1 << 64) - 1
LOW = 0xFFFFFFFF
HASH = "oo_hash"
"""The column with the `row_hash` of each row, while rows are on their way to a sink."""


def row_hash(schema: StructType) -> Column:
    """A 64-bit hash of the exact columns of a row; nulls count by their place."""
    exact = [_hashable(f) for f in schema.fields if not _holds_float(f.dataType)]
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
    floats = [F.sum(F.col(quoted(f.name)).cast("double")).alias(f"float {f.name}") for f in float_fields(schema)]
    return parts + floats


def of_groups(schema: StructType, groups: pa.Table) -> Content:
    """The content of all groups together; `groups` has the columns of `aggregates`."""
    rows, high, low = (_sum(groups.column(name)) for name in ("rows", "high", "low"))
    xor = int(np.bitwise_xor.reduce(pc.fill_null(groups.column("xor"), 0).to_numpy()))
    floats = {f.name: float(pc.sum(groups.column(f"float {f.name}")).as_py() or 0.0) for f in float_fields(schema)}
    return Content(rows, _text((high << 32) + low, xor), floats)


class Tally:
    """Adds up the content of Arrow batches that carry their `row_hash` in a column. `floats`: column → what it is called."""

    def __init__(self, hash_column: str, floats: dict[str, str]) -> None:
        self._hash_column, self._names = hash_column, floats
        self._rows, self._total, self._xor = 0, 0, 0
        self._floats = dict.fromkeys(floats.values(), 0.0)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count one batch in."""
        hashes = batch.column(self._hash_column).to_numpy(zero_copy_only=False)
        self._rows += batch.num_rows
        self._total += (int((hashes >> 32).sum()) << 32) + int((hashes & LOW).sum())
        self._xor ^= int(np.bitwise_xor.reduce(hashes)) if len(hashes) else 0
        for column, name in self._names.items():
            self._floats[name] += pc.sum(batch.column(column)).as_py() or 0.0

    def content(self) -> Content:
        """What was counted so far."""
        return Content(self._rows, _text(self._total, self._xor), dict(self._floats))


def float_fields(schema: StructType) -> list[StructField]:
    """The columns that are floats themselves. Floats inside nested columns are not compared, only counted."""
    return [f for f in schema.fields if isinstance(f.dataType, FloatType | DoubleType)]


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


def _hashable(field: StructField) -> Column:
    # Spark can't hash a map: its entries have no order.
    column = F.col(quoted(field.name))
    return encoding.json(column, field.dataType) if isinstance(field.dataType, MapType | VariantType) else column


def _holds_float(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_float(f.dataType) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return _holds_float(kind.elementType)
    if isinstance(kind, MapType):
        return _holds_float(kind.keyType) or _holds_float(kind.valueType)
    return isinstance(kind, FloatType | DoubleType)
