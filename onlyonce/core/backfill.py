"""Decide which windows a backfill recomputes, which rows it reads for them, and when it must not run. Pure.

A backfill of [from, to) recomputes the windows that *start* in it. So two neighbouring intervals share no window, for
any size of windows. Times are whole microseconds since 1970, UTC.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from math import ceil
from zoneinfo import ZoneInfo

from onlyonce.core.batch import to_micros, to_time
from onlyonce.core.durations import in_words
from onlyonce.core.errors import OnlyonceError, Refused, Retryable
from onlyonce.core.windows import Fixed, Joined, Micros, Session, Sliding, Window, first_start, micros, own, reach

FIRST, LAST = (micros(time - datetime(1970, 1, 1)) for time in (datetime.min, datetime.max))
"""The times that Python, PostgreSQL and Delta have."""


class OpenWindows(Retryable):
    """An open window. The same backfill passes once the stream has closed the window."""


class InRunningBackfill(Retryable):
    """Windows that another backfill recomputes now. The same backfill passes once that one has ended."""


class InBegunBackfill(Refused):
    """Windows of another backfill, whose driver has ended. The same backfill passes once that one is finished."""


@dataclass(frozen=True)
class Span:
    """The windows that start in [start, stop)."""

    start: Micros
    stop: Micros

    @classmethod
    def of(cls, start: datetime, stop: datetime, windows: Iterable[Window | None] = ()) -> Span:
        """Return the span between two times.

        A time without a zone is in the zone of the windows. Raise Refused for an empty span, and if the windows have
        several zones."""
        if start.tzinfo is None or stop.tzinfo is None:
            start, stop = (time if time.tzinfo else time.replace(tzinfo=_zone(windows)) for time in (start, stop))
        # Python compares two times of one zone by the wall clock, which shows some times twice and skips others.
        span = cls(to_micros(start), to_micros(stop))
        if span.start >= span.stop:
            first, last = _in_zone(start), _in_zone(stop)
            raise Refused(
                f"--from {first} is after --to {last}: there is no window"
                if span.start > span.stop
                else f"--from and --to are both {first}: there is no window",
                data="nothing was read or written",
                hint="--from must be before --to",
            )
        if not FIRST <= span.start <= span.stop <= LAST:
            raise Refused(
                f"backfill of {start} to {stop}: a time is outside the years 1 to 9999 in UTC",
                data="nothing was read or written",
                hint="give the first and the last day that have windows; onlyonce.windows has them",
            )
        return span

    @property
    def times(self) -> tuple[datetime, datetime]:
        """Return both ends as times in UTC."""
        return to_time(self.start), to_time(self.stop)

    def __str__(self) -> str:
        return "--".join(map(_in_utc, (self.start, self.stop)))

    def holds(self, start: Micros) -> bool:
        """Return whether a window that starts at `start` is recomputed."""
        return self.start <= start < self.stop

    def hull(self, windows: Iterable[tuple[Micros, Micros]]) -> Span:
        """Widen the span to the starts of the windows that overlap it, or that overlap such a window, and so on."""
        known, touching = list(windows), list[tuple[Micros, Micros]]()
        low, high, count = self.start, self.stop, -1
        while len(touching) != count:
            count = len(touching)
            touching = [(start, end) for start, end in known if start < high and end > low]
            low, high = min([low, *(w[0] for w in touching)]), max([high, *(w[1] for w in touching)])
        return Span(low, max([self.stop, *(start + 1 for start, _ in touching)]))


def _zone(windows: Iterable[Window | None]) -> ZoneInfo:
    zones = sorted({window.timezone if isinstance(window, Fixed) else "UTC" for window in windows})
    if len(zones) != 1:
        raise Refused(
            f"the windows are of several time zones ({', '.join(zones)}), and --from or --to has none",
            data="nothing was read or written",
            hint="name one output by --output, or write the zone: 2013-01-01T00:00Z or 2013-01-01T00:00+01:00",
        )
    return ZoneInfo(zones[0])


@dataclass(frozen=True)
class OpenSpan:
    """The windows that start at or after `first` and end later than `closed`: those that a pane replaces."""

    first: Micros
    closed: Micros

    @property
    def times(self) -> tuple[datetime, datetime]:
        """Return both as times in UTC."""
        return to_time(self.first), to_time(self.closed)


def rows_of(window: Window, span: Span) -> tuple[Micros, Micros]:
    """Return the event times [low, high) that the windows of a span can hold.

    Fixed windows hold exactly these times. For sliding windows the range includes times that only windows outside the
    span hold. For sessions it is a first guess on both sides. For joins it is wider by their reach.
    """
    if isinstance(window, Session):
        margin = 8 * micros(window.gap)
        return span.start - margin, span.stop + margin
    # A fixed window ends where the next one begins.
    plain = own(window)
    try:
        low = plain.last_end(span.start - 1) if isinstance(plain, Fixed) else span.start
    except OverflowError:  # no window ends before the first time that there is
        low = span.start
    try:
        high = plain.last_end(span.stop - 1)
    except OverflowError:
        high = LAST + 1
    return low - reach(window), high + reach(window)


def with_neighbours(window: Joined, span: Span, late: Iterable[tuple[Micros, Micros]]) -> Span:
    """Widen the span of a join to the windows of all rows that its records may belong to.

    If such a neighbour has late records that no backfill has included yet, the span includes its neighbours too. So
    all late records of a span have all their rows when it is recomputed."""
    known = [start for start, _ in late]
    inner, wide = span, _neighbours(window, span)
    while more := [start for start in known if wide.holds(start) and not inner.holds(start)]:
        inner = Span(min(inner.start, *more), max(inner.stop, *(start + 1 for start in more)))
        wide = _neighbours(window, inner)
    return wide


def _neighbours(window: Joined, span: Span) -> Span:
    low, high = rows_of(window, span)
    return Span(min(span.start, window.assign(low)[0][0]), max(span.stop, window.assign(high - 1)[0][0] + 1))


def windows_near(window: Joined, time: Micros) -> list[tuple[Micros, Micros]]:
    """Return the windows of all rows that a record at `time` may be in, earliest first.

    A joined row may be in the window of the record that was joined with this one."""
    low, high = max(time - window.reach, FIRST), min(time + window.reach, LAST)
    found = window.assign(low)
    while found[-1][1] <= high:
        found += window.assign(found[-1][1])
    return found


def closed_part(
    pipeline: str, output: str, window: Window, span: Span, closed_until: Micros | None, *, open_rows: bool
) -> Span:
    """Return the part of a span whose windows the stream has closed and written.

    Raise OpenWindows if there is none, or if the rest of the span has rows: half of the request would look complete.
    An open window without rows is left to the stream: it has nothing to recompute. For a session only the start is
    judged here, since its end is known only when it is computed.
    """
    if closed_until is None:
        raise still_open(pipeline, output, span, span.stop, None)
    first_open = closed_until if isinstance(window, Session) else own(window).assign(closed_until)[0][0]
    if span.stop <= first_open:
        return span
    if open_rows or span.start >= first_open:
        raise still_open(pipeline, output, span, span.stop, closed_until)
    return Span(span.start, first_open)


def still_open(pipeline: str, output: str, span: Span, end: Micros, closed_until: Micros | None) -> OpenWindows:
    """Return the error for windows that the stream may still change or has not written."""
    closed = "none is closed yet" if closed_until is None else f"closed are those that end by {_in_utc(closed_until)}"
    last = f" (the last ends at {_in_utc(end)})" if end > span.stop else ""
    return OpenWindows(
        f"output {output}: windows of {span}{last} are still open: {closed}",
        data=OPEN,
        hint=f"choose an earlier --to, or let the stream run on first (onlyonce run {pipeline}; with --close when the "
        "input has ended)",
    )


OPEN = "nothing was written; open windows belong to the stream, which will write them once"


def ahead_of_now(pipeline: str, span: Span, now: Micros, error: OpenWindows) -> OnlyonceError:
    """Return the error for open windows; Refused if all of them begin after now, so that no run can close them yet."""
    if span.start <= now:
        return error
    return Refused(
        f"pipeline {pipeline}: the windows of {span} begin after now ({_in_utc(now)}), so none of them is closed",
        data=OPEN,
        hint="choose an earlier --from and --to",
    )


def on_borders(window: Window, span: Span) -> Span:
    """Return the span from the start of the window that holds its start to the first start at or after its stop.

    It is the span itself for sessions, which start anywhere, and where a border is outside the years 1 to 9999.
    """
    if isinstance(window, Session):
        return span
    try:
        found = Span(_last_start(window, span.start), first_start(window, span.stop))
    except OverflowError:
        return span
    return found if found.start >= FIRST and found.stop <= LAST else span


def off_borders(window: Window, span: Span) -> str:
    """Return which windows a span takes whose ends are not on the borders of windows; nothing if both ends are."""
    near = on_borders(window, span)
    if near == span or isinstance(window, Session):
        return ""

    def shown(time: Micros) -> str:
        zone = ZoneInfo(window.timezone) if isinstance(window, Fixed) else UTC
        return _in_zone(to_time(time).astimezone(zone))

    def holding(time: Micros) -> str:
        start = _last_start(window, time)
        return f"the window from {shown(start)} to {shown(own(window).assign(start)[-1][1])}"

    size = f"windows are {in_words(window.size)} long"
    if isinstance(window, Sliding):
        size += f" and start every {in_words(window.slide)}"
    if _last_start(window, span.stop - 1) < span.start:
        return f"{size}: no window starts between --from and --to, which are inside {holding(span.start)}"
    parts = []
    if near.start != span.start:
        parts.append(f"--from is inside {holding(span.start)}, which starts before and is left out")
    if near.stop != span.stop:
        parts.append(f"--to is inside {holding(span.stop)}, which is taken whole")
    return f"{size}: {'; '.join(parts)}"


def _last_start(window: Fixed | Sliding, time: Micros) -> Micros:
    return own(window).assign(time)[-1][0]


def as_options(window: Window, span: Span) -> str:
    """Return a span as the options of a command, in the time zone of the windows."""
    zone = ZoneInfo(window.timezone) if isinstance(window, Fixed) else UTC
    start, stop = (_in_zone(_at(time, zone)) for time in span.times)
    return f"--from {start} --to {stop}"


def _at(time: datetime, zone: tzinfo) -> datetime:
    """Return the time in a zone; as it is if the zone has no year for it."""
    try:
        return time.astimezone(zone)
    except OverflowError:
        return time


def spans(windows: Iterable[tuple[Micros, Micros]], first_window: Micros | None = None) -> list[Span]:
    """Return spans that hold the starts of these windows: one span for each run of windows that touch.

    first_window   where the windows of the present declaration begin, if an older one had others. A window before it
                   may have rows of several older ones, which are replaced with it: it is in the span up to its end
    """
    found: list[Span] = []
    reach = None
    for start, end in sorted(windows):
        stop = end if first_window is not None and start < first_window else start + 1
        if reach is not None and start <= reach:
            found[-1] = Span(found[-1].start, max(found[-1].stop, stop))
        else:
            found.append(Span(start, stop))
        reach = end if reach is None else max(reach, end)
    return found


def late_within(span: Span, late: Iterable[tuple[Micros, Micros]]) -> list[tuple[Micros, Micros]]:
    """Return the parts inside a span of the times between the (first, last) late records of sessions.

    `spans` holds only starts, so the end of each part is a start too."""
    parts = [(max(first, span.start), min(last, span.stop - 1)) for first, last in late]
    return [found for start, end in parts if start <= end for found in ((start, end), (end, end))]


def _in_utc(value: Micros) -> str:
    return _in_zone(to_time(value))


def _in_zone(time: datetime) -> str:
    return time.isoformat().removesuffix("+00:00") + ("" if time.utcoffset() else "Z")


# How much of the unread rows of `events` the next batch of an output takes.


Size = tuple[int, int]
"""The number of data files of a commit, and their bytes."""


def first_files(waiting: Iterable[Size], most_bytes: int, most_commits: int) -> int | None:
    """Return how many files make up as many whole commits as fit, in their order; None if all commits fit.

    The first commit is always taken, however large: the rows of one receive batch belong to one batch of an output.
    Commits without files are not receive's. The function reads no more commits than it needs.
    """
    files = size = commits = 0
    for more, bytes_ in waiting:
        if not more:
            continue
        if commits and (size + bytes_ > most_bytes or commits == most_commits):
            return files
        files, size, commits = files + more, size + bytes_, commits + 1
    return None


def records_of_part(waiting: int, record_bytes: float, most_bytes: int, steps: int) -> int | None:
    """Return how many unread records one part of a first reading has at most; None if the part has all of them.

    steps   how many parts are allowed, this one included. If they are too few for parts of `most_bytes`, the parts
            are larger, and of equal size.
    """
    if steps <= 1 or waiting * record_bytes <= most_bytes:
        return None
    return max(1, int(most_bytes / record_bytes), ceil(waiting / steps))
