"""What the options of a window can be. Pure: each check raises Refused."""

from __future__ import annotations

import difflib
import zoneinfo
from datetime import timedelta

from onlyonce.model.errors import Refused


def positive(kind: str, name: str, value: timedelta) -> None:
    """Raise Refused for a length that is none."""
    if value <= timedelta(0):
        raise Refused(f"{kind}({name}={value}): must be longer than zero", hint=f"give {name} as a positive timedelta")


def within(kind: str, offset: timedelta, name: str, step: timedelta) -> None:
    """Raise Refused for an offset that is not from zero to less than a step."""
    if not timedelta(0) <= offset < step:
        raise Refused(
            f"{kind}(offset={offset}): must be from zero to less than the {name} of {step}",
            hint=f"offset={offset % step!r} gives the same windows",
        )


def known_zone(name: str) -> None:
    """Raise Refused for a time zone that this machine does not have, with the nearest that it has."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        known = sorted(zoneinfo.available_timezones())
        close = difflib.get_close_matches(name, known, n=1)
        guess = f"did you mean {close[0]!r}? " if close else ""
        missing = "" if known else "this machine has no time zones: install the package tzdata. "
        raise Refused(
            f"Fixed(timezone={name!r}): no such time zone", hint=f"{guess}{missing}It is an IANA name: 'Europe/Berlin'"
        ) from error
