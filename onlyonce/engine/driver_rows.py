"""Bounds the rows that the driver holds, by number and bytes, wherever rows of any size are loaded into the driver.

A number of rows is not a bound of their bytes: a record may have 16 MB. So each row gets an equal share of BYTES.
Spark's tasks measure each row, and send null instead of a row that takes more than its share. Such a row never reaches
the driver, and one job both measures and loads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

from onlyonce import settings
from onlyonce.core import batch
from onlyonce.engine.session import quoted

BYTES = 1 << 26
"""The most bytes of rows that the driver holds in memory at a time."""
FIXED = 16
"""The most bytes of a value of a type without a length: a decimal's."""
ENTRY = 8
"""Bytes of the offset and the validity of a value with a length, rounded up."""
ROW = "oo_row"


@dataclass
class Room:
    """Bytes that the driver may still hold."""

    left: int

    def take(self, size: int | None) -> bool:
        """Take this number of bytes, and return whether the budget had as many left.

        None: the bytes were not measured, so they may be any number.
        """
        self.left = -1 if size is None else self.left - size
        return self.left >= 0


def room() -> Room:
    """Return the room of a batch that holds nothing yet."""
    return Room(BYTES)


def are_few(records: int) -> bool:
    """Return whether a batch has so few records that the driver may write it.

    Their bytes are measured when they are loaded.
    """
    return records * batch.A_RECORD < settings.in_driver_bytes()


def fetched(rows: DataFrame, most: int) -> pa.Table | None:
    """Return a frame's rows, `most` at the most; None if one takes more than its share of BYTES.

    The caller knows that there are no more rows.
    """
    table = measured(rows, most).toArrow()
    if table.column(ROW).null_count:
        return None
    kind = table.schema.field(ROW).type.value_type
    schema = pa.schema([kind.field(at) for at in range(kind.num_fields)])
    return pa.Table.from_batches(
        [pa.RecordBatch.from_struct_array(part.flatten()) for part in table.column(ROW).chunks], schema
    )


def measured(rows: DataFrame, most: int) -> DataFrame:
    """Return each row in the column ROW; null if the row takes more than its share of BYTES among `most` rows."""
    # An array of one structure: a null structure could not have a column that is never null.
    whole = F.array(F.struct(*[F.col(quoted(name)) for name in rows.columns]))
    return rows.select(F.when(size(rows.schema) <= BYTES // max(most, 1), whole).alias(ROW))


def size(schema: StructType) -> Column:
    """Return how many bytes a row takes in memory, at most."""
    return reduce(
        add, [_size(F.col(quoted(field.name)), field.dataType) for field in schema.fields], F.lit(0).cast("long")
    )


def _size(value: Column, kind: DataType) -> Column:
    if isinstance(kind, StringType | BinaryType):
        return _or_none(F.octet_length(value)) + ENTRY
    if isinstance(kind, VariantType):
        return _or_none(F.octet_length(F.to_json(value))) * 4 + ENTRY
    if isinstance(kind, StructType):
        return reduce(
            add, [_size(value.getField(field.name), field.dataType) for field in kind.fields], F.lit(1).cast("long")
        )
    if isinstance(kind, ArrayType):
        return _sum(value, lambda one: _size(one, kind.elementType)) + ENTRY
    if isinstance(kind, MapType):
        of_keys = _sum(F.map_keys(value), lambda one: _size(one, kind.keyType))
        return of_keys + _sum(F.map_values(value), lambda one: _size(one, kind.valueType)) + ENTRY
    return F.lit(FIXED).cast("long")


def _sum(values: Column, measure: Callable[[Column], Column]) -> Column:
    return _or_none(F.aggregate(values, F.lit(0).cast("long"), lambda total, one: total + measure(one)))


def _or_none(size: Column) -> Column:
    return F.coalesce(size.cast("long"), F.lit(0).cast("long"))
