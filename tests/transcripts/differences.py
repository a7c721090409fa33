"""Compares what a transcript expects with what was found, and says in its own words what differs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from onlyonce.core.batch import to_time
from onlyonce.core.windows import Micros
from tests.transcripts.story import Bounds, Outcome


def differences(where: str, expected: Outcome, found: Outcome) -> list[str]:
    """One sentence for each thing that is missing or too much; empty when all agrees."""
    said = _of(f"{where}: should write", f"{where}: wrote", expected.writes, found.writes, _written)
    said += _of(f"{where}: should call late", f"{where}: called late", expected.late, found.late, _late)
    said += _of(f"{where}: should reject", f"{where}: rejected", expected.rejected, found.rejected, _late)
    if expected.closed is not None and expected.closed != found.closed:
        said.append(f"{where}: should be closed until {_time(expected.closed)}, was until {_time(found.closed)}")
    return said


def _of(missing: str, extra: str, expected: Counter[Any], found: Counter[Any], say: Any) -> list[str]:
    lost, more = (expected - found).elements(), (found - expected).elements()
    return [f"{missing} {say(*one)}" for one in lost] + [f"{extra} {say(*one)}" for one in more]


def _written(key: str, window: Bounds, records: int) -> str:
    return f"{key} {records} for {_window(window)}"


def _late(key: str, time: Micros, window: Bounds) -> str:
    return f"{key} at {_time(time)} for {_window(window)}"


def _window(window: Bounds) -> str:
    return "no window" if window is None else f"{_time(window[0])} to {_time(window[1])}"


def _time(time: Micros | None) -> str:
    at = to_time(time)
    return "never" if at is None else f"{at:%Y-%m-%d %H:%M:%S}" + (f".{at:%f}".rstrip("0") if at.microsecond else "")
