"""Measures the bytes of each row of columns, and groups rows so that each group fits into memory.

Rows that are too large are kept apart.

Many rows may share one value (a dictionary), and copying it into each row takes memory for each. So rows are measured
before they are copied, and copied some at a time. Who calls it: `coercion`. No errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

AT_ONCE = 1 << 26
"""In bytes: rows that are written out together, unless one has more."""
Sizes = NDArray[np.int64]


def of_rows(batch: pa.RecordBatch) -> Sizes:
    """The bytes of each row."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes = sizes + of_values(column)
    return sizes


def of_values(array: Any) -> Sizes:
    """The bytes of each value, written out."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return of_values(array.storage)
    if types.is_dictionary(kind):
        indices = pc.fill_null(array.indices, 0).to_numpy(zero_copy_only=False)
        inner = of_values(array.dictionary)
        return inner[indices] if len(inner) else np.zeros(len(array), np.int64)
    if types.is_struct(kind):
        return sum((of_values(array.field(at)) for at in range(kind.num_fields)), np.zeros(len(array), np.int64))
    if types.is_map(kind):
        return _between(array.offsets, of_values(array.keys) + of_values(array.items))
    if types.is_list(kind) or types.is_large_list(kind):
        return _between(array.offsets, of_values(array.values))
    if types.is_fixed_size_list(kind):
        return np.full(len(array), array.values.nbytes // max(len(array.values) // max(kind.list_size, 1), 1), np.int64)
    if types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return np.full(len(array), kind.bit_width // 8, np.int64)
    try:
        return pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    except pa.ArrowNotImplementedError:  # views: nobody tells their parts
        return np.full(len(array), -(-array.nbytes // max(len(array), 1)), np.int64)


def groups(sizes: Sizes) -> Iterator[slice]:
    """Rows that are written out together."""
    until = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = until[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(until, before + AT_ONCE, "right")))
        yield slice(start, end)
        start = end


def _between(offsets: pa.Array, inner: Sizes) -> Sizes:
    until = np.concatenate([np.zeros(1, np.int64), np.cumsum(inner)])
    return np.diff(until[offsets.to_numpy()])
