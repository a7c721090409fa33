"""Read Kafka messages in a format of a schema registry (Avro, JSON Schema, Debezium in Avro), as whole arrays.

Confluent's serializers put a frame before each message: a zero byte, and the id of its schema in four bytes.
"""

from __future__ import annotations

import base64
import json
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onlyonce.core.errors import in_line
from onlyonce.core.records import Damaged
from onlyonce.sources import avro_files
from onlyonce.sources.schema_registry import Schema
from onlyonce.sources.values import coercion

HEAD = 5
LONGEST = 1 << 30
"""More bytes than any message has."""
NONE = -1
"""Stands for the id of a message without a frame."""


def schema_ids(messages: pa.Array) -> NDArray[np.int64]:
    """Return the id of each message's schema; NONE for null, and for a message that does not begin with a frame."""
    heads = pc.fill_null(pc.binary_slice(messages, 0, HEAD), b"")
    whole = np.flatnonzero(pc.equal(pc.binary_length(heads), HEAD).to_numpy(zero_copy_only=False))
    ids = np.full(len(messages), NONE, np.int64)
    if len(whole):
        packed = heads.take(pa.array(whole)).cast(pa.binary(HEAD))
        signs = np.frombuffer(packed.buffers()[1], np.uint8, len(whole) * HEAD, packed.offset * HEAD).reshape(-1, HEAD)
        numbers = np.ascontiguousarray(signs[:, 1:]).view(">u4").ravel().astype(np.int64)
        ids[whole] = np.where(signs[:, 0] == 0, numbers, NONE)
    return ids


def message_bodies(messages: pa.Array) -> pa.Array:
    """Return the bytes after the frame of each message."""
    return behind_frame(messages, HEAD)


def behind_frame(rows: pa.Array, length: int) -> pa.Array:
    """Return the rows without their first `length` bytes."""
    return pc.binary_slice(rows, length, LONGEST)  # without an end Arrow counts past what a number holds


def joined_messages(*parts: pa.Array | bytes) -> bytes:
    """Return the concatenated rows of binary arrays; each row is the concatenation of its parts."""
    rows = pc.binary_join_element_wise(*parts, b"")
    return bytes(rows.buffers()[2] or b"")


# The declared columns of a message. The columns of a schema are converted to them by the rules of `coercion`, as for
# files.


@dataclass(frozen=True)
class Columns:
    """The wanted columns of some messages, and the names of their undeclared columns."""

    batch: pa.RecordBatch
    rest: str | None


@dataclass(frozen=True)
class Wanted:
    """The declared columns that come from a part of the message, and which of them it must have.

    `elsewhere`: columns that come from another part, even if this part has their names."""

    fields: tuple[pa.Field, ...]
    needed: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the columns."""
        return pa.schema(self.fields)

    def alone(self) -> str:
        """Return the single column of messages that are not records. Raise Damaged."""
        if len(self.fields) != 1:
            raise Damaged("its values are not records")
        return self.fields[0].name

    def found(self, there: Iterable[str]) -> list[str]:
        """Return the wanted ones among some columns."""
        declared = {field.name for field in self.fields}
        return [name for name in there if name in declared]

    def check(self, there: Mapping[str, pa.DataType]) -> None:
        """Raise Damaged if a column that identifies a record is missing, or if a type does not fit."""
        coercion.check_names([*there], self.needed)
        for field in self.fields:
            if field.name in there:
                _cast(pa.array([], there[field.name]), field)

    def fitted(self, found: Mapping[str, pa.Array], rows: int, there: Iterable[str]) -> Columns:
        """Return the columns in their declared types; a missing one is null."""
        columns = [_cast(found[f.name], f) if f.name in found else pa.nulls(rows, f.type) for f in self.fields]
        within = coercion.undeclared_within(
            pa.schema([(name, column.type) for name, column in found.items()]), self.schema
        )
        known = {*(field.name for field in self.fields), *self.elsewhere}
        return Columns(
            pa.RecordBatch.from_arrays(columns, schema=self.schema), coercion.undeclared([*there, *within], known)
        )


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return coercion.cast(array, field)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Damaged(f"column {field.name} is {array.type}, which does not fit the declared {field.type}") from error


# JSON values with a JSON Schema. They are only validated here, and read as plain JSON by the reader of lines. Nothing
# is fetched from elsewhere: a schema may name only schemas of the registry.


TOLD = 200
"""The most characters that are kept of a validator's message."""


def json_converter(schema: Schema, wanted: Wanted, *, validate: bool) -> Callable[[pa.Array], Columns]:
    """Return a function that validates messages by their schema. It returns no columns. Raise Damaged."""
    why = _checker(schema)

    def convert(bodies: pa.Array) -> Columns:
        for body in bodies.to_pylist() if validate else ():
            if (reason := why(body)) is not None:
                raise Damaged(reason)
        return wanted.fitted({}, len(bodies), ())

    return convert


def _checker(schema: Schema) -> Callable[[bytes], str | None]:
    """Return a function that returns why a message violates the schema, or None.

    It returns None also for a message that is not JSON: the parser reports that."""
    import jsonschema_rs

    named = dict(schema.references)

    def retrieve(uri: str) -> Any:
        name = next((name for name in named if uri == name or uri.endswith(f"/{name}")), None)
        if name is None:
            raise LookupError(uri)
        return json.loads(named[name])

    try:
        validator = jsonschema_rs.validator_for(json.loads(schema.text), retriever=retrieve)
    except Exception as error:  # a wrong schema can make the validator raise any error
        raise Damaged(f"it is no JSON Schema that can be read: {type(error).__name__}") from error

    def why(body: bytes) -> str | None:
        try:
            value = json.loads(body.decode())
        except (ValueError, RecursionError):
            return None
        if validator.is_valid(value):
            return None
        first = next(iter(validator.iter_errors(value)))
        return in_line(first.message[:TOLD])

    return why


# Avro messages of one schema become columns, all at once.
#
# The messages are concatenated as an Avro list, which fastavro reads by one call. After each message comes a random
# mark. If a message is cut short, or longer than its schema says, the marks after it are wrong. Then the whole list is
# refused, and the caller bisects it. Messages that are not Avro of this schema raise any error.


MARK = 16
MARKS = pa.struct([("mark", pa.binary(MARK))])
Avro = Any


def avro_converter(schema: Schema, wanted: Wanted) -> Callable[[pa.Array], Columns]:
    """Return a function that turns messages of a schema into the wanted columns. Raise Damaged."""
    parsed = checked_avro(schema)
    alone = not isinstance(parsed, dict) or parsed.get("type") != "record"
    if alone:
        types, mixed = {wanted.alone(): avro_files.types_of(parsed, avro_files.defined_in(parsed))}, []
    else:
        declared = {one.name for one in wanted.fields}
        types = dict.fromkeys((f["name"] for f in parsed["fields"]), _UNREAD) | avro_files.avro_types_of_columns(
            parsed, declared
        )
        mixed = avro_files.mixed_columns(parsed, declared)
    wanted.check({name: meant for name, (_, meant) in types.items()})
    names = wanted.found(types)
    read, row = avro_reader(parsed), _row(names, types, alone=alone)

    def convert(bodies: pa.Array) -> Columns:
        # One call for all rows and columns: Arrow reads the dictionaries without Python code for each row.
        rows = read(bodies)
        avro_files.make_strings((one["value"] for one in rows), mixed)
        values = pc.struct_field(pa.array(rows, row), "value")
        columns = {name: values if alone else pc.struct_field(values, name) for name in names}
        return wanted.fitted(
            {name: column.cast(types[name][1]) for name, column in columns.items()}, len(bodies), types
        )

    return convert


def _row(names: list[str], types: Mapping[str, avro_files.Types], *, alone: bool) -> pa.DataType:
    """Return the Arrow type of the values that are taken from a row."""
    value = types[names[0]][0] if alone else pa.struct([(name, types[name][0]) for name in names])
    return pa.struct([("value", value)])


def checked_avro(schema: Schema) -> Avro:
    """Return a schema with its imports, whose values can be read in bounds, and whose times are plain numbers.

    Raise Damaged.
    """
    parsed = _parsed(schema)
    avro_files.check_types(parsed)
    return parsed


def avro_reader(parsed: Avro) -> Callable[[pa.Array], list[Any]]:
    """Return a function that reads messages of a schema, each as `value` in a dictionary.

    It may raise any error for messages that are not Avro of this schema.
    """
    mark = secrets.token_bytes(MARK)
    marked = fastavro.parse_schema(
        {
            "type": "array",
            "items": {
                "type": "record",
                "name": "onlyonce.Marked",
                "fields": [
                    {"name": "value", "type": parsed},
                    {"name": "mark", "type": {"type": "fixed", "name": "onlyonce.Mark", "size": MARK}},
                ],
            },
        }
    )

    def read(bodies: pa.Array) -> list[Any]:
        content = _long(len(bodies)) + joined_messages(bodies, mark) + b"\0"
        file = BytesIO(content)
        rows: list[Any] = fastavro.schemaless_reader(file, marked, None)  # type: ignore[assignment]
        if file.tell() != len(content) or not pc.all(pc.equal(pa.array(rows, MARKS).field("mark"), mark)).as_py():
            raise ValueError("messages of another length than their schema says")
        return rows

    return read


_UNREAD = (pa.null(), pa.null())


def _parsed(schema: Schema) -> Avro:
    """Return the schema with its imports expanded at their first use, all names in full."""
    try:
        named: dict[str, Any] = {}
        for _, text in schema.references:
            fastavro.parse_schema(json.loads(text), named)
        return avro_files.without_logical(fastavro.parse_schema(json.loads(schema.text), {**named}), named, set())
    except Exception as error:  # a wrong schema can make the parser raise any error
        raise Damaged(f"it is no schema of Avro: {type(error).__name__}") from error


def _long(number: int) -> bytes:
    """Return a number that is not negative in Avro's encoding."""
    number <<= 1
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


# Debezium's envelope in Avro becomes the JSON that Debezium's JSON converter would have written, so that one reader
# takes both apart.
#
# Two things differ from that JSON. A decimal is its number in a string, and not base64 of its bytes. A column's name is
# the name that Avro allows it.


TEXT = "oo_text"
WANTED = Wanted((pa.field(TEXT, pa.string()),), ())
"""One column: the envelope in JSON."""
PARTS = ("before", "after", "source", "op")


def envelope_converter(schema: Schema) -> Callable[[pa.Array], Columns]:
    """Return a function that turns messages of a schema into TEXT. Raise Damaged."""
    parsed = checked_avro(schema)
    there = [field["name"] for field in parsed["fields"]] if isinstance(parsed, dict) and "fields" in parsed else []
    if missing := [part for part in PARTS if part not in there]:
        raise Damaged(
            f"it is no envelope of Debezium, which is a record with {', '.join(PARTS)}: it has no {missing[0]}"
        )
    read = avro_reader(parsed)

    def convert(bodies: pa.Array) -> Columns:
        texts = [_text(row["value"]) for row in read(bodies)]
        return WANTED.fitted({TEXT: pa.array(texts, pa.string())}, len(bodies), (TEXT,))

    return convert


def _text(envelope: Any) -> str:
    try:
        return ENCODE(envelope)
    except ValueError:
        return ENCODE(_named(envelope))


def _named(value: Any) -> Any:
    """Return a value with names in place of numbers that JSON does not have: NaN and Infinity."""
    if isinstance(value, dict):
        return {name: _named(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_named(one) for one in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain(value: Any) -> str:
    """Return a value that JSON has no type for as a string."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


ENCODE = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_plain
).encode
