"""Where a source starts. It is declared; the first run decides it once and stores it in the registry. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from onlyonce.model.errors import Refused

Start = Literal["earliest", "latest"] | datetime
EARLIEST: Literal["earliest"] = "earliest"
LATEST: Literal["latest"] = "latest"


def check_start(whose: str, start: object, *, times: bool = True) -> None:
    """Refuse what is no place to start at. `times`: whether the source can tell a time."""
    if start in (EARLIEST, LATEST):
        return
    if not isinstance(start, datetime) or not times:
        others = ", or a datetime with its zone" if times else ""
        raise Refused(f"{whose}: start={start!r}", hint=f"'earliest' or 'latest'{others}")
    if start.tzinfo is None:
        raise Refused(f"{whose}: the start {start} has no time zone", hint="datetime(2026, 1, 1, tzinfo=UTC)")


def before_start(start: Start, modified_ns: int) -> bool:
    """Whether what was changed at that time, and was there when the first run looked, lies before the start."""
    if isinstance(start, datetime):
        return modified_ns < round(start.timestamp() * 1_000_000) * 1000
    return start == LATEST
