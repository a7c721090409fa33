"""A plain reader of one value of a typed column, by the page of values (its section *Columns*) alone, without a cast of
Arrow's.

It was written from the text of that page, by someone who had nothing else of this repository. A value is given as what
is stored: an integer (also of days, or of units of time since 1970), a float, a Decimal, a string, bytes (for a string:
it is no UTF-8), True or False, or a list, pairs or fields of these. The same is returned, with times in microseconds.
"""

from __future__ import annotations

import re
import struct
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

KEPT, INVALID, REFUSED = "kept", "invalid", "refused"

There = str | tuple[str, str]

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
EXACT_INTEGERS = {"float": 2**24, "double": 2**53}
UNITS_PER_SECOND = {"s": 10**0, "ms": 10**3, "us": 10**6, "ns": 10**9}
MICROSECONDS = 10**6
DAY_MS = 86_400_000
DAY_US = 86_400 * MICROSECONDS
EPOCH = date(1970, 1, 1).toordinal()
FIRST_DAY = date(1, 1, 1).toordinal() - EPOCH
LAST_DAY = date(9999, 12, 31).toordinal() - EPOCH
PART_OF = {
    "list": "int",
    "map": "int",
    "struct": "int",
}  # The declared type of what is within array<int>, map<string,int> and struct<a:int>.


class CannotHold(Exception):
    """The declared type can't hold the value."""


def read(declared: str, there: There, value: Any) -> tuple[str, Any]:
    """Return what becomes of a value of a column of type `there` that is declared as `declared`, and as what it is
    kept."""
    if not takes(declared, there):
        return REFUSED, None
    try:
        return KEPT, convert(declared, there, value)
    except CannotHold:
        return INVALID, None


def takes(declared: str, there: There) -> bool:
    """Say whether the declared type takes columns of this type."""
    if there == "null":
        return True
    if isinstance(there, tuple):
        kind, inner = there
        return declared == kind and takes(PART_OF[kind], inner)
    if declared in INTEGER_BITS:
        return there == "integer"
    if declared in EXACT_INTEGERS:
        return there in ("integer", "float")
    if declared.startswith("decimal("):
        return there in ("integer", "decimal")
    if declared in ("string", "binary", "boolean"):
        return there == declared
    if declared == "date":
        return there in ("date", "date ms")
    if declared == "timestamp":
        return there.startswith(("time ", "zoned "))
    if declared == "timestamp_ntz":
        return there.startswith("time ")
    if declared in PART_OF:
        return False
    raise ValueError(f"not a declared type: {declared}")


def convert(declared: str, there: There, value: Any) -> Any:
    """Return the value as the declared type, which takes its column, or raise CannotHold."""
    if value is None:
        return None
    if isinstance(there, tuple):
        return convert_parts(PART_OF[declared], there, value)
    if declared in INTEGER_BITS:
        return convert_integer(INTEGER_BITS[declared], value)
    if declared in EXACT_INTEGERS:
        return convert_float(declared, there, value)
    if declared.startswith("decimal("):
        return convert_decimal(declared, value)
    if declared == "string":
        return convert_string(value)
    if declared == "date":
        return convert_date(there, value)
    if declared in ("timestamp", "timestamp_ntz"):
        return convert_time(there.split()[1], value)
    return value  # binary and boolean


def convert_parts(part: str, there: tuple[str, str], value: Any) -> Any:
    """Return a list, a map or a struct, each part as the declared type `part`."""
    kind, inner = there
    if kind == "list":
        return [convert(part, inner, element) for element in value]
    if kind == "map":
        return [(convert_string(key), convert(part, inner, element)) for key, element in value]
    return {"a": convert(part, inner, value.get("a"))}


def convert_integer(bits: int, value: int) -> int:
    """Return an integer that is in the range of a signed type of so many bits."""
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise CannotHold
    return value


def convert_float(declared: str, there: str, value: int | float) -> float:
    """Return an integer that is small enough to be exact, or the nearest value of a float."""
    if there == "integer":
        if abs(value) > EXACT_INTEGERS[declared]:
            raise CannotHold
        return float(value)
    if declared == "double":
        return float(value)
    try:
        nearest: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except (
        OverflowError
    ):  # A finite double whose nearest float is infinite; struct lets infinity itself and NaN through.
        raise CannotHold from None
    return nearest


def convert_decimal(declared: str, value: int | Decimal) -> Decimal:
    """Return an integer or a decimal with the declared scale, without rounding."""
    match = re.fullmatch(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)", declared)
    if match is None:
        raise ValueError(f"not a declared type: {declared}")
    precision, scale = int(match[1]), int(match[2])
    if isinstance(value, Decimal) and not value.is_finite():
        raise CannotHold
    unscaled = Fraction(value) * Fraction(10) ** scale
    if unscaled.denominator != 1 or abs(unscaled) >= 10**precision:
        raise CannotHold
    digits = tuple(int(digit) for digit in str(abs(unscaled.numerator)))
    return Decimal((int(unscaled < 0), digits, -scale))


def convert_string(value: str | bytes | None) -> str:
    """Return a string (also a key of a map) that is UTF-8 and has no NUL character."""
    if not isinstance(value, str) or "\0" in value:  # Bytes are what is not UTF-8.
        raise CannotHold
    if any("\ud800" <= character <= "\udfff" for character in value):  # Half a surrogate pair has no UTF-8.
        raise CannotHold
    return value


def convert_date(there: str, value: int) -> int:
    """Return the days since 1970 of a date of the years 1 to 9999."""
    days = value // DAY_MS if there == "date ms" else value
    if not FIRST_DAY <= days <= LAST_DAY:
        raise CannotHold
    return days


def convert_time(unit: str, value: int) -> int:
    """Return the microseconds since 1970 of a time of the years 1 to 9999, cut towards the past."""
    microseconds = value * MICROSECONDS // UNITS_PER_SECOND[unit]
    if not FIRST_DAY * DAY_US <= microseconds < (LAST_DAY + 1) * DAY_US:
        raise CannotHold
    return microseconds
