"""Read the records of Avro files in groups, with Arrow types from the schema, within bounds of memory and stack.

The types come from the schema and not from the values, so they are the same for each batch of rows. fastavro reads
times as plain numbers, which are then cast as whole arrays. So a time of any year is read, and only its record is
invalid.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.util import find_spec
from itertools import count
from typing import IO, Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from onlyonce.core import conversions
from onlyonce.core.conversions import Number
from onlyonce.core.errors import Refused
from onlyonce.core.records import Damaged
from onlyonce.sources import file_bytes
from onlyonce.sources.file_bytes import ObjectFile
from onlyonce.sources.listing import FileAt

PLAIN = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"timestamp-{name}"): pa.timestamp(unit, "UTC")
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
    **{
        ("long", f"local-timestamp-{name}"): pa.timestamp(unit)
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
"""Times are read as plain numbers and cast in whole arrays."""
Avro = Any
Types = tuple[pa.DataType, pa.DataType]
"""The type as it is read, and the type that the schema means."""
IN_A_STRING = frozenset({pa.string(), pa.bool_(), pa.int32(), pa.int64()})
"""A column that is a union of several of these is read as a string, as JSON's values are for a string column."""


def without_logical(schema: Avro, named: dict[str, Any], seen: set[str]) -> Avro:
    """Return a schema in which imported schemas are expanded at their first use, and times are plain numbers.

    So fastavro converts no time."""
    if isinstance(schema, list):
        return [without_logical(one, named, seen) for one in schema]
    if isinstance(schema, str):
        return without_logical(named[schema], named, seen) if schema in named and schema not in seen else schema
    if "name" in schema and schema["type"] in ("record", "error", "enum", "fixed"):
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
    decimal = schema.get("logicalType") == "decimal"
    kept = {
        name: value
        for name, value in schema.items()
        if not name.startswith("__") and name not in ("aliases", "default")
    }
    if not decimal and "logicalType" in kept:
        kept["oo_logical"] = kept.pop("logicalType")
    for part in ("items", "values"):
        if part in kept:
            kept[part] = without_logical(kept[part], named, seen)
    if "fields" in kept:
        kept["fields"] = [{"name": f["name"], "type": without_logical(f["type"], named, seen)} for f in kept["fields"]]
    if isinstance(kept["type"], dict | list):
        kept["type"] = without_logical(kept["type"], named, seen)
    return kept


def types_of(schema: Avro, defined: dict[str, Avro]) -> Types:
    """Return the types of a schema that `without_logical` returned. Raise Damaged for a union that no type holds."""
    if isinstance(schema, str):
        return types_of(defined[schema], defined) if schema in defined else (PLAIN[schema], PLAIN[schema])
    if isinstance(schema, list):
        return _of_union([types_of(one, defined) for one in schema if one != "null"])
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return types_of(kind, defined)
    return _of_named(schema, defined) if "name" in schema else _of_built(schema, kind, defined)


def defined_in(schema: Avro) -> dict[str, Avro]:
    """Return the named types of a schema, by their full names."""
    if isinstance(schema, list):
        return {name: of for one in schema for name, of in defined_in(one).items()}
    if isinstance(schema, str):
        return {}
    inside = [
        *(f["type"] for f in schema.get("fields", ())),
        *(schema[part] for part in ("items", "values") if part in schema),
    ]
    found = defined_in([*inside, *([schema["type"]] if isinstance(schema["type"], dict | list) else [])])
    return found | ({schema["name"]: schema} if "name" in schema else {})


def _of_named(schema: Avro, defined: dict[str, Avro]) -> Types:
    if schema["type"] == "enum":
        return pa.string(), pa.string()
    if schema["type"] == "fixed":
        return _decimal(schema) or (pa.binary(schema["size"]), pa.binary(schema["size"]))
    parts = [(f["name"], types_of(f["type"], defined)) for f in schema["fields"]]
    read, meant = (pa.struct([(name, both[at]) for name, both in parts]) for at in (0, 1))
    return read, meant


def _of_built(schema: Avro, kind: str, defined: dict[str, Avro]) -> Types:
    if kind == "array":
        read, meant = types_of(schema["items"], defined)
        return pa.list_(read), pa.list_(meant)
    if kind == "map":
        read, meant = types_of(schema["values"], defined)
        return pa.map_(pa.string(), read), pa.map_(pa.string(), meant)
    if kind == "bytes" and (decimal := _decimal(schema)):
        return decimal
    if kind in defined:
        return types_of(kind, defined)
    return PLAIN[kind], LOGICAL.get((kind, schema.get("oo_logical", "")), PLAIN[kind])


def _decimal(schema: Avro) -> Types | None:
    if schema.get("logicalType") != "decimal":
        return None
    digits, scale = schema["precision"], schema.get("scale", 0)
    found = pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)
    return found, found


def _of_union(several: list[Types]) -> Types:
    if not several:
        return pa.null(), pa.null()
    kinds = {meant for _, meant in several}
    if len(kinds) == 1:
        return several[0]
    if kinds <= {pa.int32(), pa.int64()}:
        return pa.int64(), pa.int64()
    if kinds <= {pa.float32(), pa.float64()}:
        return pa.float64(), pa.float64()
    raise Damaged(f"a column is one of several types ({', '.join(sorted(map(str, kinds)))}), which no declared type is")


def avro_types_of_columns(schema: Avro, names: Collection[str]) -> dict[str, Types]:
    """Return the types of some columns of a record. Raise Damaged for a column that no type holds."""
    defined = defined_in(schema)
    found = {field["name"]: field["type"] for field in schema["fields"] if field["name"] in names}
    return {
        name: (pa.string(), pa.string()) if _is_mixed(kind, defined) else types_of(kind, defined)
        for name, kind in found.items()
    }


def mixed_columns(schema: Avro, names: Collection[str]) -> list[str]:
    """Return the columns whose values have several types, which a string column holds as it holds JSON's."""
    defined = defined_in(schema)
    return [field["name"] for field in schema["fields"] if field["name"] in names and _is_mixed(field["type"], defined)]


def make_strings(rows: Iterable[dict[str, Any]], names: list[str]) -> None:
    """Write the values of `mixed_columns` as strings, in place."""
    for row in rows if names else ():
        for name in names:
            value = row[name]
            row[name] = (
                value if value is None else conversions.text(value if isinstance(value, bool | str) else Number(value))
            )


def _is_mixed(schema: Avro, defined: dict[str, Avro]) -> bool:
    if not isinstance(schema, list):
        return False
    read = {types_of(one, defined) for one in schema if one != "null"}
    kinds = {meant for _, meant in read}
    return (
        all(both[0] == both[1] for both in read)
        and len(kinds) > 1
        and kinds <= IN_A_STRING
        and not kinds <= {pa.int32(), pa.int64()}
    )


# The records of Avro files, in groups.
#
# fastavro decodes a block as a whole, and follows nested types until its stack overflows. Five thousand nested records,
# in a file of five kilobytes, crash the process. So the types are checked before any record is read. And the blocks are
# decompressed once, within bounds, when a file is registered. For a damaged byte fastavro raises any error.


Schema = Any
DEEPEST = 64
"""The deepest nesting of types."""
MOST_TYPES = 100_000
"""The most types, where a named type counts at each mention: Arrow's types have no names."""
BLOCK = 1 << 26
"""The most bytes that one block may unpack to. Writers make blocks of some kilobytes, each of whole records."""
AT_ONCE = 1 << 26
"""The most bytes of records that are yielded together."""
SYNC = 16
HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "org.apache.avro.file.Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": SYNC}},
        ],
    }
)
"""The header by Avro's specification."""
PACKAGES = {"snappy": "cramjam"}
"""Codec → the package with which fastavro reads it; onlyonce does not depend on it."""


def columns(at: FileAt) -> list[str]:
    """Return the names of all columns. Raise Damaged for types that can't be read in bounds."""
    with _opened(at) as file:
        reader = fastavro.reader(file)
        _check_codec(at, _codec(reader))
        schema = reader.writer_schema
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise Damaged("its values are not records")
    if not _least(schema):
        raise Damaged("its records take no bytes")
    return [field["name"] for field in schema["fields"]]


def check_types(schema: Schema) -> None:
    """Raise Damaged if values of a schema's types can't be read in bounds.

    Names must be full names, as fastavro's parser returns them.
    """
    _least(schema)


def records(at: FileAt, names: Collection[str] | None, most_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some columns (None: all) in groups that fit into memory.

    Call `columns` for the file before. The types come from the file's schema. Raise Damaged for a column that no Arrow
    type holds.
    """
    with _opened(at) as file:
        reader = fastavro.reader(file)
        schema = without_logical(reader.writer_schema, {}, set())
        named = [field["name"] for field in schema["fields"] if names is None or field["name"] in names]
        types, mixed = avro_types_of_columns(schema, named), mixed_columns(schema, named)
        read = pa.struct([(name, types[name][0]) for name in named])
        for group in _groups(fastavro.block_reader(_Behind(_head(reader, schema), file)), most_rows):
            make_strings(group, mixed)
            found = pa.array(group, read)
            yield pa.RecordBatch.from_arrays(
                [pc.struct_field(found, name).cast(types[name][1]) for name in named], names=named
            )


def _groups(blocks: Any, most_rows: int) -> Iterator[list[dict[str, Any]]]:
    group: list[Any] = []
    held = 0
    for block in blocks:
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


class _Behind:
    """A file with another beginning: `head`, followed by the rest of `file` from its current position."""

    def __init__(self, head: bytes, file: IO[bytes]) -> None:
        self.head, self.file = io.BytesIO(head), file

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        found = self.head.read(size)
        return found if len(found) == size else found + self.file.read(size - len(found))

    def tell(self) -> int:
        """Return a position, which fastavro notes for each block."""
        return self.head.tell() + self.file.tell()


def _head(reader: Any, schema: Schema) -> bytes:
    """Return the header of a file with another schema, whose times fastavro does not convert.

    Codec and sync marker are the file's own."""
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": _codec(reader).encode()}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, HEADER, {"magic": b"Obj\x01", "meta": meta, "sync": reader._header["sync"]})
    return written.getvalue()


def check(at: FileAt) -> None:
    """Raise Damaged if a block of a file unpacks to more bytes than allowed."""
    with _opened(at) as file:
        codec = _codec(fastavro.reader(file))
        _check_codec(at, codec)
        if codec not in UNPACKED:
            raise Damaged(f"it is compressed by {codec!r}, and not by one of {', '.join(UNPACKED)}")
        while (compressed := _block(file)) is not None:
            if UNPACKED[codec](compressed) > BLOCK:
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
    return io.BufferedReader(ObjectFile(*at)) if at.etag else open(file_bytes.opened_file(at.path), "rb")  # noqa: PTH123 - a descriptor


def _block(file: IO[bytes]) -> bytes | None:
    """Return the content of the next block, as it is in the file."""
    if _long(file) is None:
        return None
    size = _long(file)
    if size is None or not 0 <= size <= BLOCK:
        raise Damaged(f"a block of it has {size} bytes")
    compressed = file.read(size)
    file.seek(SYNC, 1)
    return compressed


def _long(file: IO[bytes]) -> int | None:
    """Return a number in Avro's encoding; None at the end of the file."""
    number = shift = 0
    while byte := file.read(1):
        number |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            return (number >> 1) ^ -(number & 1)
    return None


def _snappy(compressed: bytes) -> int:
    # The first bytes hold the decompressed length, seven bits in each.
    return sum((byte & 127) << (7 * at) for at, byte in enumerate(_leading(compressed)))


def _leading(compressed: bytes) -> bytes:
    last = next((at for at, byte in enumerate(compressed[:5]) if byte < 128), 4)
    return compressed[: last + 1]


UNPACKED: dict[str, Callable[[bytes], int]] = {
    "null": len,
    "deflate": lambda compressed: len(zlib.decompressobj(-zlib.MAX_WBITS).decompress(compressed, BLOCK + 1)),
    "bzip2": lambda compressed: len(bz2.BZ2Decompressor().decompress(compressed, BLOCK + 1)),
    "xz": lambda compressed: len(lzma.LZMADecompressor().decompress(compressed, BLOCK + 1)),
    "snappy": _snappy,
}
"""How many bytes a block unpacks to; reading stops once the bound is exceeded."""


def _least(schema: Schema) -> int:
    """Return the fewest bytes of a value. Raise Damaged for types that can't be read in bounds."""
    return _least_of(schema, {}, (), 0, count(1))


def _least_of(
    schema: Schema, named: dict[str, Schema], inside: tuple[str, ...], depth: int, visited: Iterator[int]
) -> int:
    def within(part: Schema, inside: tuple[str, ...] = inside) -> int:
        return _least_of(part, named, inside, depth + 1, visited)

    if depth > DEEPEST:
        raise Damaged(f"its types are more than {DEEPEST} deep inside each other")
    if next(visited) > MOST_TYPES:
        raise Damaged(f"it has more than {MOST_TYPES:,} types, where each mention of a named type counts")
    if isinstance(schema, list):
        return 1 + min(map(within, schema), default=0)
    if isinstance(schema, str):
        if schema in inside:
            raise Damaged(f"its type {schema} has values of its own type inside")
        return within(named[schema]) if schema in named else int(schema != "null")
    kind, name = schema["type"], schema.get("name", "")
    if kind in ("record", "error"):
        named[name] = schema
        return sum(within(field["type"], (*inside, name)) for field in schema["fields"])
    if kind == "array" and not within(schema["items"]):
        raise Damaged("it has lists of values that take no bytes, so nothing bounds their length")
    if kind == "map":
        within(schema["values"])
    if kind == "fixed":
        named[name] = schema
        return int(schema["size"])
    return 1 if kind in ("array", "map", "enum") else within(kind)
