"""Reads the records of Avro files, some at a time, and refuses files that would need more memory or a deeper stack than a reader has.

fastavro decodes a block as a whole, and follows nested types past the end of its stack: five thousand records
inside each other, in a file of five kilobytes, end the process. So the types are checked before any record is read, and the
blocks are unpacked once, within bounds, when a file is registered.

Who calls it: `typed_files`. Errors: Damaged; whatever fastavro raises for a damaged byte.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import fastavro

from onlyonce.model.errors import Refused
from onlyonce.sources.files.listing import Damaged, FileAt
from onlyonce.sources.files.object_file import ObjectFile

Schema = Any
DEEPEST = 64
"""Types inside each other."""
BLOCK = 1 << 26
"""In bytes: how much one block may unpack to. Writers make them of some kilobytes; a record is in one of them as a whole."""
AT_ONCE = 1 << 26
"""In bytes, of records that are handed on together."""
SYNC = 16
PACKAGES = {"snappy": "cramjam"}
"""Codec → the package that fastavro reads it with, which is none of onlyonce's own dependencies."""


def columns(at: FileAt) -> list[str]:
    """The names of all columns. Raises Damaged for types that can't be read in bounds."""
    with _opened(at) as file:
        reader = fastavro.reader(file)
        _check_codec(at, _codec(reader))
        schema = reader.writer_schema
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise Damaged("its values are not records")
    if not _least(schema, {}, ()):
        raise Damaged("its records take no bytes")
    return [field["name"] for field in schema["fields"]]


def check_types(schema: Schema) -> None:
    """See that values of some types can be read in bounds. Names are in full, as fastavro's parser gives them. Raises Damaged."""
    _least(schema, {}, ())


def records(at: FileAt, most_rows: int) -> Iterator[list[dict[str, Any]]]:
    """The records in groups, for which memory is there. Only of a file whose `columns` have been looked at."""
    group: list[Any] = []
    held = 0
    with _opened(at) as file:
        for block in fastavro.block_reader(file):
            held += len(block.bytes_.getbuffer())
            for record in block:
                group.append(record)
                if len(group) == most_rows:
                    yield group
                    group, held = [], 0
            if held > AT_ONCE:
                yield group
                group, held = [], 0
    if group:
        yield group


def check(at: FileAt) -> None:
    """See that no block of a file unpacks to more than it may. Raises Damaged."""
    with _opened(at) as file:
        codec = _codec(fastavro.reader(file))
        _check_codec(at, codec)
        if codec not in UNPACKED:
            raise Damaged(f"it is compressed by {codec!r}, and not by one of {', '.join(UNPACKED)}")
        while (packed := _block(file)) is not None:
            if UNPACKED[codec](packed) > BLOCK:
                raise Damaged(f"a block of it unpacks to more than {BLOCK} bytes")


def _codec(reader: Any) -> str:
    return str(reader.metadata.get("avro.codec", "null"))


def _check_codec(at: FileAt, codec: str) -> None:
    if codec in PACKAGES and find_spec(PACKAGES[codec]) is None:
        raise Refused(
            f"{at.path} is compressed by {codec}, and the package {PACKAGES[codec]}, which reads it, is not installed",
            data="nothing was read or written; that is no fault of the file, which stays as it is",
            hint=f"pip install {PACKAGES[codec]}, wherever the driver and Spark's workers run; then run it again",
        )


def _opened(at: FileAt) -> IO[bytes]:
    return io.BufferedReader(ObjectFile(*at)) if at.etag else Path(at.path).open("rb")


def _block(file: IO[bytes]) -> bytes | None:
    """The content of the next block, as it is in the file."""
    if _long(file) is None:
        return None
    size = _long(file)
    if size is None or not 0 <= size <= BLOCK:
        raise Damaged(f"a block of it has {size} bytes")
    packed = file.read(size)
    file.seek(SYNC, 1)
    return packed


def _long(file: IO[bytes]) -> int | None:
    """A number as Avro writes it; None at the end of the file."""
    number = shift = 0
    while byte := file.read(1):
        number |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            return (number >> 1) ^ -(number & 1)
    return None


def _snappy(packed: bytes) -> int:
    # Its first bytes say so, as far as seven bits go in each.
    return sum((byte & 127) << (7 * at) for at, byte in enumerate(_leading(packed)))


def _leading(packed: bytes) -> bytes:
    last = next((at for at, byte in enumerate(packed[:5]) if byte < 128), 4)
    return packed[: last + 1]


UNPACKED: dict[str, Callable[[bytes], int]] = {
    "null": len,
    "deflate": lambda packed: len(zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, BLOCK + 1)),
    "bzip2": lambda packed: len(bz2.BZ2Decompressor().decompress(packed, BLOCK + 1)),
    "xz": lambda packed: len(lzma.LZMADecompressor().decompress(packed, BLOCK + 1)),
    "snappy": _snappy,
}
"""How many bytes a block unpacks to, or some more than it may."""


def _least(schema: Schema, named: dict[str, Schema], inside: tuple[str, ...], depth: int = 0) -> int:
    """How many bytes a value has at least. Raises Damaged for types that can't be read in bounds."""
    if depth > DEEPEST:
        raise Damaged(f"its types are more than {DEEPEST} deep inside each other")
    if isinstance(schema, list):
        return 1 + min((_least(one, named, inside, depth + 1) for one in schema), default=0)
    if isinstance(schema, str):
        if schema in inside:
            raise Damaged(f"its type {schema} has values of its own type inside")
        return _least(named[schema], named, inside, depth + 1) if schema in named else int(schema != "null")
    kind, name = schema["type"], schema.get("name", "")
    if kind in ("record", "error"):
        named[name] = schema
        return sum(_least(field["type"], named, (*inside, name), depth + 1) for field in schema["fields"])
    if kind == "array" and not _least(schema["items"], named, inside, depth + 1):
        raise Damaged("it has lists of values that take no bytes, so nothing bounds their length")
    if kind == "map":
        _least(schema["values"], named, inside, depth + 1)
    if kind == "fixed":
        named[name] = schema
        return int(schema["size"])
    return 1 if kind in ("array", "map", "enum") else _least(kind, named, inside, depth + 1)
