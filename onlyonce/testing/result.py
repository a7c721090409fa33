"""What a test looks at: the rows of each output, what came late, what was refused, and the panes. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from onlyonce.declare.declaration import unknown

Row = dict[str, Any]


@dataclass(frozen=True)
class Pane:
    """A window as it was written by one batch.

    batch        the number of the step that wrote it, from 0; a close counts as a step
    generation   0 of the stream; 1, 2, … of backfills, which put theirs in the place of the one before
    rows         how many rows it has; of an early pane those that have changed, of one by a trigger all
    final        whether the window was closed by then
    """

    window_start: datetime | None
    window_end: datetime | None
    batch: int
    generation: int
    rows: int
    final: bool


@dataclass(frozen=True)
class Result:
    """What has become of the rows. Times are aware, in UTC. A name that is no output raises Refused.

    invalid      reason, place (batch and row, both from 0) and raw line of each record that is invalid
    duplicates   how many records were re-deliveries of others
    kept         how many are neither
    """

    invalid: list[Row]
    duplicates: int
    kept: int
    _tables: Mapping[str, list[Row]] = field(repr=False)
    _late: Mapping[str, list[Row]] = field(repr=False)
    _panes: Mapping[str, list[Pane]] = field(repr=False)
    _rejected: Mapping[str, list[Row]] = field(default_factory=dict, repr=False)

    def output(self, name: str) -> list[Row]:
        """The rows of an output as its table has them: of windows, window_start and window_end first."""
        return self._of(self._tables, name)

    def late(self, name: str) -> list[Row]:
        """The records that came to an output after their window had closed, once for each such window: the declared
        columns, window_start and window_end (None of a session, which has no end yet)."""
        return self._of(self._late, name)

    def rejected(self, name: str) -> list[Row]:
        """The records that the function of an output has rejected (`reject`), once for each window: the declared
        columns, window_start and window_end (None of a session, and without windows), and the reason."""
        return self._of(self._rejected, name)

    def panes(self, name: str) -> list[Pane]:
        """Every pane of an output, in the order in which they were written; none where it has no window."""
        return self._of(self._panes, name)

    @staticmethod
    def _of(known: Mapping[str, list[Any]], name: str) -> list[Any]:
        if name not in known:
            raise unknown("output", name, list(known))
        return known[name]
