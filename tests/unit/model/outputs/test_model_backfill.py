"""Which windows a backfill recomputes: no window twice, none half, and none that belongs to the stream."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.pipelines import FLIGHTS, USER_COUNTS
from onlyonce.api.outputs import what_to_do
from onlyonce.api.pipeline import Delta, Output, Postgres
from onlyonce.asked import moment
from onlyonce.core import backfill
from onlyonce.core.backfill import Span, closed_part, rows_of, spans
from onlyonce.core.batch import to_micros
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.windows import Fixed, Session, Sliding, Window, micros
from onlyonce.outputs.backfill import chosen, span_of

MINUTE = micros(timedelta(minutes=1))
WINDOWS = st.sampled_from(
    [
        Fixed(timedelta(minutes=1)),
        Fixed(timedelta(minutes=7)),
        Sliding(timedelta(minutes=3), timedelta(minutes=1)),
        Sliding(timedelta(minutes=4), timedelta(minutes=2)),
    ]
)
TIMES = st.integers(0, 60 * MINUTE)


def output(window: Window | None, **more: object) -> Output:
    """An output with that window."""
    plain: dict[str, Any] = {"name": "o", "transform": "m:f", "sink": Delta(), "window": window}
    return Output(**plain | more)


@given(WINDOWS, TIMES, TIMES, TIMES)
def test_neighbouring_intervals_share_no_window_and_leave_none_out(
    window: Fixed | Sliding, a: int, b: int, time: int
) -> None:
    """Each window of a record starts in exactly one of two neighbouring spans, when it starts in their union."""
    first, last = sorted((a, b + 1))
    middle = (first + last) // 2
    parts = [Span(first, middle), Span(middle, last)]

    for start, _ in window.assign(time):
        assert sum(part.holds(start) for part in parts) == Span(first, last).holds(start)


@given(WINDOWS, TIMES, st.integers(1, 30 * MINUTE), TIMES)
def test_the_rows_that_are_read_are_all_that_the_windows_hold(
    window: Fixed | Sliding, start: int, length: int, time: int
) -> None:
    """A record is read if one of its windows starts in the span; of fixed windows no other record is."""
    span = Span(start, start + length)
    low, high = rows_of(window, span)

    wanted = any(span.holds(begin) for begin, _ in window.assign(time))
    assert low <= time < high or not wanted
    assert wanted or not low <= time < high or isinstance(window, Sliding)


@given(WINDOWS, TIMES, st.integers(1, 30 * MINUTE), TIMES)
def test_only_closed_windows_are_recomputed(window: Fixed | Sliding, start: int, length: int, closed: int) -> None:
    """What is left of a span holds each closed window of it, and no open one."""
    span = Span(start, start + length)
    try:
        part = closed_part("shop", "counts", window, span, closed, open_rows=False)
    except Retryable:
        part = Span(start, start)

    for time in range(start, start + length, MINUTE // 4):
        for begin, end in window.assign(time):
            if span.holds(begin):
                assert part.holds(begin) == (end <= closed)


def test_open_windows_with_rows_are_refused_whole() -> None:
    """Half of what was asked for would look like all of it; without rows there is nothing to recompute."""
    fixed = Fixed(timedelta(minutes=1))
    span = Span(0, 10 * MINUTE)

    with pytest.raises(backfill.OpenWindows, match="are still open: closed are those that end by"):
        closed_part("shop", "counts", fixed, span, 5 * MINUTE, open_rows=True)
    assert closed_part("shop", "counts", fixed, span, 5 * MINUTE, open_rows=False) == Span(0, 5 * MINUTE)
    with pytest.raises(backfill.OpenWindows, match="none is closed yet"):
        closed_part("shop", "counts", fixed, span, None, open_rows=False)


def test_open_windows_are_told_in_one_time_format_with_the_command_that_helps() -> None:
    """The pipeline is named, and only an end that lies after the span."""
    noon = to_micros(datetime(2026, 1, 1, 12, tzinfo=UTC))
    span = Span(noon, noon + 60 * MINUTE)

    told = backfill.still_open("shop", "counts", span, span.stop, noon + 1)
    assert told.what == (
        "output counts: windows of 2026-01-01T12:00:00Z--2026-01-01T13:00:00Z are still open: "
        "closed are those that end by 2026-01-01T12:00:00.000001Z"
    )
    assert "(onlyonce run shop; " in told.hint
    later = backfill.still_open("shop", "counts", span, span.stop + MINUTE, None)
    assert "13:00:00Z (the last ends at 2026-01-01T13:01:00Z) are still open" in later.what


def test_windows_that_begin_after_now_are_refused_for_good() -> None:
    """No run closes them today; those that have begun may close with the next run."""
    span = Span(0, MINUTE)
    waits = backfill.still_open("shop", "counts", span, span.stop, None)

    assert backfill.ahead_of_now("shop", span, span.start, waits) is waits
    ahead = backfill.ahead_of_now("shop", span, span.start - 1, waits)
    assert (type(ahead), ahead.exit_code, ahead.data) == (Refused, 64, waits.data)
    assert ahead.what.startswith("pipeline shop: the windows of 1970-01-01T00:00:00Z--1970-01-01T00:01:00Z begin after")


def test_a_span_is_widened_to_what_reaches_into_it_and_to_what_reaches_into_that() -> None:
    """A merged session drags in the sessions that it swallowed, on both sides."""
    span = Span(100, 200)

    assert span.hull([]) == span
    assert span.hull([(90, 110)]) == Span(90, 200)
    assert span.hull([(90, 110), (80, 91), (10, 20)]) == Span(80, 200)
    assert span.hull([(190, 260), (250, 260), (260, 300)]) == Span(100, 251)
    assert span.hull([(0, 100), (200, 300)]) == span


def test_windows_that_touch_are_recomputed_together() -> None:
    """One Spark job for a run of windows, one more for those far away."""
    minutes = [(n * MINUTE, (n + 1) * MINUTE) for n in (1, 2, 3, 9)]

    assert spans(minutes) == [Span(MINUTE, 3 * MINUTE + 1), Span(9 * MINUTE, 9 * MINUTE + 1)]
    assert spans([]) == []


def test_a_window_that_older_windows_have_rows_in_is_recomputed_up_to_its_end() -> None:
    """The others stay as short as they are: of sliding windows, the next ones start in them."""
    ten = [(n * MINUTE, (n + 10) * MINUTE) for n in (0, 10, 20)]

    assert spans(ten[:1], 10 * MINUTE) == [Span(0, 10 * MINUTE)]
    assert spans(ten, 10 * MINUTE) == [Span(0, 20 * MINUTE + 1)]
    assert spans(ten[1:], 10 * MINUTE) == [Span(10 * MINUTE, 20 * MINUTE + 1)]


@pytest.mark.parametrize(
    ("sink", "does"),
    [
        (Delta(), "replace"),
        (Delta(write="upsert", keys=("window_start", "shop")), "replace"),
        (Postgres(table="a.b", write="upsert", keys=("window_end",)), "replace"),
        (Postgres(table="a.b", write="increment", keys=("window_start",)), "replace"),
        (Postgres(table="a.b", write="upsert", keys=("shop",)), "refused"),
        (Postgres(table="a.b", write="increment", keys=("shop",)), "refused"),
        (Postgres(table="a.b", write="increment", keys=("window_end",)), "refused"),
    ],
)
def test_rows_that_say_their_window_are_replaced_the_others_refused(sink: Delta | Postgres, does: str) -> None:
    """What can't be withdrawn is refused, unless the declaration says what to do."""
    plain = output(Fixed(timedelta(minutes=1)), sink=sink)
    if does == "replace":
        assert what_to_do(plain) == does
        return
    with pytest.raises(Refused, match="can't be withdrawn"):
        what_to_do(plain)
    assert what_to_do(output(Fixed(timedelta(minutes=1)), sink=sink, on_backfill="skip")) == "skip"


def test_of_tables_only_an_upsert_is_sent_again() -> None:
    """Resending to an append or increment would write rows a second time."""
    for sink in (Delta(), Postgres(table="a.b", write="increment", keys=("shop",))):
        with pytest.raises(Refused, match="rows again"):
            output(Fixed(timedelta(minutes=1)), sink=sink, on_backfill="resend")
    upsert = Postgres(table="a.b", write="upsert", keys=("shop",))
    assert what_to_do(output(Fixed(timedelta(minutes=1)), sink=upsert, on_backfill="resend")) == "resend"


def test_only_an_increment_without_its_window_is_corrected() -> None:
    """What says its window is replaced; an upsert has no sum to add a difference to."""
    minute = Fixed(timedelta(minutes=1))
    sums = Postgres(table="a.b", write="increment", keys=("shop",))
    assert what_to_do(output(minute, sink=sums, on_backfill="correct")) == "correct"
    by_window = Postgres(table="a.b", write="increment", keys=("window_start",))
    for sink in (Delta(), Postgres(table="a.b", write="upsert", keys=("shop",)), by_window):
        with pytest.raises(Refused, match="only an increment"):
            output(minute, sink=sink, on_backfill="correct")
    with pytest.raises(Refused, match="only an increment"):
        output(None, sink=sums, on_backfill="correct")


def test_what_is_wrong_with_an_interval_is_said() -> None:
    """An empty one, one without a zone, one that is no time."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with pytest.raises(Refused, match="--from and --to are both 2026-01-01T12:00:00Z: there is no window"):
        Span.of(noon, noon)
    with pytest.raises(Refused, match="--from 2026-01-01T13:00:00Z is after --to 2026-01-01T12:00:00Z"):
        Span.of(noon + timedelta(hours=1), noon)
    with pytest.raises(Refused, match="is not a time"):
        moment("last Tuesday")
    assert moment("2013-01-31") == datetime(2013, 1, 31, tzinfo=UTC)
    assert str(Span.of(noon, noon + timedelta(hours=1))) == "2026-01-01T12:00:00Z--2026-01-01T13:00:00Z"


HOUR = Fixed(timedelta(hours=1))
INSIDE = {
    "on both borders": (HOUR, "10:00", "12:00", "", ""),
    "the start": (
        HOUR, "10:30", "12:00", "windows are 1 hour long: --from is inside the window from 2026-01-01T10:00:00Z to "
        "2026-01-01T11:00:00Z, which starts before and is left out", "--from 2026-01-01T10:00:00Z --to 2026-01-01T12:00:00Z",
    ),
    "the stop": (
        HOUR, "10:00", "11:30", "windows are 1 hour long: --to is inside the window from 2026-01-01T11:00:00Z to "
        "2026-01-01T12:00:00Z, which is taken whole", "--from 2026-01-01T10:00:00Z --to 2026-01-01T12:00:00Z",
    ),
    "no window": (
        HOUR, "10:10", "10:50", "windows are 1 hour long: no window starts between --from and --to, which are inside the "
        "window from 2026-01-01T10:00:00Z to 2026-01-01T11:00:00Z",
        "--from 2026-01-01T10:00:00Z --to 2026-01-01T11:00:00Z",
    ),
    "overlapping windows": (
        Sliding(timedelta(hours=1), timedelta(minutes=30)), "10:10", "11:30", "windows are 1 hour long and start every 30 "
        "minutes: --from is inside the window from 2026-01-01T10:00:00Z to 2026-01-01T11:00:00Z, which starts before and "
        "is left out", "--from 2026-01-01T10:00:00Z --to 2026-01-01T11:30:00Z",
    ),
    "days of a zone": (
        Fixed(timedelta(days=1), timezone="Europe/Berlin"), "00:00", "23:00", "windows are 1 day long: no window starts "
        "between --from and --to, which are inside the window from 2026-01-01T00:00:00+01:00 to "
        "2026-01-02T00:00:00+01:00", "--from 2026-01-01T00:00:00+01:00 --to 2026-01-02T00:00:00+01:00",
    ),
    "sessions": (Session(timedelta(hours=1)), "10:10", "10:50", "", ""),
}  # fmt: skip


@pytest.mark.parametrize(("window", "start", "stop", "said", "options"), INSIDE.values(), ids=INSIDE)
def test_time_inside_a_window_is_named_with_the_nearest_borders(
    window: Window, start: str, stop: str, said: str, options: str
) -> None:
    """With the window's size; the nearest borders are on the borders."""
    first, last = (datetime.fromisoformat(f"2026-01-01T{time}+00:00") for time in (start, stop))
    span = Span.of(first, last)
    near = backfill.on_borders(window, span)

    assert backfill.off_borders(window, span) == said
    assert bool(said) == (near != span)
    assert not said or backfill.as_options(window, near) == options
    assert backfill.off_borders(window, near) == ""


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Auckland", "America/Sao_Paulo", "America/Havana"]
)
@pytest.mark.parametrize("offset", [timedelta(), timedelta(hours=6)])
def test_a_day_without_a_zone_is_one_window_of_its_zone(zone: str, offset: timedelta) -> None:
    """Each day of two years, days on which the clock skips midnight or shows it twice among them; a time with a zone is
    what it says."""
    window = Fixed(timedelta(days=1), offset, zone)
    for number in range(730):
        day = datetime(2011, 1, 1) + timedelta(days=number)
        span = span_of([output(window)], day, day + timedelta(days=1))
        index = (day - datetime(1970, 1, 1)).days
        assert [at for at in range(index - 2, index + 3) if span.holds(window.start_of(at))] == [index]
    instant = datetime(2026, 3, 2, tzinfo=UTC)
    assert span_of([output(window)], instant, instant + timedelta(hours=1)).times == (
        instant,
        instant + timedelta(hours=1),
    )


def test_a_span_that_the_clock_skips_is_empty() -> None:
    """The wall clock shows no time from 2:00 to 3:00: 2:15 is the instant of 3:15, which is after 3:05."""
    window = output(Fixed(timedelta(days=1), timezone="Europe/Berlin"))
    with pytest.raises(Refused, match=r"--from 2026-03-29T02:15:00\+01:00 is after --to 2026-03-29T03:05:00\+02:00"):
        span_of([window], datetime(2026, 3, 29, 2, 15), datetime(2026, 3, 29, 3, 5))


def test_a_time_that_has_no_year_in_utc_is_refused() -> None:
    """The first day of the year 1 in Berlin begins before it in UTC. A year has four digits."""
    berlin, day = output(Fixed(timedelta(days=1), timezone="Europe/Berlin")), datetime(2026, 3, 2)
    for start, stop, window in (
        (datetime.min, day, berlin),
        (day, datetime.max, output(Fixed(timedelta(days=1), timezone="America/New_York"))),
    ):
        with pytest.raises(Refused, match="outside the years 1 to 9999"):
            span_of([window], start, stop)
    assert str(span_of([output(Fixed(timedelta(days=1)))], datetime.min, day)).startswith("0001-01-01T00:00:00Z--")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_the_first_and_last_time_that_there_is_are_taken_in_each_zone(zone: str) -> None:
    """All rows of the windows are read, whichever windows reach out of the years 1 to 9999."""
    window = Fixed(timedelta(days=1), timezone=zone)

    assert rows_of(window, Span(backfill.FIRST, 0))[0] == backfill.FIRST
    assert rows_of(window, Span(0, backfill.LAST))[1] == backfill.LAST + 1
    told = backfill.as_options(window, Span(backfill.FIRST, backfill.LAST))
    assert re.fullmatch(r"--from 0001-01-01T\S+ --to 9999-12-31T\S+", told)


def test_a_day_of_windows_of_several_zones_is_refused() -> None:
    """It would be another day for each output. With a zone, or for one output, it is one."""
    outputs = [output(Fixed(timedelta(days=1), timezone="Europe/Berlin")), output(Session(timedelta(minutes=5)))]
    day = datetime(2026, 3, 2)
    with pytest.raises(Refused, match=r"several time zones \(Europe/Berlin, UTC\)") as refused:
        span_of(outputs, day, day + timedelta(days=1))
    assert "--output" in refused.value.hint
    assert span_of(outputs[1:], day, day + timedelta(days=1)).times[0] == day.replace(tzinfo=UTC)
    assert span_of(outputs, day.replace(tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC))


def test_an_output_is_done_with_the_one_it_is_made_from() -> None:
    """of_all is made from per_user: naming it names that one."""
    assert [o.name for o in chosen(USER_COUNTS, "of_all")] == ["per_user"]
    assert [o.name for o in chosen(FLIGHTS, None)] == ["per_carrier", "per_hour"]
    with pytest.raises(Refused) as refused:
        chosen(FLIGHTS, "per_carier")
    assert "did you mean 'per_carrier'?" in refused.value.hint


def test_a_session_is_judged_by_its_start() -> None:
    """Its end is known only when it is computed."""
    sessions = Session(timedelta(seconds=20))
    assert closed_part("shop", "counts", sessions, Span(0, 100), 100, open_rows=False) == Span(0, 100)
    assert closed_part("shop", "counts", sessions, Span(0, 100), 60, open_rows=False) == Span(0, 60)
