"""The report that a command gives at its end.

Its figures are read from the log afterwards, never from the run's own counters.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Report:
    """The result of one entry point, for a person (rich tables) and for scripts (`--json`)."""

    title: str
    run_id: str
    facts: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)
