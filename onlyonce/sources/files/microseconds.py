"""Bring times to microseconds, the unit of every declared time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import types

NANOSECONDS = 1000
COARSER = {"s": 1_000_000, "ms": 1000}
LARGEST = (1 << 63) - 1


def in_microseconds(array: pa.Array) -> pa.Array:
    """Return an array with each time, at any depth, in microseconds: nanoseconds are rounded towards the past, as
    JSON's times are."""
    kind = array.type
    if types.is_timestamp(kind) and kind.unit == "ns":
        # Arrow's cast rounds towards 1970.
        counts = np.floor_divide(array.cast(pa.int64()).fill_null(0).to_numpy(), NANOSECONDS)
        missing = array.is_null().to_numpy(zero_copy_only=False)
        return pa.array(counts, pa.int64(), mask=missing).cast(pa.timestamp("us", kind.tz))
    if types.is_timestamp(kind) and kind.unit in COARSER:
        # A time that has no number in microseconds gets the largest one, whose year makes its record invalid. Arrow
        # would refuse the whole file.
        factor = COARSER[kind.unit]
        counts = (
            np.clip(array.cast(pa.int64()).fill_null(0).to_numpy(), -(LARGEST // factor), LARGEST // factor) * factor
        )
        missing = array.is_null().to_numpy(zero_copy_only=False)
        return pa.array(counts, pa.int64(), mask=missing).cast(pa.timestamp("us", kind.tz))
    if types.is_struct(kind):
        parts = [in_microseconds(array.field(number)) for number in range(kind.num_fields)]
        if all(part.type == field.type for part, field in zip(parts, kind.fields, strict=True)):
            return array
        fields = [pa.field(field.name, part.type) for field, part in zip(kind.fields, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    if types.is_map(kind):
        keys, items = in_microseconds(array.keys), in_microseconds(array.items)
        if (keys.type, items.type) == (kind.key_type, kind.item_type):
            return array
        return _with_child(
            array, pa.map_(keys.type, items.type), pa.StructArray.from_arrays([keys, items], ["key", "value"])
        )
    if types.is_list(kind) or types.is_large_list(kind):
        values = in_microseconds(array.values)
        if values.type == kind.value_type:
            return array
        return _with_child(array, (pa.list_ if types.is_list(kind) else pa.large_list)(values.type), values)
    return array


def _with_child(array: pa.Array, kind: pa.DataType, child: pa.Array) -> pa.Array:
    # Its own buffers and offset, so that a slice needs no copy.
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=[child])
