"""Read the keys and values of a RocksDB table (`.sst`), in which Spark's snapshots keep state.

Blocks are compressed, and a key has only what differs from the key before it.

Follows RocksDB's block-based table format of versions 4 and 5 (Spark writes 5) with one index block. Errors: NotDecoded
for another format, ValueError or IndexError for a damaged file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

MAGIC = bytes.fromhex("f7cff485b741e288")
FOOTER, HANDLES, TRAILER = 53, 40, 5
NUMBERED = 8
"""So many bytes of RocksDB's own end each key: the entry's number and kind."""
SNAPPY, ZSTD = 1, 7
LZ4 = (4, 5)


class NotDecoded(Exception):
    """A format that no decoder reads. The message names it."""


class Handle(NamedTuple):
    """Where a block is."""

    at: int
    size: int


def is_table(content: bytes) -> bool:
    """Return whether bytes are such a table."""
    return content.endswith(MAGIC)


def entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each entry."""
    footer = content[-FOOTER:]
    if len(footer) < FOOTER or int.from_bytes(footer[-12:-8], "little") not in range(4, 6):
        raise NotDecoded("a RocksDB table of another version")
    _, at = _handle(footer, 1)  # the first handle is the block of the table's properties
    index, _ = _handle(footer, at)
    for handle in _data_blocks(_block(content, index)):
        yield from _entries(_block(content, handle))


def _data_blocks(index: bytes) -> Iterator[Handle]:
    """An entry has a key and a handle, which since version 4 has no length before it and, but for a restart point, only
    the difference of sizes."""
    end, at, last = _end(index), 0, Handle(0, 0)
    while at < end:
        shared, at = _varint(index, at)
        fresh, at = _varint(index, at)
        at += fresh
        if shared:
            raise NotDecoded("a RocksDB table whose index has long restart intervals")
        last, at = _handle(index, at)
        yield last


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    end, at, key = _end(block), 0, b""
    while at < end:
        shared, at = _varint(block, at)
        fresh, at = _varint(block, at)
        size, at = _varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key[:-NUMBERED], block[at : at + size]
        at += size


def _end(block: bytes) -> int:
    """Where a block's entries end and its restart points begin."""
    restarts = int.from_bytes(block[-4:], "little") & 0x7FFFFFFF
    return len(block) - 4 - 4 * restarts


def _block(content: bytes, handle: Handle) -> bytes:
    stored, kind = content[handle.at : handle.at + handle.size], content[handle.at + handle.size]
    if kind == 0:
        return stored
    size, at = _varint(stored, 0)
    if kind == SNAPPY:
        return _decompressed("snappy", stored, size)
    if kind == ZSTD or kind in LZ4:
        return _decompressed("zstd" if kind == ZSTD else "lz4_raw", stored[at:], size)
    raise NotDecoded(f"a RocksDB table with compression {kind}")


def _decompressed(codec: str, stored: bytes, size: int) -> bytes:
    return bytes(pa.Codec(codec).decompress(stored, size)) if size else b""


def _handle(content: bytes, at: int) -> tuple[Handle, int]:
    begins, at = _varint(content, at)
    size, at = _varint(content, at)
    return Handle(begins, size), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
