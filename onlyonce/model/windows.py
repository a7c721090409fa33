"""Windows over event time: fixed, sliding, sessions. Pure; times are whole microseconds since 1970, UTC.

A window is `[start, end)`. The words and the arithmetic are Beam's (`FixedWindows`, `SlidingWindows`,
`Sessions`). Windows are aligned to the epoch in UTC, shifted by an offset, or (whole days only) to the
wall clock of a time zone: such a day has 23, 24 or 25 hours. Time zones are read by `zoneinfo`, from the
system or from the package tzdata.
"""

from __future__ import annotations

import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from onlyonce.model.errors import Refused
from onlyonce.model.outputs.window_options import known_zone, positive, within

Micros = int
DAY = timedelta(days=1)
_ZERO = timedelta(0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WALL_EPOCH = datetime(1970, 1, 1)


def micros(delta: timedelta) -> Micros:
    """The whole microseconds of a timedelta, exactly (no float in between)."""
    return delta // timedelta(microseconds=1)


@dataclass(frozen=True)
class Fixed:
    """Windows of one size, one after the other: `[n * size + offset, (n + 1) * size + offset)`.

    size      how long each is
    offset    where they begin, after the epoch: Fixed(7 days, offset=4 days) are weeks that begin on Monday
    timezone  an IANA zone, for sizes of whole days: each begins at local midnight plus `offset` by the wall
              clock. A start that the clock skips is as much later as the clock jumps; of one that it shows
              twice the first counts
    """

    size: timedelta
    offset: timedelta = _ZERO
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        positive("Fixed", "size", self.size)
        within("Fixed", self.offset, "size", self.size)
        if self.timezone == "UTC":
            return
        if self.size % DAY:
            raise Refused(
                f"Fixed(size={self.size}, timezone={self.timezone!r}): the size is not a whole number of days",
                hint="only windows of whole days can follow a local clock; shift shorter windows by offset=",
            )
        known_zone(self.timezone)

    @property
    def in_utc(self) -> bool:
        """Whether all windows are of exactly one size; else by the wall clock of a time zone."""
        return self.timezone == "UTC"

    def last_end(self, time: Micros) -> Micros:
        """The end of the last window that holds `time`."""
        if not self.in_utc:
            return self._by_wall_clock(time)[1]
        size = micros(self.size)
        return time - (time - micros(self.offset)) % size + size

    def assign(self, time: Micros) -> list[tuple[Micros, Micros]]:
        """The windows that hold `time`."""
        if not self.in_utc:
            return [self._by_wall_clock(time)]
        end = self.last_end(time)
        return [(end - micros(self.size), end)]

    def start_of(self, number: int) -> Micros:
        """When window `number` begins, counted from the epoch."""
        wall = _WALL_EPOCH + number * self.size + self.offset
        return micros(wall.replace(tzinfo=zoneinfo.ZoneInfo(self.timezone)) - _EPOCH)

    def _by_wall_clock(self, time: Micros) -> tuple[Micros, Micros]:
        local = (_EPOCH + timedelta(microseconds=time)).astimezone(zoneinfo.ZoneInfo(self.timezone))
        number = (local.replace(tzinfo=None) - self.offset - _WALL_EPOCH) // self.size
        # A clock that is set back over a start shows the window before once more, and one set forward over a
        # whole day leaves a window without an instant: the instants decide, not what the clock shows.
        if time < self.start_of(number):
            number -= 1
        elif time >= self.start_of(number + 1):
            number += 1
        return self.start_of(number), self.start_of(number + 1)

    @property
    def per_record(self) -> int:
        """In how many windows each record is."""
        return 1

    @property
    def own(self) -> Fixed:
        """The windows by a moment in them."""
        return self

    @property
    def reach(self) -> Micros:
        """How far outside a window records may belong to its rows."""
        return 0

    @property
    def waits(self) -> Micros:
        """What a window waits beside its output's lateness."""
        return self.reach


@dataclass(frozen=True)
class Joined(Fixed):
    """The fixed windows of joined rows: each row is in that of its left record, or of its right one where it has no
    left.

    A window is closed when no record in time can join one of its rows any more: `reach` after its end. So a record is
    late iff its event time is at or before what is closed and the reach behind it.

    within  the bound of the join
    """

    within: timedelta = _ZERO

    @classmethod
    def of(cls, window: Fixed, within: timedelta) -> Joined:
        """The windows of a join with this bound."""
        return cls(window.size, window.offset, window.timezone, within)

    @property
    def reach(self) -> Micros:
        """The bound, and two milliseconds: Spark gives up a row in the millisecond after that in which its bound
        ends."""
        return micros(self.within) + 2_000


@dataclass(frozen=True)
class Timed(Joined):
    """The fixed windows by which an output with state of its own counts its records; `within` is how far behind them
    its timers are set.

    They close, and records are late, as those of a join: by the record's own time.
    """


@dataclass(frozen=True)
class Sliding:
    """Windows of one size that overlap: a record is in each that holds its time, `size / slide` of them.

    size    how long a window is; a multiple of slide
    slide   one begins this often
    offset  shifts them all: from 0 to slide
    """

    size: timedelta
    slide: timedelta
    offset: timedelta = _ZERO

    def __post_init__(self) -> None:
        positive("Sliding", "size", self.size)
        positive("Sliding", "slide", self.slide)
        within("Sliding", self.offset, "slide", self.slide)
        if micros(self.size) % micros(self.slide):
            raise Refused(
                f"Sliding(size={self.size}, slide={self.slide}): the size is not a multiple of the slide",
                hint="choose a slide that divides the size, so that each record is in the same number of windows",
            )

    def last_end(self, time: Micros) -> Micros:
        """The end of the last window that holds `time`."""
        return time - (time - micros(self.offset)) % micros(self.slide) + micros(self.size)

    def assign(self, time: Micros) -> list[tuple[Micros, Micros]]:
        """The windows that hold `time`, earliest first."""
        size, slide = micros(self.size), micros(self.slide)
        last = self.last_end(time)
        ends = range(last - size + slide, last + 1, slide)
        return [(end - size, end) for end in ends]

    @property
    def per_record(self) -> int:
        """In how many windows each record is."""
        return micros(self.size) // micros(self.slide)


@dataclass(frozen=True)
class Session:
    """Bursts of one key that are more than `gap` apart. A lone record's session is `[time, time + gap)`; two that
    touch are one, as Spark has it (Beam merges only what overlaps).

    A record is late iff its event time is at or before what is closed: the merged end,
    which Spark itself compares, lets a stream differ from its batch with no drop reported.

    gap  how long a key is silent before its next record begins another session
    """

    gap: timedelta

    def __post_init__(self) -> None:
        positive("Session", "gap", self.gap)

    def last_end(self, time: Micros) -> Micros:
        """The end of the session of a lone record at `time`."""
        return time + micros(self.gap)

    @property
    def per_record(self) -> int:
        """In how many windows each record is."""
        return 1


Window = Fixed | Sliding | Session


def reach(window: Window | None) -> Micros:
    """How far from a window records may belong to its rows: of joins, and of windows that are made of others; 0 of
    other windows."""
    return window.reach if isinstance(window, Fixed) else 0


def waits(window: Window) -> Micros:
    """What a window waits beside the lateness of its output: a join for its reach, one that is made of others for
    these."""
    return window.waits if isinstance(window, Fixed) else 0


def own(window: Fixed | Sliding) -> Fixed | Sliding:
    """The windows by a moment in them, where a record's are others."""
    return window.own if isinstance(window, Fixed) else window


def first_start(window: Window, time: Micros) -> Micros:
    """The first start of a window at or after `time`: the windows from there on hold nothing from before it."""
    assert not isinstance(window, Session)
    start, end = own(window).assign(time)[-1]
    if start == time:
        return start
    return end if isinstance(window, Fixed) else start + micros(window.slide)


def longest(window: Fixed | Sliding) -> Micros:
    """No window is longer.

    A day of a time zone may have some hours more, and where a zone's clock skipped a day, a day more.
    """
    zoned = isinstance(window, Fixed) and not window.in_utc
    return micros(window.size) + (2 * micros(DAY) if zoned else 0)


def any_ends(window: Fixed | Sliding, after: Micros, upto: Micros) -> bool:
    """Whether a window ends later than `after` and not later than `upto`: each instant is in a window, the first of
    which ends next."""
    return window.assign(after)[0][1] <= upto
