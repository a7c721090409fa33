"""Reads the frame that Confluent's serializers put before a message: a zero byte, and the id of its schema in four.

On whole arrays.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

HEAD = 5
LONGEST = 1 << 30
"""More than any message has bytes."""
NONE = -1
"""In the place of an id: there is no frame."""


def schema_ids(messages: pa.Array) -> NDArray[np.int64]:
    """The id of each message's schema; NONE for null, and for what does not begin with a frame."""
    heads = pc.fill_null(pc.binary_slice(messages, 0, HEAD), b"")
    whole = np.flatnonzero(pc.equal(pc.binary_length(heads), HEAD).to_numpy(zero_copy_only=False))
    ids = np.full(len(messages), NONE, np.int64)
    if len(whole):
        packed = heads.take(pa.array(whole)).cast(pa.binary(HEAD))
        signs = np.frombuffer(packed.buffers()[1], np.uint8, len(whole) * HEAD, packed.offset * HEAD).reshape(-1, HEAD)
        numbers = np.ascontiguousarray(signs[:, 1:]).view(">u4").ravel().astype(np.int64)
        ids[whole] = np.where(signs[:, 0] == 0, numbers, NONE)
    return ids


def bodies(messages: pa.Array) -> pa.Array:
    """What is behind the frame."""
    return behind(messages, HEAD)


def behind(rows: pa.Array, length: int) -> pa.Array:
    """The rows without so many bytes at their begin."""
    return pc.binary_slice(rows, length, LONGEST)  # without an end Arrow counts past what a number holds


def joined(*parts: pa.Array | bytes) -> bytes:
    """The rows of binary arrays one after the other, each row the parts side by side."""
    rows = pc.binary_join_element_wise(*parts, b"")
    return bytes(rows.buffers()[2] or b"")
