"""Messages in formats of a schema registry, written by the ecosystem's own serializers; and sales as Avro and
Protobuf."""

from __future__ import annotations

import io
import json
import struct
from functools import cache
from typing import Any

import fastavro
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

AT = {"type": "long", "logicalType": "timestamp-millis"}
SALE: dict[str, Any] = {
    "type": "record", "name": "Sale", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"}, {"name": "shop", "type": ["null", "string"]}, {"name": "at", "type": AT},
        {"name": "cents", "type": "int"}, {"name": "weight", "type": "double"},
    ],
}  # fmt: skip
GROWN = SALE | {
    "fields": [
        *SALE["fields"][:3],
        {"name": "cents", "type": "long"},
        SALE["fields"][4],
        {"name": "clerk", "type": "string", "default": ""},
    ]
}
"""It has wider cents, and a column that nobody has declared."""
CHANGED = SALE | {"fields": [*SALE["fields"][:3], {"name": "cents", "type": "string"}, SALE["fields"][4]]}
"""Its cents are texts, which fit no number."""
KEY = {"type": "record", "name": "Key", "namespace": "shop", "fields": [{"name": "id", "type": "string"}]}
JSON_SALE = {
    "$schema": "http://json-schema.org/draft-07/schema#", "title": "Sale", "type": "object",
    "properties": {"id": {"type": "string"}, "cents": {"type": "integer", "minimum": 0}}, "required": ["id"],
}  # fmt: skip


def framed(number: int, body: bytes) -> bytes:
    """A message behind the id of its schema."""
    return b"\0" + struct.pack(">I", number) + body


def avro(schema: Any, value: Any, number: int) -> bytes:
    """A value as Avro, framed. For what the serializers refuse to write."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return framed(number, body.getvalue())


@cache
def sale_type() -> Any:
    """A class of Protobuf with sales: a wrapper, a time, an enum, a list."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name="sale.proto", package="shop", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )  # fmt: skip
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("PLAIN", "GIFT")):
        kind.value.add(name=name, number=number)
    fields = [
        ("id", 9, None, 1), ("shop", 11, ".google.protobuf.StringValue", 1), ("at", 11, ".google.protobuf.Timestamp", 1),
        ("cents", 3, None, 1), ("weight", 1, None, 1), ("kind", 14, ".shop.Kind", 1), ("tags", 9, None, 3),
    ]  # fmt: skip
    for name in ("Other", "Sale"):
        message = file.message_type.add(name=name)
        for number, (field, of, type_name, label) in enumerate(fields if name == "Sale" else [], 1):
            message.field.add(name=field, number=number, type=of, type_name=type_name, label=label)
    pool = descriptor_pool.DescriptorPool()
    for library in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(library.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Sale"))


def proto_sale(value: dict[str, Any]) -> Any:
    """A sale as a message of that class; `at` in milliseconds."""
    made = sale_type()(
        id=value["id"], cents=value["cents"], weight=value["weight"], kind=value["cents"] % 2, tags=["a", "b"]
    )
    made.at.FromMilliseconds(value["at"])
    if value["shop"] is not None:
        made.shop.value = value["shop"]
    return made


class Serializers:
    """Confluent's serializers for a topic, against a registry."""

    def __init__(self, url: str, topic: str = "sales") -> None:
        self._client = SchemaRegistryClient({"url": url})
        self._topic = topic

    def avro(self, schema: Any, value: Any, part: str = MessageField.VALUE) -> bytes:
        """A value by a schema."""
        return bytes(
            AvroSerializer(self._client, json.dumps(schema))(value, SerializationContext(self._topic, part)) or b""
        )

    def protobuf(self, value: dict[str, Any]) -> bytes:
        """A sale."""
        write = ProtobufSerializer(sale_type(), self._client, {"use.deprecated.format": False})
        return bytes(write(proto_sale(value), SerializationContext(self._topic, MessageField.VALUE)) or b"")

    def json(self, value: Any) -> bytes:
        """A value by JSON_SALE."""
        write = JSONSerializer(json.dumps(JSON_SALE), self._client)
        return bytes(write(value, SerializationContext(self._topic, MessageField.VALUE)) or b"")
