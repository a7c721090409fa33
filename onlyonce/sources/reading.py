"""What one run has read of a registry.

A look reads the entries that have come since the last one, so it costs as much after a year as on the first day.

To read a registry as a whole means to open a file for each of its batches, and a long run looks some times a second.

Who makes it: `RunContext`, for as long as a run; who registers once, for that. Errors: those of `opening`. Not
promised: anything where two threads of a run look at one registry; a table that was dropped and made anew since, from
which a run is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from onlyonce.model.storage.location import Location
from onlyonce.storage import log_entries
from onlyonce.storage.appended import Own
from onlyonce.storage.stores import arrow

Known = TypeVar("Known")
Readings = dict[str, "Reading[Any]"]
"""Those of a run, by the registry's place."""


class Reading(Generic[Known]):
    """What a run knows of the registry at a location.

    whole   makes it of all entries
    more    makes it of what was known and these columns of the entries that came since; None: all is read again, once
            something came
    """

    def __init__(
        self,
        at: Location,
        whole: Callable[[Location], Known],
        columns: Sequence[str] = (),
        more: Callable[[Known, pa.Table], Known] | None = None,
    ) -> None:
        self._at, self._whole, self._columns, self._more = at, whole, list(columns), more
        self._table: Own | None = None
        self._read: tuple[int, Known] | None = None

    @property
    def table(self) -> Own:
        """The table as of the last look, for the next entries to be appended to."""
        assert self._table is not None, "nobody has looked yet"
        return self._table

    def look(self) -> Known:
        """What is known by the table as it is now."""
        self._table = self._table.look() if self._table else Own(self._at)
        now = self._table.table.version()
        if self._read is None or self._read[0] != now:
            self._read = now, self._made(now)
        return self._read[1]

    def _made(self, now: int) -> Known:
        if self._read is None or self._more is None:
            return self._whole(self._at)
        files = self._added(self._read[0], now)
        if files is None:
            return self._whole(self._at)
        return (
            self._more(self._read[1], pa.concat_tables(arrow.rows(file, self._columns) for file in files))
            if files
            else self._read[1]
        )

    def _added(self, before: int, now: int) -> list[Location] | None:
        """The files that commits have added since; None where that does not tell all: entries went from the log, or
        files from the table."""
        try:
            since = [log_entries.actions(self._at, version) for version in range(before + 1, now + 1)]
        except FileNotFoundError:
            return None
        if before > now or any("remove" in action for said in since for action in said):
            return None
        return [file.path for said in since for file in log_entries.added_by(self._at, said)]


def of(readings: Readings | None, at: Location, make: Callable[[], Reading[Known]]) -> Reading[Known]:
    """That of a run for the registry at a location, made at the first call; without a run a new one."""
    return make() if readings is None else readings.setdefault(str(at), make())
