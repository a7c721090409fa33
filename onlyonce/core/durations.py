"""Lengths of time in a declaration: they are timedelta, and an error proposes the one that a text means. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from functools import cache
from typing import Any

from onlyonce.core.errors import Refused

_TEXT = re.compile(r"\s*(\d+)\s*(s|m|h|d|w)(?:ec|econd|in|inute|our|ay|eek)?s?\s*", re.IGNORECASE)
_NOTHING_GIVEN = timedelta(0)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def refuse_other_types(made: type, given: Mapping[str, Any]) -> None:
    """Raise Refused for an option that a dataclass declares as a timedelta and that is another value."""
    for name, may_be_none in _lengths(made).items():
        value = given.get(name, _NOTHING_GIVEN)
        if not (isinstance(value, timedelta) or (value is None and may_be_none)):
            found = _TEXT.fullmatch(str(value))
            meant = f"timedelta({_UNITS[found[2].lower()]}={int(found[1])})" if found else "timedelta(minutes=10)"
            raise Refused(
                f"{made.__name__}({name}={value!r}): must be a timedelta",
                hint=f"{'did you mean' if found else 'for example'} {name}={meant}; from datetime import timedelta",
            )


@cache
def _lengths(made: type) -> dict[str, bool]:
    """Return the options that are lengths of time, and whether each may be None."""
    found: Any = made
    return {field.name: "None" in str(field.type) for field in fields(found) if str(field.type).startswith("timedelta")}
