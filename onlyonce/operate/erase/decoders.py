"""Decode each format in which a value may be stored, and count the parts of it that mention a condition.

- Parquet, known by `PAR1`: a part is a row, so also what its footer says of the rows.
- Avro, known by `Obj\\x01`: a part is a record.
- Spark's state (changelog, delta, snapshot), known by `LZ4Block` or Zstandard: a part is the decompressed file.
- a snapshot of RocksDB, known as zip: a part is a file in it.
- a table of RocksDB, known by its footer: a part is an entry.
- gzip, bzip2, Zstandard, known by their first bytes: a part is what is in it, decoded again.
- Delta's log, JSON, CSV, logs and any other text (UTF-8, UTF-16, Latin-1): a part is a line, or a record of
  CSV, with JSON's, CSV's and a URL's escapes undone.
- anything else: a part is the bytes.

Errors: NotDecoded for a format that no decoder reads, and for a compressed file that is damaged. No file is changed.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from onlyonce.model import record_size
from onlyonce.model.operate.erasing import decodings, encoded
from onlyonce.model.operate.mentions import ESCAPES, Mentions
from onlyonce.model.values import line_values
from onlyonce.sources.files import record_ends
from onlyonce.storage import state_tables
from onlyonce.storage.state_tables import NotDecoded

LZ4_BLOCK = b"LZ4Block"
"""How lz4-java's LZ4BlockOutputStream begins each block."""
LZ4_HEADER = 21
LZ4_STORED = 0x10
DAMAGE = (ValueError, IndexError, EOFError, OSError, zlib.error, zipfile.BadZipFile, pa.ArrowException, OverflowError)
Decoder = Callable[[bytes, Mentions], int]


def count(content: bytes, mentions: Mentions) -> int:
    """Return how many parts mention the condition.

    Raise NotDecoded for a format that no decoder reads, and for damage.
    """
    form, decoder = next(
        ((form, decoder) for begins, form, decoder in FORMATS if content.startswith(begins)), ("", None)
    )
    decoder = decoder or (_state_table if state_tables.is_table(content) else _text)
    try:
        return decoder(content, mentions)
    except DAMAGE:
        found = _text(content, mentions) or _opaque(content, mentions)
        if form and not found and not line_values.is_utf8(content):
            raise NotDecoded(f"damaged {form}") from None
        return found


def _parquet(content: bytes, mentions: Mentions) -> int:
    parts = parquet.ParquetFile(pa.BufferReader(content)).iter_batches()
    return sum(mentions.in_row(row) for part in parts for row in _possible(part, mentions).to_pylist())


def _possible(part: pa.RecordBatch, mentions: Mentions) -> pa.RecordBatch:
    """Return the rows of which a string column may have the longest value. Most rows go by Arrow, without Python."""
    if not (value := mentions.longest_string):
        return part
    either = pa.repeat(pa.scalar(False), part.num_rows)
    for column in part.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            for sought in (value, *ESCAPES):
                either = pc.or_(either, pc.fill_null(pc.match_substring(column, sought), False))
            for bytes_of in encoded(value):
                either = pc.or_(
                    either, pc.fill_null(pc.match_substring(column, bytes_of.hex(), ignore_case=True), False)
                )
        elif not (pa.types.is_primitive(column.type) or pa.types.is_decimal(column.type)):
            return part
    return part.filter(either)


def _avro(content: bytes, mentions: Mentions) -> int:
    try:
        import fastavro
    except ImportError:
        raise NotDecoded("Avro, without fastavro") from None
    return sum(
        mentions.in_row(one if isinstance(one, dict) else {"": one}) for one in fastavro.reader(io.BytesIO(content))
    )


def _lz4_blocks(content: bytes, mentions: Mentions) -> int:
    found, at = bytearray(), 0
    while content[at : at + len(LZ4_BLOCK)] == LZ4_BLOCK:
        token = content[at + 8]
        stored, size = (int.from_bytes(content[at + begin : at + begin + 4], "little") for begin in (9, 13))
        at += LZ4_HEADER
        block = content[at : at + stored]
        found += block if token & 0xF0 == LZ4_STORED or not size else bytes(pa.Codec("lz4_raw").decompress(block, size))
        at += stored
    return count(bytes(found), mentions) or int(mentions.in_bytes(bytes(found)))


def _zip(content: bytes, mentions: Mentions) -> int:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return sum(count(archive.read(name), mentions) for name in archive.namelist())


def _state_table(content: bytes, mentions: Mentions) -> int:
    # A key and its value are one row of the state: some values may be in the one, the others in the other.
    return sum(mentions.in_bytes(key + b"\0" + value) for key, value in state_tables.entries(content)) or _opaque(
        content, mentions
    )


def _zstandard(content: bytes, mentions: Mentions) -> int:
    with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
        return count(stream.read(), mentions)


def _text(content: bytes, mentions: Mentions) -> int:
    string = content
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        with suppress(UnicodeDecodeError):
            string = content.decode("utf-16").encode()
    is_text = line_values.is_utf8(string)
    if is_text and b"\0" in string:
        return _opaque(content, mentions)
    # A line of any other text is a record by the rule of CSV too.
    each = (one for _, one in record_ends.records(io.BytesIO(string), record_size.DEFAULT))
    if is_text:
        return sum(mentions.in_string(one.decode()) for one in each)
    return sum(any(map(mentions.in_string, decodings(one))) for one in each) or _opaque(content, mentions)


def _opaque(content: bytes, mentions: Mentions) -> int:
    return int(mentions.in_file(content))


def _unread(name: str) -> Decoder:
    def decoder(content: bytes, mentions: Mentions) -> int:
        raise NotDecoded(name)

    return decoder


FORMATS: tuple[tuple[bytes, str, Decoder], ...] = (
    (b"PAR1", "Parquet", _parquet),
    (b"Obj\x01", "Avro", _avro),
    (LZ4_BLOCK, "LZ4", _lz4_blocks),
    (b"PK\x03\x04", "zip", _zip),
    (b"\x28\xb5\x2f\xfd", "Zstandard", _zstandard),
    (b"\x1f\x8b", "gzip", lambda content, mentions: count(gzip.decompress(content), mentions)),
    (b"BZh", "bzip2", lambda content, mentions: count(bz2.decompress(content), mentions)),
    (b"\x04\x22\x4d\x18", "", _unread("an LZ4 frame")),
    (b"\x82SNAPPY\0", "", _unread("Snappy")),
    (b"ZV\x01", "", _unread("LZF")),
    (b"ORC", "", _unread("ORC")),
)
