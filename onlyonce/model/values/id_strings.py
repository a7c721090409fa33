"""The string of a value in a record's id: one form for each type, whatever format the value came in.

The id hashes these strings (`onlyonce/sources/parse/record_id.py`). `docs/reference/values.md` is made from the
docstrings below.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


def string(value: str) -> str:
    """The string itself."""
    return value


def boolean(value: bool) -> str:
    """`true` or `false`."""
    return "true" if value else "false"


def whole(value: int) -> str:
    """Its digits, with `-` for a negative number."""
    return str(value)


def floating(value: float) -> str:
    """The double in hexadecimal, exactly, as Python's `float.hex` writes it: `0x1.8000000000000p+0` is 1.5.

    Zero is `0x0.0p+0`, without a sign.
    """
    return (value + 0.0).hex()


def decimal(value: Decimal) -> str:
    """All digits of its scale behind the point, no exponent: `1.50` of decimal(12,2). Zero has no sign."""
    return format(value if value else abs(value), "f")


def day(value: date) -> str:
    """`YYYY-MM-DD`."""
    return value.isoformat()


def time(value: datetime) -> str:
    """`YYYY-MM-DD HH:MM:SS` in UTC; behind it a fraction of a second without zeros at its end, if there is one."""
    plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    whole_seconds = plain.replace(microsecond=0).isoformat(sep=" ")
    return f"{whole_seconds}.{plain.microsecond:06}".rstrip("0") if plain.microsecond else whole_seconds


def octets(value: bytes) -> str:
    """Its bytes in hexadecimal, in small letters."""
    return value.hex()


FORMS: dict[str, Callable[[Any], str]] = {
    "string": string, "boolean": boolean, **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), whole),
    **dict.fromkeys(("float", "double"), floating), "decimal": decimal, "date": day,
    **dict.fromkeys(("timestamp", "timestamp_ntz"), time), "binary": octets,
}  # fmt: skip
"""By the name of the type, without what is in its brackets."""
SAME = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
    "char": "string",
    "character": "string",
    "varchar": "string",
}


def named(kind: str) -> str:
    """Return the key of a declared type in FORMS, or the name of a type that is in no id."""
    found = re.match(r"\w+", kind.strip().lower())
    name = found[0] if found else kind
    return SAME.get(name, name)
