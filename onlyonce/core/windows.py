"""Windows over event time (fixed, sliding, sessions, chained) and their options. Pure.

Times are whole microseconds since 1970, UTC.
"""

from __future__ import annotations

import difflib
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from onlyonce.core.durations import in_source, refuse_other_types
from onlyonce.core.errors import Refused
from onlyonce.core.near_names import did_you_mean, near


def positive(kind: str, name: str, value: timedelta) -> None:
    """Raise Refused unless a length is positive."""
    if value <= timedelta(0):
        raise Refused(
            f"{kind}({name}={in_source(value)}): must be longer than zero", hint=f"give {name} as a positive timedelta"
        )


def within(kind: str, offset: timedelta, name: str, step: timedelta) -> None:
    """Raise Refused unless an offset is at least zero and less than a step."""
    if not timedelta(0) <= offset < step:
        raise Refused(
            f"{kind}(offset={in_source(offset)}): must be from zero to less than the {name}, {in_source(step)}",
            hint=f"offset={in_source(offset % step)} gives the same windows",
        )


def known_zone(name: str) -> None:
    """Raise Refused for a time zone that this machine does not have, and name the most similar one."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        known = sorted(zoneinfo.available_timezones())
        city = name.rpartition("/")[2]
        if "/" in name:  # zones of one continent are similar by its name alone, so the city must be similar too
            similar = difflib.get_close_matches(name, known, n=5)
            close = next((one for one in similar if near(city, [one.rpartition("/")[2]])), None)
        else:
            close = next((one for one in known if one.endswith(f"/{city.title()}")), None)
        missing = "" if known else "this machine has no time zones: install the package tzdata. "
        raise Refused(
            f"Fixed(timezone={name!r}): no such time zone",
            hint=did_you_mean(close).rstrip() or f"{missing}write an IANA name, which has a city: 'Europe/Berlin'",
        ) from error


# A window is `[start, end)`. The words and the arithmetic are Beam's (`FixedWindows`, `SlidingWindows`, `Sessions`).
# Windows are aligned to the epoch in UTC, shifted by an offset. Windows of whole days may follow the wall clock of a
# time zone: such a day has 23, 24 or 25 hours. `zoneinfo` reads time zones from the system or from the package tzdata.


Micros = int
DAY = timedelta(days=1)
_ZERO = timedelta(0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WALL_EPOCH = datetime(1970, 1, 1)


def micros(delta: timedelta) -> Micros:
    """Return the whole microseconds of a timedelta, exactly (no float in between)."""
    return delta // timedelta(microseconds=1)


@dataclass(frozen=True)
class Fixed:
    """Windows of one size, one after the other: `[n * size + offset, (n + 1) * size + offset)`.

    size      how long each is
    offset    where they begin, after the epoch: Fixed(7 days, offset=4 days) are weeks that begin on Monday
    timezone  an IANA zone, for sizes of whole days: each begins at local midnight plus `offset` by the wall
              clock. A day on which daylight saving time (DST) begins or ends has 23 or 25 hours. A start that the
              clock skips is later by the length of the jump; if the clock shows a start twice, the first one counts
    """

    size: timedelta
    offset: timedelta = _ZERO
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        refuse_other_types(type(self), vars(self))
        positive("Fixed", "size", self.size)
        within("Fixed", self.offset, "size", self.size)
        if self.timezone == "UTC":
            return
        known_zone(self.timezone)
        if self.size % DAY:
            raise Refused(
                f"Fixed(size={in_source(self.size)}, timezone={self.timezone!r}): "
                "the size is not a whole number of days",
                hint="leave timezone out: only windows of whole days can follow a local clock; offset= shifts others",
            )

    @property
    def in_utc(self) -> bool:
        """Return whether all windows have exactly one size. If not, they follow the wall clock of a time zone."""
        return self.timezone == "UTC"

    def last_end(self, time: Micros) -> Micros:
        """Return the end of the last window that holds `time`."""
        if not self.in_utc:
            return self._by_wall_clock(time)[1]
        size = micros(self.size)
        return time - (time - micros(self.offset)) % size + size

    def assign(self, time: Micros) -> list[tuple[Micros, Micros]]:
        """Return the windows that hold `time`."""
        if not self.in_utc:
            return [self._by_wall_clock(time)]
        end = self.last_end(time)
        return [(end - micros(self.size), end)]

    def start_of(self, number: int) -> Micros:
        """Return when window `number` begins, counted from the epoch."""
        wall = _WALL_EPOCH + number * self.size + self.offset
        return micros(wall.replace(tzinfo=zoneinfo.ZoneInfo(self.timezone)) - _EPOCH)

    def _by_wall_clock(self, time: Micros) -> tuple[Micros, Micros]:
        """Return the window that holds `time`, even when daylight saving time (DST) begins or ends within it."""
        local = (_EPOCH + timedelta(microseconds=time)).astimezone(zoneinfo.ZoneInfo(self.timezone))
        number = (local.replace(tzinfo=None) - self.offset - _WALL_EPOCH) // self.size
        # The clock's reading alone does not decide. A clock that is set back over a start repeats the window before. A
        # clock that is set forward over a whole day leaves a window without an instant.
        if time < self.start_of(number):
            number -= 1
        elif time >= self.start_of(number + 1):
            number += 1
        return self.start_of(number), self.start_of(number + 1)

    @property
    def per_record(self) -> int:
        """Return in how many windows each record is."""
        return 1

    @property
    def own(self) -> Fixed:
        """Return the windows by a moment in them."""
        return self

    @property
    def reach(self) -> Micros:
        """Return how far outside a window the records of its rows may be."""
        return 0

    @property
    def waits(self) -> Micros:
        """Return how long a window waits in addition to its output's watermark delay."""
        return self.reach


@dataclass(frozen=True)
class Joined(Fixed):
    """The fixed windows of joined rows: a row is in the window of its left record, or of its right one without a left.

    A window is closed when no record that is in time can join its rows any more: `reach` after its end. So a record is
    late iff its event time is at most `closed_until` plus `reach`.

    within  the bound of the join
    """

    within: timedelta = _ZERO

    @classmethod
    def of(cls, window: Fixed, within: timedelta) -> Joined:
        """Return the windows of a join with this bound."""
        return cls(window.size, window.offset, window.timezone, within)

    @property
    def reach(self) -> Micros:
        """Return the bound plus two milliseconds: Spark drops a row in the millisecond after its bound has ended."""
        return micros(self.within) + 2_000


@dataclass(frozen=True)
class Timed(Joined):
    """The fixed windows by which an output with its own state counts its records.

    `within` is how far after a record its timers are set. The windows close, and records are late, as in a join: by
    the record's own time.
    """


@dataclass(frozen=True)
class Sliding:
    """Windows of one size that overlap: a record is in each that holds its time, `size / slide` of them.

    size    how long a window is; a multiple of slide
    slide   how often a window begins
    offset  shifts all windows: from 0 to slide
    """

    size: timedelta
    slide: timedelta
    offset: timedelta = _ZERO

    def __post_init__(self) -> None:
        refuse_other_types(type(self), vars(self))
        positive("Sliding", "size", self.size)
        positive("Sliding", "slide", self.slide)
        within("Sliding", self.offset, "slide", self.slide)
        if micros(self.size) % micros(self.slide):
            raise Refused(
                f"Sliding(size={in_source(self.size)}, slide={in_source(self.slide)}): "
                "the size is not a multiple of the slide",
                hint=f"did you mean Sliding(size={in_source(self.slide)}, slide={in_source(self.size)})?"
                if self.size < self.slide
                else "choose a slide that divides the size, so that each record is in the same number of windows: "
                f"for example slide={in_source(self._near_slide())}",
            )

    def _near_slide(self) -> timedelta:
        """Return the longest slide in whole seconds that divides the size and is not longer than this one."""
        parts = -(-micros(self.size) // micros(self.slide))
        most = min(micros(self.size) // 1_000_000, 86_400)  # a bound for the search
        whole = (part for part in range(parts, most + 1) if micros(self.size) % (part * 1_000_000) == 0)
        return self.size / next(whole, parts)

    def last_end(self, time: Micros) -> Micros:
        """Return the end of the last window that holds `time`."""
        return time - (time - micros(self.offset)) % micros(self.slide) + micros(self.size)

    def assign(self, time: Micros) -> list[tuple[Micros, Micros]]:
        """Return the windows that hold `time`, earliest first."""
        size, slide = micros(self.size), micros(self.slide)
        last = self.last_end(time)
        ends = range(last - size + slide, last + 1, slide)
        return [(end - size, end) for end in ends]

    @property
    def per_record(self) -> int:
        """Return in how many windows each record is."""
        return micros(self.size) // micros(self.slide)


@dataclass(frozen=True)
class Session:
    """Bursts of one key that are more than `gap` apart.

    The session of a single record is `[time, time + gap)`. Two sessions that touch are merged, as in Spark; Beam
    merges sessions only if they overlap. A record is late iff its event time is at most `closed_until`. Spark compares
    the merged end instead, by which a stream could differ from its batch without a reported drop.

    gap  a record begins another session if its key was silent for longer than this. A record exactly `gap` after the
         last one belongs to the session. `outputs.windows.assign` calls Spark's `session_window` for it
    """

    gap: timedelta

    def __post_init__(self) -> None:
        refuse_other_types(type(self), vars(self))
        positive("Session", "gap", self.gap)

    def last_end(self, time: Micros) -> Micros:
        """Return the end of the session of a single record at `time`."""
        return time + micros(self.gap)

    @property
    def per_record(self) -> int:
        """Return in how many windows each record is."""
        return 1


Window = Fixed | Sliding | Session


def reach(window: Window | None) -> Micros:
    """Return how far from a window the records of its rows may be: not 0 for joined, timed and chained windows only."""
    return window.reach if isinstance(window, Fixed) else 0


def waits(window: Window) -> Micros:
    """Return how long a window waits in addition to its output's watermark delay.

    A join waits for its reach, a chained window for the windows that it is made of."""
    return window.waits if isinstance(window, Fixed) else 0


def own(window: Fixed | Sliding) -> Fixed | Sliding:
    """Return the windows by a moment in them, if a record's windows are different ones."""
    return window.own if isinstance(window, Fixed) else window


def first_start(window: Window, time: Micros) -> Micros:
    """Return the first start of a window at or after `time`: windows from there on hold nothing from before it."""
    assert not isinstance(window, Session)
    start, end = own(window).assign(time)[-1]
    if start == time:
        return start
    return end if isinstance(window, Fixed) else start + micros(window.slide)


def longest(window: Fixed | Sliding) -> Micros:
    """Return a length that no window exceeds.

    A day of a time zone may be some hours longer, and a day longer if the zone's clock skipped a day.
    """
    zoned = isinstance(window, Fixed) and not window.in_utc
    return micros(window.size) + (2 * micros(DAY) if zoned else 0)


def any_ends(window: Fixed | Sliding, after: Micros, upto: Micros) -> bool:
    """Return whether a window ends later than `after` and not later than `upto`.

    Each instant is in at least one window, and the first of these windows ends next."""
    return window.assign(after)[0][1] <= upto


Bounds = tuple[Micros, Micros]


# The windows of an output that is made from another output's closed windows.
#
# A window belongs to the window that holds its last moment, a microsecond before its end. So the minutes of an hour are
# in that hour, and all of them are closed when the hour ends.


_ANY = Fixed(timedelta(days=1))


@dataclass(frozen=True)
class Chained(Fixed):
    """Fixed windows over the closed windows of another output.

    The log counts a record in each window that contains the last moment of one of its upstream windows.

    upstream         the windows of the upstream output
    waits_before     the watermark delay of the upstream output
    leaves_late_out  whether the upstream output leaves its late records out, so that they never come here
    """

    upstream: Fixed | Sliding = _ANY
    waits_before: timedelta = timedelta(0)
    leaves_late_out: bool = True

    @property
    def own(self) -> Fixed:
        """Return the windows by a moment in them, not by a record."""
        return Fixed(self.size, self.offset, self.timezone)

    @property
    def waits(self) -> Micros:
        """Return how long all upstream outputs wait: no window closes before the windows that it is made of."""
        return micros(self.waits_before) + (self.upstream.waits if isinstance(self.upstream, Fixed) else 0)

    @property
    def reach(self) -> Micros:
        """Return how far before a window's start its records may be: upstream windows may begin before it."""
        before = self.upstream.reach if isinstance(self.upstream, Fixed) else 0
        own = self.upstream.own if isinstance(self.upstream, Fixed) else self.upstream
        return longest(own) + before

    @property
    def per_record(self) -> int:
        """Return in how many pairs of a window and an upstream window each record is."""
        return self.upstream.per_record

    def last_end(self, time: Micros) -> Micros:
        """Return the end of the last window that a record at `time` belongs to."""
        return self.own.last_end(self.upstream.last_end(time) - 1)

    def assign(self, time: Micros) -> list[tuple[Micros, Micros]]:
        """Return the window of each upstream window of a record at `time`; a window may occur several times."""
        return [self._of(end) for _, end in self.upstream.assign(time)]

    def through(self, time: Micros) -> Iterator[tuple[tuple[Micros, Micros], tuple[Micros, Micros]]]:
        """Return pairs (upstream window, window) for a record at `time`."""
        return ((bounds, self._of(bounds[1])) for bounds in self.upstream.assign(time))

    def made_of(self, start: Micros, stop: Micros) -> tuple[Micros, Micros] | None:
        """Return the starts [start, stop) of the windows that are made from upstream windows that start in the range.

        None if no upstream window starts there."""
        before = self.upstream.own if isinstance(self.upstream, Fixed) else self.upstream
        first = first_start(before, start)
        if first >= stop:
            return None
        earliest, latest = before.assign(first)[-1], before.assign(stop - 1)[-1]
        return self._of(earliest[1])[0], self._of(latest[1])[0] + 1

    def _of(self, end: Micros) -> tuple[Micros, Micros]:
        return self.own.assign(end - 1)[0]
