"""What the types of an Avro schema are in Arrow.

They come from the schema and not from the values, so a batch of rows decides nothing.

fastavro reads times as the numbers that they are, and whole arrays are cast. So a time of any year is read, and its
record alone is invalid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa

from onlyonce.model.record_size import Damaged
from onlyonce.model.values import conversions
from onlyonce.model.values.conversions import Number

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
"""Times are read as the numbers that they are and cast in whole arrays."""
Avro = Any
Types = tuple[pa.DataType, pa.DataType]
"""As it is read, and as it is meant."""
IN_A_STRING = frozenset({pa.string(), pa.bool_(), pa.int32(), pa.int64()})
"""A column that is one of several of these is read as a string, as JSON's values are for a string column."""


def without_logical(schema: Avro, named: dict[str, Any], seen: set[str]) -> Avro:
    """Return a schema with the schemas that it names where it first names them, and whose times are numbers: so
    fastavro converts none."""
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
    """Return the types of a schema that `without_logical` gave. Raise Damaged for a union that no type holds."""
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


def of_columns(schema: Avro, names: Collection[str]) -> dict[str, Types]:
    """Return the types of some columns of a record. Raise Damaged for a column that no type holds."""
    defined = defined_in(schema)
    found = {field["name"]: field["type"] for field in schema["fields"] if field["name"] in names}
    return {
        name: (pa.string(), pa.string()) if _is_mixed(kind, defined) else types_of(kind, defined)
        for name, kind in found.items()
    }


def mixed_columns(schema: Avro, names: Collection[str]) -> list[str]:
    """Return the columns whose values are of several types, which a string column holds as it holds JSON's."""
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
