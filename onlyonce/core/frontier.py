"""The frontier: how far event time had come before a batch, for one source or several, and what it closes. Pure.

`closed_until` alone decides what is closed, and so which records are late. The stream, `onlyonce late` and a backfill
all use it, either from this module or as the same expression in Spark (`onlyonce/outputs/windows.py`). A test holds the
two equal. Times are whole microseconds since 1970, UTC.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from onlyonce.core.windows import Chained, Joined, Micros, Session, Window, micros, reach, waits

MILLI: Micros = 1000


@dataclass(frozen=True)
class Frontier:
    """Event time according to the committed batches and watermark markers. None of these times ever moves back.

    max_event_time         the largest event time that committed batches have kept
    ended                  the max event time when the input was last declared ended
    silent_max_event_time  the largest max event time at a watermark marker by silence
    silent_clock  its bound: when the last search for new input began, less the idle time
    """

    max_event_time: Micros | None = None
    ended: Micros | None = None
    silent_max_event_time: Micros | None = None
    silent_clock: Micros | None = None

    @property
    def content(self) -> str:
        """Return the frontier as written in a commit's note, under the names of the column `oo_frontier`."""
        return json.dumps(
            {
                "max_event_time": self.max_event_time,
                "ended": self.ended,
                "silent_max_event_time": self.silent_max_event_time,
                "silent_clock": self.silent_clock,
            },
            sort_keys=True,
        )

    def after_batch(self, largest: Micros | None) -> Frontier:
        """Return the frontier after the commit of a batch with this largest kept event time."""
        return replace(self, max_event_time=_later(self.max_event_time, largest))

    def declared_ended(self) -> Frontier:
        """Return the frontier once the input is declared ended."""
        return replace(self, ended=_later(self.ended, self.max_event_time))

    def fallen_silent(self, clock: Micros, idle: Micros) -> Frontier:
        """Return the frontier once the source has been silent for `idle` at the time `clock`."""
        # Earlier, a source that is retired by now may have been further.
        return replace(
            self,
            silent_max_event_time=_later(self.silent_max_event_time, self.max_event_time),
            silent_clock=_later(self.silent_clock, clock - idle),
        )


def closed_until(frontier: Frontier, window: Window, watermark_delay: Micros) -> Micros | None:
    """Return up to where the windows of an output are closed; None if none is.

    A window does not close while its end is after this bound, whatever data it has. The largest of three bounds counts:

    - the max event time less the watermark delay;
    - if the input has ended, the end of the last window with data;
    - after a watermark marker by silence, the end of the last window with data, but at most that marker's clock bound.

    Bounds are whole milliseconds, as Spark's watermark. An end is rounded up, so that its window does close (a session
    may end at any microsecond); other bounds are rounded down. A join's windows also wait for their reach, except at
    the end of the input, which closes everything. Chained windows wait for the windows that they are made of.
    """
    behind = waits(window)
    bounds: list[Micros] = []
    if frontier.max_event_time is not None:
        bounds.append(_down(frontier.max_event_time - watermark_delay - behind))
    if frontier.ended is not None:
        bounds.append(_up(window.last_end(frontier.ended)))
    if frontier.silent_max_event_time is not None and frontier.silent_clock is not None:
        bounds.append(min(_up(window.last_end(frontier.silent_max_event_time)), _down(frontier.silent_clock - behind)))
    return max(bounds, default=None)


def newest_open(
    frontier: Frontier, window: Window, watermark_delay: Micros, reached: Micros
) -> tuple[Micros, Micros] | None:
    """Return the end of the last window up to the event time `reached`, and the event time that closes it.

    Return None if it is closed."""
    end, closed = window.last_end(reached), closed_until(frontier, window, watermark_delay)
    return (end, end + watermark_delay + waits(window)) if closed is None or closed < end else None


def is_late(frontier: Frontier, window: Window, watermark_delay: Micros, time: Micros, end: Micros) -> bool:
    """Return whether a record at `time` is late: whether its window, which ends at `end`, was closed when it came.

    Sessions compare the record's time, joins the time less their reach. A record that was left out of an upstream
    window is late for the windows that are made of it. A day with a change of daylight saving time (DST) has no rule of
    its own: `Fixed` decides where it ends. Spark's form of this rule is `outputs.windows.is_late`."""
    if isinstance(window, Chained) and any(
        late for found, late in late_through(frontier, window, watermark_delay, time) if found[1] == end
    ):
        return True
    closed = closed_until(frontier, window, watermark_delay)
    compared = time - reach(window) if isinstance(window, Joined) else time if isinstance(window, Session) else end
    return closed is not None and compared <= closed


def late_through(
    frontier: Frontier, window: Chained, watermark_delay: Micros, time: Micros
) -> list[tuple[tuple[Micros, Micros], bool]]:
    """Return the windows of a record at `time`, each with whether the record is late for it.

    It is late if the window is closed, or if an upstream window left the record out."""
    closed = closed_until(frontier, window, watermark_delay)
    before = micros(window.waits_before)
    return [
        (
            found,
            (closed is not None and found[1] <= closed)
            or (window.leaves_late_out and is_late(frontier, window.upstream, before, time, through[1])),
        )
        for through, found in window.through(time)
    ]


def _down(time: Micros) -> Micros:
    return time // MILLI * MILLI


def _up(time: Micros) -> Micros:
    return -(-time // MILLI) * MILLI


def _later(one: Micros | None, other: Micros | None) -> Micros | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


# How far each of several sources has come in event time, and how far their pipeline has.
#
# A pipeline's max event time is the smallest max event time of its sources that are not idle. So records of one source
# are not late because another source is ahead. A source is idle once nothing has come from it for its `idle_after`.
# This is decided between two batches and noted in the log (`receive.loop`), so that a replay sees the same. Its next
# batch wakes the source. A pipeline's max event time never moves back, so old records of a source that wakes are late
# as any late record.


@dataclass(frozen=True)
class SourceProgress:
    """How far one source has come.

    max_event_time   the largest event time that committed batches have kept of it; None: none yet
    seen   the ingestion time of its last batch; before the first one the time since which it is waited for
    idle   whether it holds back no window, by the last decision
    """

    max_event_time: Micros | None
    seen: Micros
    idle: bool = False


@dataclass(frozen=True)
class Progress:
    """How far each of several sources has come, by the source's name."""

    of: Mapping[str, SourceProgress]

    @classmethod
    def read(cls, told: Mapping[str, Mapping[str, Any]] | None) -> Progress:
        """Return the progress that the log has."""
        return cls({name: SourceProgress(**one) for name, one in (told or {}).items()})

    def told(self) -> dict[str, dict[str, Any]]:
        """Return the progress as plain values for the log."""
        return {name: asdict(one) for name, one in self.of.items()}

    def declared(self, sources: Iterable[str], now: Micros) -> Progress:
        """Return the progress of the sources that are declared now.

        A new source holds back the watermark from now on; a removed source no longer does.
        """
        return Progress({name: self.of.get(name, SourceProgress(None, now)) for name in sources})

    def after_batch(self, source: str, largest: Micros | None, seen: Micros) -> Progress:
        """Return the progress after the commit of a batch of a source, given its largest kept event time."""
        known = self.of[source]
        now = SourceProgress(_later(known.max_event_time, largest), max(known.seen, seen), idle=False)
        return Progress({**self.of, source: now})

    def fallen_idle(
        self, clock: Micros, idle_after: Mapping[str, timedelta | None], waiting: Collection[str]
    ) -> Progress:
        """Return the progress at the time `clock`, and which sources are idle: these don't hold back the watermark.

        A source becomes idle once nothing has come from it for its `idle_after`; without one it never does. It does not
        become idle while registered input of it waits, and stays idle until its next batch.
        """

        def is_idle(name: str, one: SourceProgress) -> bool:
            after = idle_after.get(name)
            return one.idle or (after is not None and name not in waiting and clock - one.seen >= micros(after))

        return Progress({name: replace(one, idle=is_idle(name, one)) for name, one in self.of.items()})

    def least(self) -> Micros | None:
        """Return the smallest max event time of the sources that are not idle: each of these holds back the watermark.

        Return None while one of them has no max event time. If all sources are idle, return the largest max event time
        of all.
        """
        awake = [one.max_event_time for one in self.of.values() if not one.idle]
        known = [max_event_time for max_event_time in awake if max_event_time is not None]
        return self.furthest() if not awake else min(known) if len(known) == len(awake) else None

    def furthest(self) -> Micros | None:
        """Return the largest event time of all sources."""
        return max((one.max_event_time for one in self.of.values() if one.max_event_time is not None), default=None)


@dataclass(frozen=True)
class SourceBatch:
    """A batch of one of several sources: its source, its ingestion time, and each source's progress before it."""

    source: str
    seen: Micros
    before: Progress

    def after(self, largest: Micros | None) -> Progress:
        """Return the progress after the commit of this batch."""
        return self.before.after_batch(self.source, largest, self.seen)


def after_batch(known: Frontier, source_batch: SourceBatch | None, largest: Micros | None) -> Frontier:
    """Return the frontier after the commit of a batch; `source_batch` is given if the pipeline has several sources."""
    return known.after_batch(largest if source_batch is None else source_batch.after(largest).least())
