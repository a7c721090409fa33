"""The frontier: how far event time had come before a batch, and which windows are closed by it. Pure.

`closed_until` is the only rule of lateness. The stream, `onlyonce late` and a backfill all use it, either in
this module or as the same expression in Spark (`onlyonce/outputs/windows.py`). A test holds the two equal.
Times are whole microseconds since 1970, UTC.
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
    """What the committed batches and closes have told of event time. None of it ever moves back.

    tide          the max event time: the largest that committed batches have kept
    ended         the tide when the input was last declared ended
    silent_tide   the tide at the last close by silence
    silent_clock  its bound: the clock then, less the idle time
    """

    tide: Micros | None = None
    ended: Micros | None = None
    silent_tide: Micros | None = None
    silent_clock: Micros | None = None

    @property
    def content(self) -> str:
        """The frontier as the note of a commit has it, under the names of the column `oo_frontier`."""
        return json.dumps(
            {
                "tide": self.tide,
                "ended": self.ended,
                "silent_tide": self.silent_tide,
                "silent_clock": self.silent_clock,
            },
            sort_keys=True,
        )

    def after_batch(self, largest: Micros | None) -> Frontier:
        """The frontier once a batch with this largest kept event time is committed."""
        return replace(self, tide=_later(self.tide, largest))

    def declared_ended(self) -> Frontier:
        """The frontier once the input is said to have ended."""
        return replace(self, ended=_later(self.ended, self.tide))

    def fallen_silent(self, clock: Micros, idle: Micros) -> Frontier:
        """The frontier once the source has been silent for `idle` at the time `clock`."""
        return replace(self, silent_tide=self.tide, silent_clock=_later(self.silent_clock, clock - idle))


def closed_until(frontier: Frontier, window: Window, lateness: Micros) -> Micros | None:
    """Up to where the windows of an output are closed; None while nothing is.

    The largest of: the tide less the lateness; the end of the last window with data when the input ended; the same at a
    close by silence, but never past that close's clock bound. Whole milliseconds, since Spark's watermark has no more:
    an end is rounded up, so that the window that it ends (a session may end at any microsecond) does close; a bound is
    rounded down. A join's windows wait for their reach as well, but for the end of the input: then it is closed whole,
    and the reach behind it. Windows that are made of others wait for these.
    """
    behind = waits(window)
    bounds: list[Micros] = []
    if frontier.tide is not None:
        bounds.append(_down(frontier.tide - lateness - behind))
    if frontier.ended is not None:
        bounds.append(_up(window.last_end(frontier.ended)))
    if frontier.silent_tide is not None and frontier.silent_clock is not None:
        bounds.append(min(_up(window.last_end(frontier.silent_tide)), _down(frontier.silent_clock - behind)))
    return max(bounds, default=None)


def is_late(frontier: Frontier, window: Window, lateness: Micros, time: Micros, end: Micros) -> bool:
    """Whether a record at `time` met a closed window that ends at `end`; sessions compare the time, joins too, with
    their reach.

    One that is left out of a window is late for those that are made of it."""
    if isinstance(window, Chained) and any(
        late for found, late in late_through(frontier, window, lateness, time) if found[1] == end
    ):
        return True
    closed = closed_until(frontier, window, lateness)
    compared = time - reach(window) if isinstance(window, Joined) else time if isinstance(window, Session) else end
    return closed is not None and compared <= closed


def late_through(
    frontier: Frontier, window: Chained, lateness: Micros, time: Micros
) -> list[tuple[tuple[Micros, Micros], bool]]:
    """The windows that a record at `time` comes to through those before them, each with whether it is late: there, or,
    where that leaves it out, before."""
    closed = closed_until(frontier, window, lateness)
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


# How far each of several sources has come in event time, and how far the pipeline that reads them has. Pure.
#
# A pipeline's tide is the least of its sources' that are not idle. So records of one source are not late because
# another one is ahead. A source is idle once nothing has come from it for its `idle_after`: that is decided between two
# batches and noted in the log (`receive.idling`), so that a replay sees the same. It is awake again with its next
# batch. A pipeline's tide never moves back, so old records of a source that wakes are late as any late record is.
#
# Who calls it: `commitlog.turns`, `receive`. No errors.


@dataclass(frozen=True)
class Reached:
    """How far one source has come.

    tide   the largest event time of it that committed batches have kept; None: none yet
    seen   the system time of its last batch; before the first one, since when it is waited for
    idle   whether it holds nothing back, by the last look
    """

    tide: Micros | None
    seen: Micros
    idle: bool = False


@dataclass(frozen=True)
class Tides:
    """The same of all sources, by name."""

    of: Mapping[str, Reached]

    @classmethod
    def read(cls, told: Mapping[str, Mapping[str, Any]] | None) -> Tides:
        """As the log has them."""
        return cls({name: Reached(**one) for name, one in (told or {}).items()})

    def told(self) -> dict[str, dict[str, Any]]:
        """For the log."""
        return {name: asdict(one) for name, one in self.of.items()}

    def declared(self, sources: Iterable[str], now: Micros) -> Tides:
        """Of the sources that are declared now.

        One that is new is waited for from now on; one that was retired holds nothing back any more.
        """
        return Tides({name: self.of.get(name, Reached(None, now)) for name in sources})

    def after_batch(self, source: str, largest: Micros | None, seen: Micros) -> Tides:
        """Once a batch of a source is committed, with its largest kept event time."""
        known = self.of[source]
        now = Reached(_later(known.tide, largest), max(known.seen, seen), idle=False)
        return Tides({**self.of, source: now})

    def fallen_idle(self, clock: Micros, idle_after: Mapping[str, timedelta | None], waiting: Collection[str]) -> Tides:
        """At the time `clock`: which sources are idle. None of which input is registered and waits is."""

        def is_idle(name: str, one: Reached) -> bool:
            after = idle_after.get(name)
            return one.idle or (after is not None and name not in waiting and clock - one.seen >= micros(after))

        return Tides({name: replace(one, idle=is_idle(name, one)) for name, one in self.of.items()})

    def least(self) -> Micros | None:
        """The least tide of the sources that are not idle: None while one of them has none.

        If all are idle nothing holds back the furthest.
        """
        awake = [one.tide for one in self.of.values() if not one.idle]
        known = [tide for tide in awake if tide is not None]
        return self.furthest() if not awake else min(known) if len(known) == len(awake) else None

    def furthest(self) -> Micros | None:
        """The largest event time of all."""
        return max((one.tide for one in self.of.values() if one.tide is not None), default=None)


@dataclass(frozen=True)
class Turn:
    """A batch of one of several sources: whose it is, its system time, and how far each source had come before it."""

    source: str
    seen: Micros
    before: Tides

    def after(self, largest: Micros | None) -> Tides:
        """How far each has come once it is committed."""
        return self.before.after_batch(self.source, largest, self.seen)


def after_batch(known: Frontier, turn: Turn | None, largest: Micros | None) -> Frontier:
    """The frontier once a batch with this largest kept event time is committed; `turn` of one of several sources."""
    return known.after_batch(largest if turn is None else turn.after(largest).least())
