"""The values that every sink is given: each type with its extremes. Pure."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

NAN, INF = float("nan"), float("inf")
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)
TIMES = [
    FIRST,
    datetime(999, 12, 31, 1, 2, 3, 4),
    datetime(1582, 10, 10),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(2026, 3, 29, 2, 30, 0, 1),
    LAST,
]
DOUBLES = [0.0, -0.0, NAN, INF, -INF, 1.7976931348623157e308, 5e-324, 0.1, -1e16]
UTC_TIME = pa.timestamp("us", "UTC")
INNER = pa.struct([("at", UTC_TIME), ("gone", pa.string()), ("x", pa.float64())])

YEAR_10000 = 253_402_300_800_000_000
"""In microseconds."""

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["", " a ", "𠮷野家", "e\u0301 \ufb01 \u202e", "\r\n\t\"',;\\", "NULL", "\\N", "nul \0.", "z" * 70_000]),
    "binary": (pa.binary(), [b"", b"\x00\xff\\", bytes(range(256))]),
    "boolean": (pa.bool_(), [True, False]),
    "tinyint": (pa.int8(), [-128, 127]),
    "smallint": (pa.int16(), [-32768, 32767]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1]),
    "float": (pa.float32(), [0.0, -0.0, NAN, INF, -INF, 3.4028234663852886e38, 1.401298464324817e-45, 0.10000000149011612]),
    "double": (pa.float64(), DOUBLES),
    "decimal": (pa.decimal128(38, 18), [Decimal(text) for text in ("0", "-99999999999999999999.999999999999999999", "0.000000000000000001")]),
    "money": (pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("1.10")]),
    "date": (pa.date32(), [time.date() for time in TIMES]),
    "timestamp": (UTC_TIME, [time.replace(tzinfo=UTC) for time in TIMES]),
    "timestamp_ntz": (pa.timestamp("us"), TIMES),
    "array": (pa.list_(pa.string()), [[], [None, "", "𠮷", "nul \0."]]),
    "doubles": (pa.list_(pa.float64()), [[0.0, -0.0, NAN, INF, None]]),
    "struct": (INNER, [{"at": TIMES[1].replace(tzinfo=UTC), "gone": None, "x": -0.0}, {"at": None, "gone": "𠮷", "x": NAN}, dict.fromkeys(("at", "gone", "x"))]),
    "map": (pa.map_(pa.string(), pa.decimal128(5, 2)), [[], [("𠮷", Decimal("0.10")), ("", None)]]),
    "structs": (pa.list_(INNER), [[None, {"at": LAST.replace(tzinfo=UTC), "gone": "", "x": 0.1}]]),
}  # fmt: skip
"""Types by the name of their column, and their values. Each column has a null too."""
ROWS = max(len(values) for _, values in KINDS.values()) + 1


def table(kinds: dict[str, list[Any]]) -> pa.Table:
    """Return rows r0, r1, … in which each column has its values from the top; the last row is null."""
    number = max(map(len, kinds.values())) + 1
    columns = {
        name: pa.array([*values, *[None] * (number - len(values))], KINDS[name][0]) for name, values in kinds.items()
    }
    return pa.table({"id": [f"r{at}" for at in range(number)], **columns})


def exact(value: Any) -> Any:
    """Return a form that is equal for the same value only: bits of a float, microseconds of a time."""
    if isinstance(value, float):
        return ("float", "NaN" if value != value else struct.pack(">d", value).hex())
    if isinstance(value, datetime):
        return ("time", (value.astimezone(UTC) if value.tzinfo else value).isoformat(timespec="microseconds"))
    if isinstance(value, date):
        return ("date", value.isoformat())
    if isinstance(value, bytes | bytearray | memoryview):
        return ("bytes", bytes(value).hex())
    if isinstance(value, dict):
        return ("named", sorted((name, exact(one)) for name, one in value.items()))
    if isinstance(value, list) and value and all(isinstance(one, tuple) for one in value):
        return exact(dict(value))
    if isinstance(value, list):
        return [exact(one) for one in value]
    return (type(value).__name__, value)


def as_json(kind: pa.DataType, value: Any) -> Any:
    """Return what a plain JSON parser reads of a value that is written exactly: numbers as numbers, the rest as
    strings."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        named = "NaN" if value != value else {INF: "Infinity", -INF: "-Infinity"}.get(value)
        return named or value
    if pa.types.is_timestamp(kind):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if kind.tz else "")
    if pa.types.is_date(kind):
        return value.isoformat()
    if pa.types.is_binary(kind):
        return base64.b64encode(value).decode()
    if pa.types.is_struct(kind):
        return {field.name: as_json(field.type, value[field.name]) for field in kind}
    if pa.types.is_list(kind):
        return [as_json(kind.value_type, one) for one in value]
    if pa.types.is_map(kind):
        return {key: as_json(kind.item_type, one) for key, one in value}
    return value


def parsed(text: str | None) -> Any:
    """Return the values of JSON, decimals as they are written."""
    return None if text is None else json.loads(text, parse_float=Written)


class Written(str):
    """A number of JSON with a point or an exponent, which is compared as the type of the column."""


def of_kind(kind: pa.DataType, value: Any) -> Any:
    """Return a value that was read, or is wanted, in the one form of its type: a float of 32 bits may be told by its
    shortest string."""
    if value is None or (isinstance(value, str) and not isinstance(value, Written)):
        return value
    if kind == pa.float32():
        return float(np.float32(value))
    return dict(value) if pa.types.is_map(kind) else value


def without_signs_of_zero(value: Any) -> Any:
    """Return a value with 0.0 for each -0.0."""
    if isinstance(value, list):
        return [without_signs_of_zero(one) for one in value]
    if isinstance(value, dict):
        return {name: without_signs_of_zero(one) for name, one in value.items()}
    return 0.0 if value == 0.0 and isinstance(value, float) else value


def same(found: Any, wanted: Any) -> bool:
    """Return whether a value that was read is the one that is wanted, exactly.

    JSON's numbers are read as the wanted type.
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(same(found[name], one) for name, one in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list) and not any(isinstance(one, tuple) for one in wanted):
        return len(wanted) == len(found) and all(map(same, found, wanted))
    if isinstance(found, Written):
        as_wanted: Callable[[str], Any] = Decimal if isinstance(wanted, Decimal) else float
        found = as_wanted(found)
    if isinstance(wanted, Decimal) and isinstance(found, int) and not isinstance(found, bool):
        found = Decimal(found)
    return bool(exact(found) == exact(wanted))
