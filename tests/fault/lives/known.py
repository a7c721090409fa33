"""The cases that a hole of issue 20 is known to break, by its number. A hole that is mended is taken out of this table."""

from __future__ import annotations

from collections.abc import Callable

from tests.fault.lives.cases import Case

HOLES: dict[str, Callable[[Case], bool]] = {
    "6": lambda case: case.kind == "raw" and case.life in ("lineage new", "planned"),
    "8": lambda case: case.kind == "session" and case.life == "recompute",
}


def hole(case: Case) -> str | None:
    """The number of the hole that breaks a case, if one does."""
    return next((number for number, breaks in HOLES.items() if breaks(case)), None)
