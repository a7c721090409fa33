"""What differs between the rows of one output in two ways of taking them in, as a user should read it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onlyonce.declare.pipeline import Output
from onlyonce.testing.target import WINDOW, window_of

Row = dict[str, Any]
TOLERANCE = 1e-9
"""Of floats, as the platform compares the content of units: sums in another order differ in their last digits."""
SHOWN = 5


@dataclass(frozen=True)
class Difference:
    """The rows of the first window that differs, which only one of the two has."""

    window: tuple[Any, ...]
    batch: list[Row]
    stream: list[Row]


def difference(batch: list[Row], stream: list[Row]) -> Difference | None:
    """Compare as multisets; None where both are the same."""
    missing, more = _apart(batch, stream)
    windows = sorted({window_of(row) for row in (*missing, *more)}, key=str)
    if not windows:
        return None
    first = windows[0]
    return Difference(first, _of(first, missing), _of(first, more))


def told(output: Output, found: Difference, cut: str, why: str) -> str:
    """The message: which window, which rows, for which cut, and what to do."""
    start, end = found.window
    where = "" if start is None else f", window {start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC"
    return "\n".join(
        [
            f"output {output.name}{where}: the stream is not its batch ({output.transform})",
            *(f"  in one batch:  {_shown(row)}" for row in found.batch[:SHOWN] or [{}]),
            *(f"  cut otherwise: {_shown(row)}" for row in found.stream[:SHOWN] or [{}]),
            f"  the cut: {cut}",
            f"  {why}",
        ]
    )


def _apart(one: list[Row], other: list[Row]) -> tuple[list[Row], list[Row]]:
    left: dict[str, list[Row]] = {}
    for row in other:
        left.setdefault(_exact(row), []).append(row)
    missing = []
    for row in one:
        there = left.get(_exact(row), [])
        same = next((number for number, twin in enumerate(there) if _close(row, twin)), None)
        if same is None:
            missing.append(row)
        else:
            del there[same]
    return missing, [row for rows in left.values() for row in rows]


def _exact(row: Row) -> str:
    return repr([(name, "float" if isinstance(value, float) else value) for name, value in row.items()])


def _close(one: Row, other: Row) -> bool:
    pairs = ((one[name], other[name]) for name in one if isinstance(one[name], float))
    return all(math.isclose(a, b, rel_tol=TOLERANCE) or (math.isnan(a) and math.isnan(b)) for a, b in pairs)


def _of(window: tuple[Any, ...], rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if window_of(row) == window]


def _shown(row: Row) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in row.items() if name not in WINDOW) or "no such row"
