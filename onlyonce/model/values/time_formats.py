"""Forms of a time that a declaration names for a column: a count since 1970, or a pattern of directives as `strptime`
has them.

The patterns are read here and not by `datetime.strptime`, which takes names of months from the locale, digits of any
script, and a date without a year from the clock. No locale, clock or table of time zones has a part in a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

EPOCHS = {"epoch_s": 0, "epoch_ms": 3, "epoch_us": 6, "epoch_ns": 9}
"""Counts since 1970 → how many digits of the number are behind the second."""
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


FORMS = {
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
"""What each directive takes. Names are English, in capitals or small letters."""
LOOSE = {**dict.fromkeys("mdHIMS", "[0-9]{1,2}"), "f": "[0-9]{1,9}"}
"""What a directive takes if no digit of another one is next to it."""
DIGITS = frozenset("YymdHIMSf")
OF_CLOCK = frozenset("HIpMSfz")
PART = re.compile(r"%(.)|([^%]+)", re.DOTALL)
FURTHEST_ZONE = timedelta(hours=18)
PROBE = datetime(2026, 3, 4, 5, 6, 7)
"""A time whose parts all differ, and whose day could be a month."""


class Wrong(Exception):
    """A pattern that gives no time, or more than one; the message says why."""


class Time(NamedTuple):
    """A time as a value says it: a clock's, and its distance from UTC if the value has one."""

    clock: datetime
    zone: timedelta | None


Read = Callable[[str], Time | None]
"""A string by a pattern; None for a string that the pattern does not describe, and for a time that does not exist."""


def reader(pattern: str) -> Read:
    """Return what reads strings by a pattern such as `%d/%m/%Y %H:%M`. Raise Wrong."""
    form = re.compile(_expression(pattern))

    def read(text: str) -> Time | None:
        found = form.fullmatch(text)
        return _time(found.groupdict()) if found else None

    _check_iso(pattern, read)
    return read


def zone(sign: str, hours: str, minutes: str) -> timedelta | None:
    """Return a distance from UTC by its digits, of which those of the minutes may be missing; None if no time zone has
    it."""
    found = timedelta(hours=int(hours), minutes=int(minutes or 0))
    if found > FURTHEST_ZONE or int(minutes or 0) > 59:
        return None
    return -found if sign == "-" else found


def has_clock(pattern: str) -> bool:
    """Return whether a pattern has more than a date."""
    return bool(OF_CLOCK & {directive for directive, _ in PART.findall(pattern)})


def has_zone(pattern: str) -> bool:
    """Return whether a pattern has a distance from UTC."""
    return "z" in {directive for directive, _ in PART.findall(pattern)}


def _expression(pattern: str) -> str:
    parts = PART.findall(pattern)
    if pattern.replace("%%", "").endswith("%"):
        raise Wrong("a % at its end is no directive")
    found = [directive for directive, _ in parts if directive not in ("", "%")]
    for directive in found:
        if directive not in FORMS:
            raise Wrong(f"%{directive} is none of {', '.join(f'%{one}' for one in FORMS)} and %%")
        if found.count(directive) > 1:
            raise Wrong(f"%{directive} is there twice")
    for needed in ("Yy", "mbB", "d"):
        if sum(one in found for one in needed) != 1:
            raise Wrong(f"it needs exactly one of {', '.join(f'%{one}' for one in needed)}")
    if ("I" in found) != ("p" in found) or {"H", "I"} <= {*found}:
        raise Wrong("an hour is %H, or %I with %p")
    made = []
    for at, (directive, plain) in enumerate(parts):
        if directive in FORMS:
            next_to = {parts[other][0] for other in (at - 1, at + 1) if 0 <= other < len(parts)}
            form = FORMS[directive] if next_to & DIGITS else LOOSE.get(directive, FORMS[directive])
            made.append(f"(?P<{directive}>{form})")
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
            int(f"{found.get('f', '')[:6]:0<6}"),
        )  # fmt: skip
    except ValueError:
        return None
    if "z" not in found:
        return Time(clock, None)
    sign, digits = found["z"][0], found["z"][1:].replace(":", "")
    distance = timedelta() if sign == "Z" else zone(sign, digits[:2], digits[2:])
    return None if distance is None else Time(clock, distance)


def _year(found: dict[str, str]) -> int:
    if "Y" in found:
        return int(found["Y"])
    short = int(found["y"])
    return short + (1900 if short >= 69 else 2000)  # as POSIX has it


def _month(found: dict[str, str]) -> int:
    if "m" in found:
        return int(found["m"])
    return SHORT_MONTHS.index(found.get("b", found.get("B", ""))[:3].lower()) + 1


def _check_iso(pattern: str, read: Read) -> None:
    """Raise Wrong for a pattern that reads an ISO 8601 time as another one: those are taken in any case."""
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
