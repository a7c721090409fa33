"""Windows: which hold a time, where the last of them ends; on whole microseconds, before 1970 too."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed, Session, Sliding, Window, any_ends, micros

QUICK = settings(max_examples=50, deadline=None)
times = st.integers(-(10**16), 10**16)
spans = st.one_of(st.integers(1, 50), st.integers(1, 10**12)).map(lambda n: timedelta(microseconds=n))
fixed = st.builds(Fixed, spans)
sliding = st.builds(lambda slide, count: Sliding(slide * count, slide), spans, st.integers(1, 12))


@QUICK
@given(st.one_of(fixed, sliding), times)
def test_each_assigned_window_holds_the_time_half_open(window: Fixed | Sliding, time: int) -> None:
    """start <= time < end, and each window has the declared size."""
    windows = window.assign(time)

    assert all(start <= time < end for start, end in windows)
    assert {end - start for start, end in windows} == {micros(window.size)}


@QUICK
@given(st.one_of(fixed, sliding), times)
def test_a_record_is_in_as_many_windows_as_declared_and_each_is_another(window: Fixed | Sliding, time: int) -> None:
    """`per_record` windows, in ascending order, the last of which ends at `last_end`."""
    windows = window.assign(time)

    assert len(windows) == window.per_record
    assert windows == sorted(set(windows))
    assert windows[-1][1] == window.last_end(time)


@QUICK
@given(st.one_of(fixed, sliding), times)
def test_windows_are_aligned_to_1970_in_utc(window: Fixed | Sliding, time: int) -> None:
    """Each start is a whole number of steps from the epoch, on either side of it."""
    step = micros(window.size if isinstance(window, Fixed) else window.slide)

    assert {start % step for start, _ in window.assign(time)} == {0}


small = st.integers(1, 9).map(lambda n: timedelta(microseconds=n))


@QUICK
@given(
    st.one_of(
        st.builds(Fixed, small), st.builds(lambda slide, count: Sliding(slide * count, slide), small, st.integers(1, 5))
    ),
    times,
    st.integers(0, 60),
)
def test_an_interval_has_an_end_if_a_window_that_begins_before_it_ends_there(
    window: Fixed | Sliding, after: int, length: int
) -> None:
    """After its first instant, and up to its last."""
    before = range(after - micros(window.size), after + length)
    there = {end for time in before for _, end in window.assign(time)}

    assert any_ends(window, after, after + length) == any(after < end <= after + length for end in there)


@QUICK
@given(sliding, times)
def test_no_sliding_window_that_holds_the_time_is_missing(window: Sliding, time: int) -> None:
    """The window one slide before the first and the one after the last do not hold the time."""
    windows, slide = window.assign(time), micros(window.slide)

    assert windows[0][1] - slide <= time
    assert windows[-1][0] + slide > time


@QUICK
@given(fixed, times)
def test_the_end_of_a_window_is_the_start_of_the_next(window: Fixed, time: int) -> None:
    """A time at the end belongs to the next window: windows share no instant and leave none out."""
    start, end = window.assign(time)[0]

    assert window.assign(end) == [(end, end + micros(window.size))]
    assert window.assign(start) == window.assign(end - 1) == [(start, end)]


@QUICK
@given(spans, times)
def test_sliding_by_its_own_size_is_fixed(size: timedelta, time: int) -> None:
    """One window for each record, the same as of `Fixed`."""
    assert Sliding(size, size).assign(time) == Fixed(size).assign(time)


@QUICK
@given(st.one_of(fixed, sliding, st.builds(Session, spans)), times, times)
def test_the_last_end_is_after_its_time_and_never_moves_back(window: Window, one: int, other: int) -> None:
    """A later time never has an earlier last end; a frontier can therefore only advance."""
    earlier, later = sorted((one, other))

    assert window.last_end(earlier) > earlier
    assert window.last_end(earlier) <= window.last_end(later)


@QUICK
@given(spans, times)
def test_a_lone_session_ends_one_gap_after_its_record(gap: timedelta, time: int) -> None:
    """`[time, time + gap)`, one for each record."""
    assert Session(gap).last_end(time) == time + micros(gap)
    assert Session(gap).per_record == 1


def test_a_microsecond_before_1970_is_in_the_window_that_ends_there() -> None:
    """Negative times round down, not towards zero."""
    assert Fixed(timedelta(hours=1)).assign(-1) == [(-3_600_000_000, 0)]
    assert Sliding(timedelta(hours=1), timedelta(minutes=30)).assign(-1) == [
        (-3_600_000_000, 0),
        (-1_800_000_000, 1_800_000_000),
    ]


@pytest.mark.parametrize("size", [timedelta(0), timedelta(seconds=-1)])
def test_a_size_that_is_not_positive_is_refused(size: timedelta) -> None:
    """Each kind of window names the option that is wrong."""
    for make, name in ((Fixed, "size"), (Session, "gap"), (lambda s: Sliding(timedelta(hours=1), s), "slide")):
        with pytest.raises(Refused, match=f"{name}=.*longer than zero") as refusal:
            make(size)
        assert "positive timedelta" in refusal.value.hint


@QUICK
@given(spans, spans)
def test_a_slide_that_does_not_divide_the_size_is_refused(size: timedelta, slide: timedelta) -> None:
    """Then records would be in different numbers of windows, and nothing could be conserved by count."""
    if micros(size) % micros(slide) == 0:
        assert Sliding(size, slide).per_record * slide == size
        return
    with pytest.raises(Refused, match="not a multiple of the slide") as refusal:
        Sliding(size, slide)
    assert ("divides the size" if size > slide else "did you mean Sliding(") in refusal.value.hint


@pytest.mark.parametrize(
    ("size", "slide", "near"), [(60, 25, "minutes=20"), (24 * 60, 7 * 60, "hours=6"), (7, 2, "minutes=1, seconds=45")]
)
def test_the_hint_has_a_slide_near_the_one_that_does_not_divide_the_size(size: int, slide: int, near: str) -> None:
    """It is not longer, so no result comes later than was wanted."""
    with pytest.raises(Refused) as refusal:
        Sliding(timedelta(minutes=size), timedelta(minutes=slide))

    assert refusal.value.hint.endswith(f"for example slide=timedelta({near})")


@QUICK
@given(st.integers(-(10**9), 10**9), st.integers(0, 86_399), st.integers(0, 999_999))
def test_a_span_is_counted_in_whole_microseconds_exactly(days: int, seconds: int, rest: int) -> None:
    """No float in between: a double loses microseconds after 285 years."""
    days = days % 10**8
    span = timedelta(days=days, seconds=seconds, microseconds=rest)

    assert micros(span) == (days * 86_400 + seconds) * 1_000_000 + rest


# --- offsets and time zones ------------------------------------------------------------------------------------------

HOUR = 3_600_000_000
DAY = timedelta(days=1)
ZONES = [
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca", "Asia/Beirut",
    "America/Sao_Paulo", "America/St_Johns", "America/Havana", "Pacific/Apia", "Atlantic/Azores", "Antarctica/Troll",
]  # fmt: skip
part_of_day = st.one_of(st.just(timedelta(0)), st.integers(0, micros(DAY) - 1).map(lambda n: timedelta(microseconds=n)))
zoned = st.builds(
    lambda days, part, zone: Fixed(days * DAY, part, zone),
    st.sampled_from([1, 1, 7]),
    part_of_day,
    st.sampled_from(ZONES),
)
shifted_fixed = st.builds(lambda size, part: Fixed(size, size * part // 1000), spans, st.integers(0, 999))
shifted_sliding = st.builds(
    lambda size, n, part: Sliding(size * n, size, size * part // 1000), spans, st.integers(1, 9), st.integers(0, 999)
)
modern = st.integers(-10 * 365 * 24 * HOUR, 80 * 365 * 24 * HOUR)


@QUICK
@given(st.one_of(shifted_fixed, shifted_sliding), times)
def test_an_offset_shifts_the_windows_and_nothing_else(window: Fixed | Sliding, time: int) -> None:
    """The windows of a time are those that the same windows without an offset have of the time less the offset."""
    offset = micros(window.offset)
    plain = replace(window, offset=timedelta(0))

    assert window.assign(time) == [(start + offset, end + offset) for start, end in plain.assign(time - offset)]
    assert window.last_end(time) == plain.last_end(time - offset) + offset


@QUICK
@given(zoned, modern)
def test_days_of_a_time_zone_share_no_instant_and_leave_none_out(window: Fixed, time: int) -> None:
    """start <= time < end, and the neighbours begin and end exactly there."""
    (start, end), *more = window.assign(time)

    assert not more
    assert start <= time < end == window.last_end(time)
    assert window.assign(start) == window.assign(end - 1) == [(start, end)]
    assert window.assign(end)[0][0] == end
    assert window.assign(start - 1)[0][1] == start


@QUICK
@given(zoned, modern, modern)
def test_the_last_end_in_a_time_zone_never_moves_back(window: Fixed, one: int, other: int) -> None:
    """A later time never has an earlier last end, whatever the clocks do; near and far."""
    for later in (max(one, other), min(one, other) + (max(one, other) - min(one, other)) % HOUR):
        assert window.last_end(min(one, other)) <= window.last_end(later)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(ZONES), part_of_day, st.dates(date(1972, 1, 1), date(2045, 1, 1)))
def test_a_day_begins_when_the_clock_on_the_wall_first_shows_it(zone: str, part: timedelta, day: date) -> None:
    """Against the wall clock read at each instant, a microsecond's search by halves: a start is the first instant that
    shows local midnight plus the offset, or as much after the jump as the clock skips of it."""
    window = Fixed(DAY, part, zone)
    shown = datetime.combine(day, clock()) + part
    number = (day - date(1970, 1, 1)).days

    start = window.start_of(number)

    if wall_clock(zone, start) == shown:
        before = [t for t in range(start - 26 * HOUR, start, HOUR // 4) if wall_clock(zone, t) == shown]
        assert before == []
    else:
        skipped = wall_clock(zone, start) - shown
        assert timedelta(0) < skipped <= DAY
        jumped = start - micros(skipped), start
        assert any(
            wall_clock(zone, t) - wall_clock(zone, t - 1) > timedelta(microseconds=1) for t in jump(zone, *jumped)
        )


def wall_clock(zone: str, time: int) -> datetime:
    """What the clock on the wall shows."""
    return (
        (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time))
        .astimezone(ZoneInfo(zone))
        .replace(tzinfo=None)
    )


def jump(zone: str, low: int, high: int) -> list[int]:
    """The instant between the two at which the clock jumps, found by halves."""
    low -= 26 * HOUR
    apart = wall_clock(zone, low) - timedelta(microseconds=low)
    while high - low > 1:
        middle = (low + high) // 2
        if wall_clock(zone, middle) - timedelta(microseconds=middle) == apart:
            low = middle
        else:
            high = middle
    return [high]


@pytest.mark.parametrize(
    "day, hours", [("2026-03-28", 24), ("2026-03-29", 23), ("2026-03-30", 24), ("2026-10-25", 25), ("2026-10-26", 24)]
)
def test_a_day_in_berlin_is_as_long_as_people_live_it(day: str, hours: int) -> None:
    """23 hours in March, 25 in October, else 24; noon is in the day that it is named after."""
    noon = datetime.fromisoformat(f"{day} 12:00").replace(tzinfo=ZoneInfo("Europe/Berlin"))
    [(start, end)] = Fixed(DAY, timezone="Europe/Berlin").assign(micros(noon - datetime(1970, 1, 1, tzinfo=UTC)))

    assert end - start == hours * HOUR
    assert wall_clock("Europe/Berlin", start) == datetime.fromisoformat(f"{day} 00:00")


def test_a_start_that_the_clock_skips_is_as_much_later_as_the_clock_jumps() -> None:
    """Half past two of the 29th of March 2026 is half past three in Berlin; what the wall shows at ten past three is
    after half past two, and still in the day before."""
    window = Fixed(DAY, timedelta(hours=2, minutes=30), "Europe/Berlin")
    midnight = micros(datetime(2026, 3, 29, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC))
    start, ten_past = midnight + 3 * HOUR // 2, midnight + 7 * HOUR // 6
    before = (start - 24 * HOUR, start)

    assert wall_clock("Europe/Berlin", ten_past).time() == clock(3, 10)
    assert window.assign(ten_past) == window.assign(start - 1) == [before]
    assert window.assign(start) == [(start, start + 23 * HOUR)]


def test_a_zone_whose_clock_is_utc_has_the_windows_of_utc() -> None:
    """The two ways to compute them agree."""
    for time in range(-(10**15), 2 * 10**15, 10**14 // 7):
        assert Fixed(DAY, timezone="Etc/UTC").assign(time) == Fixed(DAY).assign(time)


@pytest.mark.parametrize(
    "offset, instead", [(-timedelta(hours=1), "hours=23"), (DAY, r"timedelta\(0\)"), (DAY * 9.5, "hours=12")]
)
def test_an_offset_beyond_one_step_is_refused_with_the_one_that_means_the_same(offset: timedelta, instead: str) -> None:
    """One way to write the same windows: a declaration's fingerprint is its text."""
    for make in (
        lambda: Fixed(DAY, offset),
        lambda: Sliding(DAY * 3, DAY, offset),
        lambda: Fixed(DAY, offset, "Asia/Tokyo"),
    ):
        with pytest.raises(Refused, match="offset") as refusal:
            make()
        assert re.search(instead, refusal.value.hint)


@pytest.mark.parametrize("size", [timedelta(hours=1), timedelta(days=1, microseconds=1), timedelta(hours=36)])
def test_a_time_zone_for_a_size_that_is_no_whole_number_of_days_is_refused(size: timedelta) -> None:
    """An hour is an hour everywhere; the hint says what shifts it."""
    with pytest.raises(Refused, match="not a whole number of days") as refusal:
        Fixed(size, timezone="Europe/Berlin")
    assert "offset=" in refusal.value.hint


@pytest.mark.parametrize(
    "zone, near",
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("america/new_york", "America/New_York"),
        ("+02:00", ""),
        ("../etc", ""),
        ("", ""),
    ],
)
def test_an_unknown_time_zone_is_refused_with_the_nearest(zone: str, near: str) -> None:
    """Also what `zoneinfo` itself would take for a path."""
    with pytest.raises(Refused, match="no such time zone") as refusal:
        Fixed(DAY, timezone=zone)
    assert near in refusal.value.hint


def test_a_zone_of_the_same_continent_alone_is_no_guess() -> None:
    """Köln has no zone of its own, and Dublin is no misspelling of it."""
    with pytest.raises(Refused, match="no such time zone") as refusal:
        Fixed(DAY, timezone="Europe/Köln")
    assert refusal.value.hint == "write an IANA name, which has a city: 'Europe/Berlin'"


def test_each_part_of_an_alignment_is_in_the_text_that_a_declaration_is_known_by() -> None:
    """`declarations.fingerprint` hashes it: another alignment is another declaration."""
    half = DAY / 2
    made = [Fixed(DAY), Fixed(DAY, half), Fixed(DAY, timezone="Europe/Berlin"), Fixed(DAY, timezone="Europe/Paris")]
    sliding = [Sliding(DAY, half), Sliding(DAY, half, half / 2)]

    assert len({repr(window) for window in (*made, *sliding)}) == 6
