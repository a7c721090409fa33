"""The conversion table: for each declared type and source form the value, or the reason why there is none. Pure.

It also reads the forms that a declaration may name for a time column: a count since 1970, or a pattern of `strptime`
directives. `datetime.strptime` itself takes names of months from the locale, digits of any script, and a date without a
year from the clock. Here no locale, clock or time zone database affects a value, so it is the same at every replay, on
every machine.
"""

from __future__ import annotations

import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal, Inexact, InvalidOperation
from functools import cache
from typing import Any, NamedTuple, NoReturn, TypeGuard

from onlyonce.core.errors import Refused

EPOCHS = {"epoch_s": 0, "epoch_ms": 3, "epoch_us": 6, "epoch_ns": 9}
"""The kinds of counts since 1970; for each, how many digits of the number are fractions of a second."""
MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
SHORT_MONTHS = tuple(one[:3] for one in MONTHS)
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
TWO = "[0-9]{2}"


def _any(names: Iterable[str]) -> str:
    return f"(?i:{'|'.join(names)})"


DIRECTIVES = {
    "Y": "[0-9]{4}",
    "y": TWO,
    "m": TWO,
    "d": TWO,
    "H": TWO,
    "I": TWO,
    "M": TWO,
    "S": TWO,
    "f": "[0-9]{6}",
    "p": "(?i:[ap]m)",
    "z": "Z|[+-][0-9]{2}(?::?[0-9]{2})?",
    "b": _any(SHORT_MONTHS),
    "B": _any(MONTHS),
    "a": _any(one[:3] for one in DAYS),
    "A": _any(DAYS),
}
"""The pattern that each directive matches. Names are English, in upper or lower case."""
LOOSE = {**dict.fromkeys("mdHIMS", "[0-9]{1,2}"), "f": "[0-9]{1,9}"}
"""The pattern that a directive matches if no digit of another directive is next to it."""
DIGITS = frozenset("YymdHIMSf")
"""Directives that match digits."""
OF_CLOCK = frozenset("HIpMSfz")
"""Directives of a time of day."""
PART = re.compile(r"%(.)|([^%]+)", re.DOTALL)
"""A directive, or the plain characters between two of them."""
FURTHEST_ZONE = timedelta(hours=18)
PROBE = datetime(2026, 3, 4, 5, 6, 7)
"""A time whose parts all differ, and whose day could be a month."""


class Wrong(Exception):
    """A pattern that yields no time, or more than one; the message is the reason."""


class Time(NamedTuple):
    """A time as it is written: a clock time, and its offset from UTC if it has one."""

    clock: datetime
    zone: timedelta | None


Read = Callable[[str], Time | None]
"""Reads a string by a pattern; None if the pattern does not match, and for a time that does not exist."""


def time_reader(pattern: str) -> Read:
    """Return a function that reads strings by a pattern such as `%d/%m/%Y %H:%M`. Raise Wrong."""
    expression = re.compile(_expression(pattern))

    def read(text: str) -> Time | None:
        found = expression.fullmatch(text)
        return _time(found.groupdict()) if found else None

    _check_iso(read)
    return read


def time_zone(sign: str, hours: str, minutes: str) -> timedelta | None:
    """Return an offset from UTC by its digits; the minutes may be missing. None if no time zone has this offset."""
    found = timedelta(hours=int(hours), minutes=int(minutes or 0))
    if found > FURTHEST_ZONE or int(minutes or 0) > 59:
        return None
    return -found if sign == "-" else found


def format_has_clock(pattern: str) -> bool:
    """Return whether a pattern has more than a date."""
    return bool(OF_CLOCK & {directive for directive, _ in PART.findall(pattern)})


def format_has_zone(pattern: str) -> bool:
    """Return whether a pattern has an offset from UTC."""
    return "z" in {directive for directive, _ in PART.findall(pattern)}


def _expression(pattern: str) -> str:
    """Return the regular expression of a pattern, with a group for each directive. Raise Wrong."""
    parts = PART.findall(pattern)
    if pattern.replace("%%", "").endswith("%"):
        raise Wrong("a % at its end is no directive")
    found = [directive for directive, _ in parts if directive not in ("", "%")]
    for directive in found:
        if directive not in DIRECTIVES:
            raise Wrong(f"%{directive} is none of {', '.join(f'%{one}' for one in DIRECTIVES)} and %%")
        if found.count(directive) > 1:
            raise Wrong(f"%{directive} is there twice")
    for needed in ("Yy", "mbB", "d"):
        if sum(one in found for one in needed) != 1:
            raise Wrong(f"it needs exactly one of {', '.join(f'%{one}' for one in needed)}")
    if ("I" in found) != ("p" in found) or {"H", "I"} <= {*found}:
        raise Wrong("an hour is %H, or %I with %p")
    made = []
    for at, (directive, plain) in enumerate(parts):
        if directive in DIRECTIVES:
            next_to = {parts[other][0] for other in (at - 1, at + 1) if 0 <= other < len(parts)}
            strict = DIRECTIVES[directive]
            matches = strict if next_to & DIGITS else LOOSE.get(directive, strict)
            made.append(f"(?P<{directive}>{matches})")
        else:
            made.append(re.escape(plain or "%"))
    return "".join(made)


def _time(found: dict[str, str]) -> Time | None:
    hour = int(found.get("H", found.get("I", "0")))
    if "p" in found:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["p"].lower() == "pm" else 0)
    try:
        clock = datetime(
            _year(found), _month(found), int(found["d"]), hour, int(found.get("M", "0")), int(found.get("S", "0")),
            _microseconds(found.get("f", "")),
        )  # fmt: skip
    except ValueError:
        return None
    if "z" not in found:
        return Time(clock, None)
    sign, digits = found["z"][0], found["z"][1:].replace(":", "")
    distance = timedelta() if sign == "Z" else time_zone(sign, digits[:2], digits[2:])
    return None if distance is None else Time(clock, distance)


def _microseconds(fraction: str) -> int:
    """Return the microseconds of a fraction of a second by its digits: '5' is 500,000. What is finer is cut."""
    return int(fraction[:6].ljust(6, "0"))


def _year(found: dict[str, str]) -> int:
    if "Y" in found:
        return int(found["Y"])
    short = int(found["y"])
    return short + (1900 if short >= 69 else 2000)  # as in POSIX


def _month(found: dict[str, str]) -> int:
    if "m" in found:
        return int(found["m"])
    return SHORT_MONTHS.index(found.get("b", found.get("B", ""))[:3].lower()) + 1


def _check_iso(read: Read) -> None:
    """Raise Wrong if a pattern reads an ISO 8601 time as another time: ISO 8601 is accepted in any case."""
    for iso in (
        "%Y-%m-%d",
        "%Y-%m-%dT%H:%M",
        "%Y-%m-%d %H:%M",
        "%Y-%m-%dT%H:%M:%S",
        "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%dT%H:%M:%SZ",
        "%Y-%m-%d %H:%M:%SZ",
    ):
        text = PROBE.strftime(iso)
        right = datetime.fromisoformat(text.removesuffix("Z"))
        if (found := read(text)) and found.clock != right:
            raise Wrong(f"it reads {text} as {found.clock:%d %B %Y %H:%M:%S}, and ISO 8601 says another time")


# The conversion table.
#
# A number in JSON arrives as `Number`, with its characters as they are written; a value of CSV arrives as `Cell`.
# `docs/reference/values.md` is generated from the docstrings of the functions below (`make spec`).


NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?(?:(Z)|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?"
)
BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
"""Python's own strict mode accepts padding behind a whole value."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DAY, LAST_DAY = (one.toordinal() - EPOCH.toordinal() for one in (date.min, date.max))
"""The days that `events` can hold (years 1 to 9999), counted from 1970."""
LAST_INSTANT = (LAST_DAY + 1) * 86_400_000_000 - 1
"""The last instant that `events` can hold, in microseconds since 1970."""
LARGEST_ADJUSTED = 12
"""A number of seconds with this exponent (10^12) or a larger one is beyond the year 9999, whose last second is
253,402,300,799. It is checked first, since a number with a huge exponent can't be quantized."""
OUT_OF_YEARS = "as a time since 1970 its year is not in 1 to 9999"
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
EXACT_INTEGERS = {"float": 1 << 24, "double": 1 << 53}
"""Up to this number the type represents each integer exactly."""
MOST_DIGITS = 20
"""An integer with more characters is out of range for every type."""


class Number(str):
    """A number of JSON, as it is written."""

    __slots__ = ()


class Cell(str):
    """A value of CSV, without the quotes around it."""

    __slots__ = ()


class Unfit(Exception):
    """A value that its type does not take. The message is the reason, or empty if the value's form is the reason."""


UnknownFields = list[str]
"""The fields of structs that the declaration does not know; a conversion appends them."""
Convert = Callable[[Any, UnknownFields], Any]
JsonType = str | dict[str, Any]
"""A type as Spark's `DataType.jsonValue` writes it: the name of a scalar, or an object whose `type` is

array      with `elementType`
map        with `keyType` and `valueType`
struct     with `fields`, each with `name` and `type`
formatted  (FORMATTED) with `of` and `form`: ours, made by `with_forms`
"""


def string(value: Any, unknown: UnknownFields) -> str:
    """A string without its escapes; a number character for character; true, false; an object or array as JSON without
    white space, in whose strings only those characters are escaped for which JSON demands it."""
    return text(value)


def boolean(value: Any, unknown: UnknownFields) -> bool:
    """true or false; in CSV in capitals or small letters."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Cell) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise Unfit


def whole(kind: str) -> Convert:
    """A number without a point or an exponent, in the range of the type. A JSON string is not accepted."""
    bound = 1 << (BITS[kind] - 1)

    def convert(value: Any, unknown: UnknownFields) -> int:
        if not isinstance(value, (Number, Cell)) or not WHOLE.fullmatch(value):
            raise Unfit
        if len(value) > MOST_DIGITS or not -bound <= int(value) < bound:
            raise Unfit("it is out of range")
        return int(value)

    return convert


def floating(kind: str) -> Convert:
    """The value of the type that is nearest to a number.

    A number without point and exponent must be exact: up to 2^24 for float, 2^53 for double. NaN, infinity, a number
    that is too large, and a JSON string are not accepted."""
    bound, nearest = EXACT_INTEGERS[kind], float if kind == "double" else _nearest_single

    def convert(value: Any, unknown: UnknownFields) -> float:
        if not isinstance(value, (Number, Cell)) or not NUMBER.fullmatch(value):
            raise Unfit
        if WHOLE.fullmatch(value) and (len(value) > MOST_DIGITS or abs(int(value)) > bound):
            raise Unfit(f"a {kind} has not all integers beyond {bound}; declare bigint or decimal")
        try:
            found = nearest(value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found):
            raise Unfit("it is out of range")
        return found

    return convert


def decimal(precision: int, scale: int) -> Convert:
    """A number, even within a JSON string, with no more digits before and after the point than the type. Zeros at its
    end do not count.

    Nothing is rounded."""
    unit = Decimal(1).scaleb(-scale)

    def convert(value: Any, unknown: UnknownFields) -> Decimal:
        if not isinstance(value, str) or not NUMBER.fullmatch(value):
            raise Unfit
        exact = _decimal(value)
        if exact and exact.adjusted() >= precision - scale:
            raise Unfit("it has too many digits before the point")
        try:
            # A zero may have any exponent (0E+99999), and Decimal(0) has none.
            return Context(prec=len(value) + precision + 2, traps=[InvalidOperation, Inexact]).quantize(
                exact if exact else Decimal(0), unit
            )
        except (Inexact, InvalidOperation):
            raise Unfit("it has too many digits behind the point") from None

    return convert


def day(value: Any, unknown: UnknownFields) -> date:
    """YYYY-MM-DD, of the years 1 to 9999."""
    found = DATE.fullmatch(value) if is_string(value) else None
    if not found:
        raise Unfit
    try:
        return date(*map(int, found.groups()))
    except ValueError:
        raise Unfit("there is no such day") from None


def instant(value: Any, unknown: UnknownFields) -> datetime:
    """ISO 8601 with a date: YYYY-MM-DD, or with T or a space and HH:MM, HH:MM:SS or HH:MM:SS and a point and a fraction
    of a second; after a time of day Z, an offset of at most 18 hours (+HH, +HHMM, +HH:MM), or nothing, which is UTC.

    Or a JSON number: seconds since 1970. What is finer than a microsecond is cut towards the past. The years are 1 to
    9999. A time of day without a date, digits in a string, and the name of a zone are none."""
    if isinstance(value, Number):
        return _of_seconds(value)
    return _in_utc(*_clock(value))


def wall_clock(value: Any, unknown: UnknownFields) -> datetime:
    """ISO 8601 as for timestamp, without a zone; a value with a zone, and a number, are none."""
    clock, zone = _clock(value)
    if zone is not None:
        raise Unfit("it has a time zone, and the type has none")
    return clock


def octets(value: Any, unknown: UnknownFields) -> bytes:
    """In JSON a string in Base64 with its padding; in CSV the bytes of the value in UTF-8."""
    if isinstance(value, Cell):
        return value.encode()
    if not is_string(value):
        raise Unfit
    if not BASE64.fullmatch(value):
        raise Unfit("it is no Base64")
    return binascii.a2b_base64(value)


def array(element: Convert) -> Convert:
    """A JSON array; each element by its type."""

    def convert(value: Any, unknown: UnknownFields) -> list[Any]:
        if not isinstance(value, list):
            raise Unfit
        return [None if one is None else element(one, unknown) for one in value]

    return convert


def mapping(element: Convert) -> Convert:
    """A JSON object; each value by its type. The keys are strings."""

    def convert(value: Any, unknown: UnknownFields) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise Unfit
        return [(key, None if one is None else element(one, unknown)) for key, one in value.items()]

    return convert


def structure(fields: Mapping[str, Convert]) -> Convert:
    """A JSON object; each field by its type, a missing field is null.

    Fields that are not declared are counted as unknown.
    """

    def convert(value: Any, unknown: UnknownFields) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Unfit
        found = {name: None if value.get(name) is None else each(value[name], unknown) for name, each in fields.items()}
        unknown.extend(name for name in value if name not in fields)
        return found

    return convert


def formatted(kind: str, form: str) -> Convert:
    """The form that `formats` of the declaration names for a column, and all forms that the type takes anyway.

    `epoch_s`, `epoch_ms`, `epoch_us`, `epoch_ns`: a number, even within a JSON string, is that count since 1970. A
    pattern such as `%d/%m/%Y %H:%M`: a string, or a number as it is written, is a time in this pattern, and a number
    has no other meaning. `%m`, `%d`, `%H`, `%I`, `%M` and `%S` take one digit or two, and `%f` one to nine, unless
    digits of another directive are next to it; `%y` is 1969 to 2068; names are English; without `%z` it is UTC."""
    other = f"it is neither ISO 8601 nor {form!r}, as declared"

    def own(value: Any, unknown: UnknownFields) -> Any:
        try:
            return SCALARS[kind](value, unknown)
        except Unfit as why:
            raise Unfit(str(why) or other) from None

    if form in EPOCHS:  # declared only for columns of the type timestamp
        places = EPOCHS[form]
        return lambda value, unknown: (
            _of_seconds(value, places) if isinstance(value, str) and NUMBER.fullmatch(value) else own(value, unknown)
        )
    by_pattern = time_reader(form)

    def convert(value: Any, unknown: UnknownFields) -> Any:
        found = by_pattern(value) if isinstance(value, str) else None
        if found is not None:
            return _of_clock(kind, found)
        if isinstance(value, Number):
            raise Unfit(other)
        return own(value, unknown)

    return convert


TIMES = ("date", "timestamp", "timestamp_ntz")
COUNTS = {10: "epoch_s", 13: "epoch_ms", 16: "epoch_us", 19: "epoch_ns"}
"""The usual count since 1970 with so many digits."""
USUAL_DAYS = (
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%d %b %Y",
    "%b %d %Y",
)
USUAL_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")


def form_to_declare(column: str, kind: str, value: Any) -> str:
    """Return which form to declare for a time that its column's type does not take; empty if the value is no string.

    If several usual forms read it, as 1/2/2026, all are named.
    """
    if kind not in TIMES or not isinstance(value, str):
        return ""
    forms = [form for form, read in _usual_forms().items() if read(value)]
    if kind == "timestamp" and value.isdigit() and len(value) in COUNTS:
        forms = [COUNTS[len(value)]]
    if not forms:
        return "it is not ISO 8601, and `formats` names no other form"
    told = " or ".join(f"formats={{{column!r}: {form!r}}}" for form in forms)
    return f"declare its form: {told}"


@cache
def _usual_forms() -> dict[str, Read]:
    return {form: time_reader(form) for day in USUAL_DAYS for clock in USUAL_CLOCKS if (form := f"{day}{clock}")}


def _of_clock(kind: str, found: Time) -> date | datetime:
    if kind == "date":
        return found.clock.date()
    return found.clock if kind == "timestamp_ntz" else _in_utc(found.clock, found.zone)


OF_SPARK = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""How Spark names some types where it writes a schema as JSON."""
FORMATTED = "formatted"
"""The type of a column with a form of its own: `of` is the declared type, `form` what `formats` says."""
DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def of_type(kind: JsonType) -> Convert:
    """Return the conversion to a type.

    Raise Refused for a type that no line can hold.
    """
    if isinstance(kind, str):
        if found := DECIMAL.fullmatch(kind):
            return decimal(int(found[1]), int(found[2]))
        if known := SCALARS.get(OF_SPARK.get(kind, kind)):
            return known
    elif kind["type"] == "array":
        return array(of_type(kind["elementType"]))
    elif kind["type"] == "map" and kind["keyType"] == "string":
        return mapping(of_type(kind["valueType"]))
    elif kind["type"] == "struct":
        return structure({field["name"]: of_type(field["type"]) for field in kind["fields"]})
    elif kind["type"] == FORMATTED:
        return formatted(kind["of"], kind["form"])
    _refuse(kind)


def of_cell(kind: JsonType) -> Convert:
    """Return the conversion of a CSV value to a type. Raise Refused for a type that no CSV value can have."""
    if not isinstance(kind, str) and kind["type"] != FORMATTED:
        _refuse(kind)
    return of_type(kind)


def with_forms(name: str, kind: JsonType, forms: Mapping[str, str]) -> JsonType:
    """Return a column's type with the forms that the declaration names for it.

    A form is named by the column's own name, or by its path for a field within it, as `order.paid`."""
    if isinstance(kind, str):
        return {"type": FORMATTED, "of": kind, "form": forms[name]} if name in forms else kind
    if kind["type"] == "struct":
        return {
            **kind,
            "fields": [
                {**one, "type": with_forms(f"{name}.{one['name']}", one["type"], forms)} for one in kind["fields"]
            ],
        }
    within = "elementType" if kind["type"] == "array" else "valueType"
    return {**kind, within: with_forms(name, kind[within], forms)}


def text(value: Any) -> str:
    """Return a source value as a string: JSON without white space around its parts, with numbers as they are
    written."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _json(value)


def parsed(line: str) -> Any:
    """Return a JSON value whose numbers keep their characters, so that `text` writes the same JSON again."""
    return json.loads(line, parse_int=Number, parse_float=Number, parse_constant=Number)


def _json(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(key, ensure_ascii=False)}:{_json(one)}' for key, one in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def is_string(value: Any) -> TypeGuard[str]:
    """Return whether a value was a string, and not a number that is kept as it was written."""
    return isinstance(value, str) and not isinstance(value, Number)


def _clock(value: Any) -> tuple[datetime, timedelta | None]:
    found = TIME.fullmatch(value) if is_string(value) else None
    if not found:
        raise Unfit
    year, month, day_of, hour, minute, second, fraction, utc, sign, hours, minutes = found.groups(default="")
    try:
        clock = datetime(  # the zone is taken off by the caller
            int(year),
            int(month),
            int(day_of),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            _microseconds(fraction),
        )
    except ValueError:
        raise Unfit("there is no such time") from None
    if utc:
        return clock, timedelta()
    if not sign:
        return clock, None
    zone = time_zone(sign, hours, minutes)
    if zone is None:
        raise Unfit("there is no such time zone")
    return clock, zone


def _in_utc(clock: datetime, zone: timedelta | None) -> datetime:
    try:
        return (clock - (zone or timedelta())).replace(tzinfo=UTC)
    except OverflowError:
        raise Unfit("its year is not in 1 to 9999") from None


def _of_seconds(value: str, places: int = 0) -> datetime:
    """Return the instant of a number since 1970 whose last `places` digits are fractions of a second."""
    exact = _decimal(value)
    if exact and exact.adjusted() - places >= LARGEST_ADJUSTED:
        raise Unfit(OUT_OF_YEARS)
    microsecond = Decimal((0, (1,), places - 6))  # to scale the number first would make one of a tiny exponent zero
    cut = Context(prec=len(value) + 30, rounding=ROUND_FLOOR).quantize(exact if exact else Decimal(0), microsecond)
    try:
        return EPOCH + timedelta(microseconds=int(cut.scaleb(6 - places)))
    except OverflowError:
        raise Unfit(OUT_OF_YEARS) from None


def _decimal(value: str) -> Decimal:
    try:
        return Decimal(str(value))
    except InvalidOperation:  # an exponent of twenty digits
        raise Unfit("it is out of range") from None


def _single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _nearest_single(value: str) -> float:
    double = float(value)
    if not math.isfinite(double):
        return double
    below, above = math.nextafter(double, -math.inf), math.nextafter(double, math.inf)
    # Rounding twice is wrong only if the double is exactly between two singles and the number is not.
    if _single(below) != _single(above) and (exact := _decimal(value)) != Decimal(double):
        return _single(above if exact > Decimal(double) else below)
    return _single(double)


def _refuse(kind: JsonType) -> NoReturn:
    named = kind if isinstance(kind, str) else kind["type"]
    raise Refused(
        f"a column of type {named} can't be read from lines of JSON or CSV",
        data="nothing was read or written",
        hint="declare it as string, or take it apart in your function; CSV has no arrays, maps or structs, and "
        "the keys of a map are strings",
    )


SCALARS: dict[str, Convert] = {
    "string": string,
    "boolean": boolean,
    **{kind: whole(kind) for kind in BITS},
    **{kind: floating(kind) for kind in EXACT_INTEGERS},
    "date": day,
    "timestamp": instant,
    "timestamp_ntz": wall_clock,
    "binary": octets,
}
