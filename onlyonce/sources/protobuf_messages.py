"""Turn Protobuf messages of one schema into columns, all at once.

The messages are concatenated as a repeated field of a message type made for it, which the parser reads by one call. The
parser raises DecodeError for messages that are none of the type.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onlyonce.core.records import Damaged
from onlyonce.sources import message_formats
from onlyonce.sources.avro_files import DEEPEST
from onlyonce.sources.message_formats import Columns, Wanted
from onlyonce.sources.schema_registry import Schema

MAIN, BATCH = "onlyonce_main.proto", "onlyonce_batch.proto"
PLAIN = {
    "double": pa.float64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), pa.int32()),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), pa.int64()),
    **dict.fromkeys(("uint32", "fixed32"), pa.uint32()),
    **dict.fromkeys(("uint64", "fixed64"), pa.uint64()),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = tuple(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
Place = tuple[int, ...]
"""Where a message's type is in its file: by number; for a nested type the numbers of all levels."""
Read = Callable[[Any], Any]


def converter(schema: Schema, wanted: Wanted) -> Callable[[pa.Array], Columns]:
    """Return a function that turns messages of a schema, each after its place, into the wanted columns.

    It raises Damaged for a type that can't be read or does not fit."""
    by_place: dict[Place, Callable[[pa.Array], Columns] | Damaged] = {}

    def convert(bodies: pa.Array) -> Columns:
        place, length = _place(bodies[0].as_buffer().to_pybytes())
        if len(bodies) > 1 and not pc.all(pc.starts_with(bodies, bodies[0].as_buffer().to_pybytes()[:length])).as_py():
            raise ValueError("messages of several types")  # the caller bisects them
        if place not in by_place:
            by_place[place] = _of_type(schema, place, wanted)
        found = by_place[place]
        if isinstance(found, Damaged):
            raise found
        return found(message_formats.behind_frame(bodies, length))

    return convert


def _of_type(schema: Schema, place: Place, wanted: Wanted) -> Callable[[pa.Array], Columns] | Damaged:
    declared = {one.name for one in wanted.fields}
    try:
        whole, made = _message(schema, place)
        reads = {f.name: _field(f) if f.name in declared else (pa.null(), _nothing) for f in made.fields}
        wanted.check({name: kind for name, (kind, _) in reads.items()})
    except Damaged as error:
        return Damaged(f"its type does not fit the declaration: {error}")

    def convert(bodies: pa.Array) -> Columns:
        rows = whole.FromString(_as_repeated(bodies)).rows
        found = {name: pa.array(list(map(reads[name][1], rows)), reads[name][0]) for name in wanted.found(reads)}
        return wanted.fitted(found, len(bodies), reads)

    return convert


def _place(body: bytes) -> tuple[Place, int]:
    """Return the place at the beginning of a message, and its length in bytes. Raise ValueError."""
    numbers = _numbers(body)
    try:
        count = next(numbers)[0]
        found = [next(numbers) for _ in range(min(count, DEEPEST))]
    except StopIteration as error:
        raise ValueError("the message ends within the place of its type") from error
    # The first type of a file has a short form.
    return (tuple(number for number, _ in found), found[-1][1]) if found else ((0,), 1)


def _numbers(body: bytes) -> Iterator[tuple[int, int]]:
    number = shift = 0
    for at, byte in enumerate(body):
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield (number >> 1) ^ -(number & 1), at + 1
            number = shift = 0


def _as_repeated(bodies: pa.Array) -> bytes:
    lengths, which = np.unique(pc.binary_length(bodies).to_numpy(), return_inverse=True)
    before = pa.array([b"\x0a" + _varint(int(length)) for length in lengths], pa.binary())
    return message_formats.joined_messages(before.take(pa.array(which)), bodies)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


def _message(schema: Schema, place: Place) -> tuple[Any, Any]:
    """Return a class whose field `rows` has messages of the type at a place, and that type."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    try:
        pool = descriptor_pool.DescriptorPool()
        for name, text in (*schema.references, (MAIN, schema.text)):
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
            file.name = name
            _add_imports(pool, file)
            pool.Add(file)
        found = pool.FindFileByName(MAIN)
        made = list(found.message_types_by_name.values())[place[0]]
        for number in place[1:]:
            made = made.nested_types[number]
        pool.Add(
            descriptor_pb2.FileDescriptorProto(
                name=BATCH, package="onlyonce_batch", syntax="proto3", dependency=[MAIN],
                message_type=[descriptor_pb2.DescriptorProto(name="Batch", field=[descriptor_pb2.FieldDescriptorProto(
                    name="rows", number=1, label=3, type=11, type_name=f".{made.full_name}",
                )])],
            )
        )  # fmt: skip
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("onlyonce_batch.Batch")), made
    except ImportError:
        raise
    except Exception as error:  # a wrong descriptor can make the pool raise any error
        raise Damaged(f"it is no descriptor of Protobuf that can be read: {type(error).__name__}") from error


def _add_imports(pool: Any, file: Any) -> None:
    """Add the imports that come with the library, since no registry has them."""
    from google.protobuf import descriptor_pb2

    for name in file.dependency:
        try:
            pool.FindFileByName(name)
        except KeyError:
            there = descriptor_pb2.FileDescriptorProto()
            _of_library(name).CopyToProto(there)
            _add_imports(pool, there)
            pool.Add(there)


def _of_library(name: str) -> Any:
    from google.protobuf import (  # noqa: F401  the default pool has what is imported
        any_pb2,
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    return descriptor_pool.Default().FindFileByName(name)


def _field(field: Any, inside: tuple[str, ...] = ()) -> tuple[pa.DataType, Read]:
    """Return the type of a field, and a function that reads it from a message."""
    get = attrgetter(field.name)
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        (key, _), (value, of_value) = (_one(message.fields_by_name[name], inside) for name in ("key", "value"))
        return pa.map_(key, value), lambda row: {k: of_value(v) for k, v in get(row).items()}
    kind, of_one = _one(field, inside)
    if field.is_repeated:
        return pa.list_(kind), lambda row: [of_one(one) for one in get(row)]
    if field.has_presence:
        name = field.name
        return kind, lambda row: of_one(get(row)) if row.HasField(name) else None
    return kind, get if of_one is _same else lambda row: of_one(get(row))


def _one(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Read]:
    """Return the type of one value of a field, and a function that converts the library's value."""
    message = field.message_type
    if message is None:
        return _plain(field)
    name = message.full_name
    if name == TIMESTAMP:
        return pa.timestamp("us", "UTC"), lambda value: value.seconds * 1_000_000 + value.nanos // 1000
    if name in WRAPPERS:
        return _plain(message.fields_by_name["value"])[0], attrgetter("value")
    if name in inside or len(inside) > DEEPEST:
        raise Damaged(f"its type {name} has values of its own type inside")
    parts = {one.name: _field(one, (*inside, name)) for one in message.fields}
    return pa.struct([(part, kind) for part, (kind, _) in parts.items()]), lambda value: {
        part: of(value) for part, (_, of) in parts.items()
    }


def _plain(field: Any) -> tuple[pa.DataType, Read]:
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return pa.string(), lambda number: names.get(number, str(number))
    types = {getattr(field, f"TYPE_{name.upper()}"): kind for name, kind in PLAIN.items()}
    if field.type not in types:
        raise Damaged(f"column {field.name} is a group, which no declared type is")
    return types[field.type], _same


def _same(value: Any) -> Any:
    return value


def _nothing(_: Any) -> None:
    return None
