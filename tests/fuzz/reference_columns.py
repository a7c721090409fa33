"""A plain reader of one value of a typed column, by the section *Columns* of `docs/reference/values.md` alone: Python's numbers, and no cast of Arrow's.

A value is given as what is stored: an integer (also of days, or of units of time since 1970), a float, a Decimal, a string, bytes, True or False, or a list, pairs or
fields of these. The same is returned, with times in microseconds.
"""

from __future__ import annotations

import math
import struct
from decimal import Context, Decimal
from typing import Any

KEPT, INVALID, REFUSED = "kept", "invalid", "refused"
"""What becomes of a value: of its record, or of its whole file."""
WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
EXACT = {"float": 1 << 24, "double": 1 << 53}
UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
"""By what a number of units is multiplied and divided to be microseconds."""
YEAR_1, YEAR_10000 = -719_162, 2_932_897
"""In days since 1970."""
DAY = 86_400_000_000
WIDE = Context(prec=80)


class Invalid(Exception):
    """The declared type can't hold the value."""


def takes(declared: str, there: Any) -> bool:
    """Return whether a declared type takes a type of columns: the table of the page."""
    if there == "null":
        return True
    if declared in ("list", "map", "struct"):
        return isinstance(there, tuple) and there[0] == declared and takes("int", there[1])
    if isinstance(there, tuple):
        return False
    family = there.partition(" ")[0]
    if declared in WHOLE:
        return family == "integer"
    if declared in EXACT:
        return family in ("integer", "float")
    if declared.startswith("decimal"):
        return family in ("integer", "decimal")
    if declared == "timestamp":
        return family in ("time", "zoned")
    return family == {"timestamp_ntz": "time"}.get(declared, declared)


def read(declared: str, there: Any, value: Any) -> tuple[str, Any]:
    """Return what becomes of a value, and as what it is kept."""
    if not takes(declared, there):
        return REFUSED, None
    try:
        return KEPT, None if value is None else _held(declared, there, value)
    except Invalid:
        return INVALID, None


def _held(declared: str, there: Any, value: Any) -> Any:
    if declared == "list":
        return [None if one is None else _held("int", there[1], one) for one in value]
    if declared == "map":
        return [(key, None if one is None else _held("int", there[1], one)) for key, one in value]
    if declared == "struct":
        return {name: None if one is None else _held("int", there[1], one) for name, one in value.items()}
    if declared in WHOLE:
        return _within(value, -(1 << WHOLE[declared] - 1), (1 << WHOLE[declared] - 1) - 1)
    if declared in EXACT:
        return float(_within(value, -EXACT[declared], EXACT[declared])) if isinstance(value, int) else _float(declared, value)
    if declared.startswith("decimal"):
        return _decimal(declared, value)
    if declared == "date":
        return _within(value // _days(there), YEAR_1, YEAR_10000 - 1)
    if declared.startswith("timestamp"):
        times, divided = UNITS[there.split(" ")[1]]
        return _within(value * times // divided, YEAR_1 * DAY, YEAR_10000 * DAY - 1)
    if declared == "string" and isinstance(value, bytes):
        raise Invalid  # it is no UTF-8
    return value


def _within(value: int, first: int, last: int) -> int:
    if not first <= value <= last:
        raise Invalid
    return value


def _float(declared: str, value: float) -> float:
    if declared == "double" or not math.isfinite(value):
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        raise Invalid from None


def _decimal(declared: str, value: Any) -> Decimal:
    precision, scale = map(int, declared.removeprefix("decimal(").removesuffix(")").split(","))
    units = WIDE.scaleb(Decimal(value), scale)
    if units != int(units) or abs(int(units)) >= 10**precision:
        raise Invalid
    return WIDE.scaleb(Decimal(int(units)), -scale)


def _days(there: str) -> int:
    return 86_400_000 if there.endswith("ms") else 1
