"""The windows of an output that is made from another's closed windows.

Pure; times are whole microseconds since 1970, UTC.

A window counts by its last moment, a microsecond before its end. So the minutes of an hour are in that hour, and all of
them are closed when the hour ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from onlyonce.model.windows import Fixed, Micros, Sliding, first_start, longest, micros

_ANY = Fixed(timedelta(days=1))


@dataclass(frozen=True)
class Chained(Fixed):
    """Fixed windows over the closed windows of another output.

    To the log a record is in the windows that hold the last moments of its own there.

    upstream         the windows of that output
    waits_before     its lateness
    leaves_late_out  whether records that are late for it stay out of it, so that they never come here
    """

    upstream: Fixed | Sliding = _ANY
    waits_before: timedelta = timedelta(0)
    leaves_late_out: bool = True

    @property
    def own(self) -> Fixed:
        """The windows themselves, by a moment in them and not by a record."""
        return Fixed(self.size, self.offset, self.timezone)

    @property
    def waits(self) -> Micros:
        """What all outputs before it wait: none of its windows closes before the windows that it is made of."""
        return micros(self.waits_before) + (self.upstream.waits if isinstance(self.upstream, Fixed) else 0)

    @property
    def reach(self) -> Micros:
        """How far before its start records may belong to a window: the windows that it is made of may begin before
        it."""
        before = self.upstream.reach if isinstance(self.upstream, Fixed) else 0
        own = self.upstream.own if isinstance(self.upstream, Fixed) else self.upstream
        return longest(own) + before

    @property
    def per_record(self) -> int:
        """In how many pairs of a window and one that it is made of each record is."""
        return self.upstream.per_record

    def last_end(self, time: Micros) -> Micros:
        """The end of the last window that a record at `time` belongs to."""
        return self.own.last_end(self.upstream.last_end(time) - 1)

    def assign(self, time: Micros) -> list[tuple[Micros, Micros]]:
        """The window of each window before it that a record at `time` is in; one may be there several times."""
        return [self._of(end) for _, end in self.upstream.assign(time)]

    def through(self, time: Micros) -> Iterator[tuple[tuple[Micros, Micros], tuple[Micros, Micros]]]:
        """(the window before it, the window) for a record at `time`."""
        return ((bounds, self._of(bounds[1])) for bounds in self.upstream.assign(time))

    def made_of(self, start: Micros, stop: Micros) -> tuple[Micros, Micros] | None:
        """The starts [start, stop) of the windows that are made from those before it which start in [start, stop); None
        where none starts there."""
        before = self.upstream.own if isinstance(self.upstream, Fixed) else self.upstream
        first = first_start(before, start)
        if first >= stop:
            return None
        earliest, latest = before.assign(first)[-1], before.assign(stop - 1)[-1]
        return self._of(earliest[1])[0], self._of(latest[1])[0] + 1

    def _of(self, end: Micros) -> tuple[Micros, Micros]:
        return self.own.assign(end - 1)[0]
