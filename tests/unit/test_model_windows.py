"""Windows: which hold a time, where the last of them ends; on whole microseconds, before 1970 too."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.model.errors import Refused
from jobs.model.windows import Fixed, Session, Sliding, Window, micros

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
    with pytest.raises(Refused, match="no multiple of the slide") as refusal:
        Sliding(size, slide)
    assert "divides the size" in refusal.value.hint


@QUICK
@given(st.integers(-(10**9), 10**9), st.integers(0, 86_399), st.integers(0, 999_999))
def test_a_span_is_counted_in_whole_microseconds_exactly(days: int, seconds: int, rest: int) -> None:
    """No float in between: a double loses microseconds after 285 years."""
    days = days % 10**8
    span = timedelta(days=days, seconds=seconds, microseconds=rest)

    assert micros(span) == (days * 86_400 + seconds) * 1_000_000 + rest
