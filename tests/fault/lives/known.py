"""The cases that a known hole breaks, by its number. A hole that is mended is taken out of this table."""

from __future__ import annotations

from collections.abc import Callable

from tests.fault.lives.cases import Case

HOLES: dict[str, Callable[[Case], bool]] = {}


def hole(case: Case) -> str | None:
    """The number of the hole that breaks a case, if one does."""
    return next((number for number, breaks in HOLES.items() if breaks(case)), None)
