"""Turns Avro messages of one schema into columns, all at once.

The messages are put one behind the other as an Avro list, which fastavro reads by one call. Behind each message is a mark at random. A message that is
cut short, or has more than its schema says, makes the marks that follow wrong. Then the whole is refused, and the caller halves it.

Who calls it: `decoding`. Errors: Damaged for a schema whose messages can't be read or don't fit; any error for messages that are no such Avro.
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

from onlyonce.sources.files import avro_files
from onlyonce.sources.files.listing import Damaged
from onlyonce.sources.formats import framing
from onlyonce.sources.formats.converting import Columns, Wanted
from onlyonce.sources.formats.schema_registry import Schema

MARK = 16
MARKS = pa.struct([("mark", pa.binary(MARK))])
PLAIN = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
LOGICAL = {
    ("int", "date"): pa.date32(), ("int", "time-millis"): pa.time32("ms"), ("long", "time-micros"): pa.time64("us"),
    **{("long", f"timestamp-{name}"): pa.timestamp(unit, "UTC") for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))},
    **{("long", f"local-timestamp-{name}"): pa.timestamp(unit) for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))},
}  # fmt: skip
"""Times are read as the numbers that they are and cast in whole arrays."""
Avro = Any
Types = tuple[pa.DataType, pa.DataType]
"""As it is read, and as it is meant."""


def converter(schema: Schema, wanted: Wanted) -> Callable[[pa.Array], Columns]:
    """What turns messages of a schema into the wanted columns. Raises Damaged."""
    parsed = checked(schema)
    defined = _defined(parsed)
    alone = not isinstance(parsed, dict) or parsed.get("type") != "record"
    if alone:
        types = {wanted.alone(): _types(parsed, defined)}
    else:
        declared = {one.name for one in wanted.fields}
        types = {f["name"]: _types(f["type"], defined) if f["name"] in declared else _UNREAD for f in parsed["fields"]}
    wanted.check({name: meant for name, (_, meant) in types.items()})
    names = wanted.found(types)
    read, row = reader(parsed), _row(names, types, alone=alone)

    def convert(bodies: pa.Array) -> Columns:
        # One call for all rows and columns: Arrow takes what it needs out of the dictionaries, without Python.
        values = pc.struct_field(pa.array(read(bodies), row), "value")
        columns = {name: values if alone else pc.struct_field(values, name) for name in names}
        return wanted.fitted({name: column.cast(types[name][1]) for name, column in columns.items()}, len(bodies), types)

    return convert


def _row(names: list[str], types: Mapping[str, Types], *, alone: bool) -> pa.DataType:
    """What is taken of a row that was read."""
    value = types[names[0]][0] if alone else pa.struct([(name, types[name][0]) for name in names])
    return pa.struct([("value", value)])


def checked(schema: Schema) -> Avro:
    """A schema with what it imports, whose values can be read in bounds. Times in it are the numbers that they are. Raises Damaged."""
    parsed = _parsed(schema)
    avro_files.check_types(parsed)
    return parsed


def reader(parsed: Avro) -> Callable[[pa.Array], list[Any]]:
    """What reads messages of a schema, each as `value` in a dictionary. It raises any error for messages that are no such Avro."""
    mark = secrets.token_bytes(MARK)
    marked = fastavro.parse_schema(
        {"type": "array", "items": {"type": "record", "name": "onlyonce.Marked", "fields": [
            {"name": "value", "type": parsed}, {"name": "mark", "type": {"type": "fixed", "name": "onlyonce.Mark", "size": MARK}},
        ]}}
    )  # fmt: skip

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
        return _with_imports(fastavro.parse_schema(json.loads(schema.text), {**named}), named, set())
    except Exception as error:  # whatever a wrong schema leads the parser to
        raise Damaged(f"it is no schema of Avro: {type(error).__name__}") from error


def _with_imports(schema: Avro, named: dict[str, Any], seen: set[str]) -> Avro:
    if isinstance(schema, list):
        return [_with_imports(one, named, seen) for one in schema]
    if isinstance(schema, str):
        return _with_imports(named[schema], named, seen) if schema in named and schema not in seen else schema
    if "name" in schema and schema["type"] in ("record", "error", "enum", "fixed"):
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
    decimal = schema.get("logicalType") == "decimal"
    kept = {name: value for name, value in schema.items() if not name.startswith("__") and name not in ("aliases", "default")}
    if not decimal and "logicalType" in kept:
        kept["oo_logical"] = kept.pop("logicalType")
    for part in ("items", "values"):
        if part in kept:
            kept[part] = _with_imports(kept[part], named, seen)
    if "fields" in kept:
        kept["fields"] = [{"name": f["name"], "type": _with_imports(f["type"], named, seen)} for f in kept["fields"]]
    if isinstance(kept["type"], dict | list):
        kept["type"] = _with_imports(kept["type"], named, seen)
    return kept


def _types(schema: Avro, defined: dict[str, Avro]) -> Types:
    if isinstance(schema, str):
        return _types(defined[schema], defined) if schema in defined else (PLAIN[schema], PLAIN[schema])
    if isinstance(schema, list):
        return _of_union([_types(one, defined) for one in schema if one != "null"])
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _types(kind, defined)
    return _of_named(schema, defined) if "name" in schema else _of_built(schema, kind, defined)


def _defined(schema: Avro) -> dict[str, Avro]:
    """The named types of a schema, by their names in full."""
    if isinstance(schema, list):
        return {name: of for one in schema for name, of in _defined(one).items()}
    if isinstance(schema, str):
        return {}
    inside = [*(f["type"] for f in schema.get("fields", ())), *(schema[part] for part in ("items", "values") if part in schema)]
    found = _defined([*inside, *([schema["type"]] if isinstance(schema["type"], dict | list) else [])])
    return found | ({schema["name"]: schema} if "name" in schema else {})


def _of_named(schema: Avro, defined: dict[str, Avro]) -> Types:
    if schema["type"] == "enum":
        return pa.string(), pa.string()
    if schema["type"] == "fixed":
        return _decimal(schema) or (pa.binary(schema["size"]), pa.binary(schema["size"]))
    parts = [(f["name"], _types(f["type"], defined)) for f in schema["fields"]]
    read, meant = (pa.struct([(name, both[at]) for name, both in parts]) for at in (0, 1))
    return read, meant


def _of_built(schema: Avro, kind: str, defined: dict[str, Avro]) -> Types:
    if kind == "array":
        read, meant = _types(schema["items"], defined)
        return pa.list_(read), pa.list_(meant)
    if kind == "map":
        read, meant = _types(schema["values"], defined)
        return pa.map_(pa.string(), read), pa.map_(pa.string(), meant)
    if kind == "bytes" and (decimal := _decimal(schema)):
        return decimal
    if kind in defined:
        return _types(kind, defined)
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


def _long(number: int) -> bytes:
    """A whole number, not below zero, as Avro writes it."""
    number <<= 1
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)
