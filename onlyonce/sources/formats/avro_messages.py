"""Turns Avro messages of one schema into columns, all at once.

The messages are put one behind the other as an Avro list, which fastavro reads by one call. Behind each message is a
mark at random. A message that is cut short, or has more than its schema says, makes the marks that follow wrong. Then
the whole is refused, and the caller halves it.

Who calls it: `decoding`. Errors: Damaged for a schema whose messages can't be read or don't fit; any error for messages
that are no such Avro.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from onlyonce.model.record_size import Damaged
from onlyonce.sources.files import avro_files, avro_types
from onlyonce.sources.formats import framing
from onlyonce.sources.formats.converting import Columns, Wanted
from onlyonce.sources.formats.schema_registry import Schema

MARK = 16
MARKS = pa.struct([("mark", pa.binary(MARK))])
Avro = Any


def converter(schema: Schema, wanted: Wanted) -> Callable[[pa.Array], Columns]:
    """What turns messages of a schema into the wanted columns. Raises Damaged."""
    parsed = checked(schema)
    alone = not isinstance(parsed, dict) or parsed.get("type") != "record"
    if alone:
        types, mixed = {wanted.alone(): avro_types.types_of(parsed, avro_types.defined_in(parsed))}, []
    else:
        declared = {one.name for one in wanted.fields}
        types = dict.fromkeys((f["name"] for f in parsed["fields"]), _UNREAD) | avro_types.of_columns(parsed, declared)
        mixed = avro_types.mixed_columns(parsed, declared)
    wanted.check({name: meant for name, (_, meant) in types.items()})
    names = wanted.found(types)
    read, row = reader(parsed), _row(names, types, alone=alone)

    def convert(bodies: pa.Array) -> Columns:
        # One call for all rows and columns: Arrow takes what it needs out of the dictionaries, without Python.
        rows = read(bodies)
        avro_types.make_strings((one["value"] for one in rows), mixed)
        values = pc.struct_field(pa.array(rows, row), "value")
        columns = {name: values if alone else pc.struct_field(values, name) for name in names}
        return wanted.fitted(
            {name: column.cast(types[name][1]) for name, column in columns.items()}, len(bodies), types
        )

    return convert


def _row(names: list[str], types: Mapping[str, avro_types.Types], *, alone: bool) -> pa.DataType:
    """What is taken of a row that was read."""
    value = types[names[0]][0] if alone else pa.struct([(name, types[name][0]) for name in names])
    return pa.struct([("value", value)])


def checked(schema: Schema) -> Avro:
    """A schema with what it imports, whose values can be read in bounds.

    Times in it are the numbers that they are. Raises Damaged.
    """
    parsed = _parsed(schema)
    avro_files.check_types(parsed)
    return parsed


def reader(parsed: Avro) -> Callable[[pa.Array], list[Any]]:
    """What reads messages of a schema, each as `value` in a dictionary.

    It raises any error for messages that are no such Avro.
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
        content = _long(len(bodies)) + framing.joined(bodies, mark) + b"\0"
        file = BytesIO(content)
        rows: list[Any] = fastavro.schemaless_reader(file, marked, None)  # type: ignore[assignment]
        if file.tell() != len(content) or not pc.all(pc.equal(pa.array(rows, MARKS).field("mark"), mark)).as_py():
            raise ValueError("messages of another length than their schema says")
        return rows

    return read


_UNREAD = (pa.null(), pa.null())


def _parsed(schema: Schema) -> Avro:
    """The schema with what it imports where it is first named, all names in full."""
    try:
        named: dict[str, Any] = {}
        for _, text in schema.references:
            fastavro.parse_schema(json.loads(text), named)
        return avro_types.without_logical(fastavro.parse_schema(json.loads(schema.text), {**named}), named, set())
    except Exception as error:  # whatever a wrong schema leads the parser to
        raise Damaged(f"it is no schema of Avro: {type(error).__name__}") from error


def _long(number: int) -> bytes:
    """A whole number, not below zero, as Avro writes it."""
    number <<= 1
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)
