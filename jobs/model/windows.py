"""Windows over event time: fixed, sliding, sessions. Pure; times are whole microseconds since 1970, UTC.

A window is `[start, end)`. The words and the arithmetic are Beam's (`FixedWindows`, `SlidingWindows`,
`Sessions`); a window is aligned to the epoch, that is to UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from jobs.model.errors import Refused

Micros = int


def micros(delta: timedelta) -> Micros:
    """The whole microseconds of a timedelta, exactly (no float in between)."""
    return delta // timedelta(microseconds=1)


@dataclass(frozen=True)
class Fixed:
    """Windows of one size, one after the other: `[n * size, (n + 1) * size)`."""

    size: timedelta

    def __post_init__(self) -> None:
        _positive("Fixed", "size", self.size)

    def last_end(self, time: Micros) -> Micros:
        """The end of the last window that holds `time`."""
        size = micros(self.size)
        return time - time % size + size

    def assign(self, time: Micros) -> list[tuple[Micros, Micros]]:
        """The windows that hold `time`."""
        end = self.last_end(time)
        return [(end - micros(self.size), end)]

    @property
    def per_record(self) -> int:
        """In how many windows each record is."""
        return 1


@dataclass(frozen=True)
class Sliding:
    """Windows of one size that start every `slide`; a record is in `size / slide` of them."""

    size: timedelta
    slide: timedelta

    def __post_init__(self) -> None:
        _positive("Sliding", "size", self.size)
        _positive("Sliding", "slide", self.slide)
        if micros(self.size) % micros(self.slide):
            raise Refused(
                f"Sliding(size={self.size}, slide={self.slide}): the size is no multiple of the slide",
                hint="choose a slide that divides the size, so that each record is in the same number of windows",
            )

    def last_end(self, time: Micros) -> Micros:
        """The end of the last window that holds `time`."""
        return time - time % micros(self.slide) + micros(self.size)

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
    """Bursts of one key that are at least `gap` apart. A lone record's session is `[time, time + gap)`.

    A record is late iff its event time is at or before what is closed (experiments, A3): the merged end,
    which Spark itself compares, lets a stream differ from its batch with no drop reported.
    """

    gap: timedelta

    def __post_init__(self) -> None:
        _positive("Session", "gap", self.gap)

    def last_end(self, time: Micros) -> Micros:
        """The end of the session of a lone record at `time`."""
        return time + micros(self.gap)

    @property
    def per_record(self) -> int:
        """In how many windows each record is."""
        return 1


Window = Fixed | Sliding | Session


def _positive(kind: str, name: str, value: timedelta) -> None:
    if micros(value) <= 0:
        raise Refused(f"{kind}({name}={value}): must be longer than zero", hint=f"give {name} as a positive timedelta")
