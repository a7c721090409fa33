"""The frontier: it never moves back, and streams judged by it lose nothing, double nothing and equal the batch."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlyonce.core.frontier import MILLI, Frontier, closed_until, is_late, newest_open
from onlyonce.core.windows import Chained, Fixed, Joined, Session, Sliding, Window, micros, waits

QUICK = settings(max_examples=50, deadline=None)
SECOND = 1_000_000
times = st.integers(-(10**12), 10**12)
windows = st.sampled_from(
    [
        Fixed(timedelta(seconds=1)),
        Fixed(timedelta(milliseconds=700)),
        Fixed(timedelta(minutes=3)),
        Sliding(timedelta(seconds=6), timedelta(seconds=2)),
        Fixed(timedelta(minutes=3), timedelta(seconds=100)),
        Sliding(timedelta(seconds=6), timedelta(seconds=2), timedelta(milliseconds=1500)),
        Fixed(timedelta(days=1), timezone="Africa/Casablanca"),
        Session(timedelta(seconds=5)),
        Joined(timedelta(minutes=3), within=timedelta(seconds=70)),
        Chained(
            timedelta(minutes=3),
            upstream=Sliding(timedelta(seconds=6), timedelta(seconds=2)),
            waits_before=timedelta(seconds=4),
        ),
        Chained(
            timedelta(minutes=9),
            upstream=Chained(timedelta(minutes=3), upstream=Fixed(timedelta(seconds=7))),
            waits_before=timedelta(seconds=1),
        ),
    ]
)
watermark_delayes = st.integers(0, 10 * SECOND)
events = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.none() | times),
        st.just(("ended",)),
        st.tuples(st.just("silent"), st.integers(0, 10**12), st.integers(0, 10**9)),
    ),
    max_size=12,
)


def after(frontier: Frontier, event: tuple[object, ...]) -> Frontier:
    """The frontier once one batch or close is committed."""
    kind, *values = event
    if kind == "batch":
        return frontier.after_batch(*values)  # type: ignore[arg-type]
    if kind == "ended":
        return frontier.declared_ended()
    return frontier.fallen_silent(*values)  # type: ignore[arg-type]


@QUICK
@given(events, windows, watermark_delayes)
def test_closed_until_never_moves_back(
    happened: list[tuple[object, ...]], window: Window, watermark_delay: int
) -> None:
    """Batches and closes in any order: neither the frontier's parts nor what they close go back or away."""
    frontier = Frontier()
    for event in happened:
        then = after(frontier, event)
        for old, new in zip(astuple(frontier), astuple(then), strict=True):
            assert old is None or (new is not None and new >= old)
        old, new = closed_until(frontier, window, watermark_delay), closed_until(then, window, watermark_delay)
        assert old is None or (new is not None and new >= old)
        frontier = then


@QUICK
@given(windows, watermark_delayes)
def test_nothing_is_late_before_anything_is_known(window: Window, watermark_delay: int) -> None:
    """The empty frontier closes nothing; a bounded run stamps it, so nothing of it is late."""
    assert closed_until(Frontier(), window, watermark_delay) is None
    assert not is_late(Frontier(), window, watermark_delay, -(10**15), -(10**15) + 1)


@QUICK
@given(times, windows, watermark_delayes)
def test_what_is_closed_is_a_whole_millisecond_rounded_down(
    max_event_time: int, window: Window, watermark_delay: int
) -> None:
    """Spark's watermark has milliseconds; rounding up would close a window that Spark still keeps open."""
    closed = closed_until(Frontier(max_event_time=max_event_time), window, watermark_delay)

    assert closed is not None
    assert closed % MILLI == 0
    assert closed <= max_event_time - watermark_delay - waits(window) < closed + MILLI


@QUICK
@given(st.integers(-(10**9), 10**9), watermark_delayes)
def test_a_window_that_ends_where_all_is_closed_is_late(closed_milli: int, watermark_delay: int) -> None:
    """Equality is late: the watermark that passes the end has closed it."""
    window, closed = Fixed(timedelta(seconds=1)), closed_milli * MILLI
    frontier = Frontier(max_event_time=closed + watermark_delay)

    assert is_late(frontier, window, watermark_delay, closed - 1, closed)
    assert not is_late(frontier, window, watermark_delay, closed, closed + 1)


@QUICK
@given(st.integers(-(10**9), 10**9), watermark_delayes)
def test_a_session_compares_the_time_of_the_record(closed_milli: int, watermark_delay: int) -> None:
    """Not the end of a session that may still merge."""
    window, closed = Session(timedelta(seconds=5)), closed_milli * MILLI
    frontier = Frontier(max_event_time=closed + watermark_delay)

    assert is_late(frontier, window, watermark_delay, closed, closed + 5 * SECOND)
    assert not is_late(frontier, window, watermark_delay, closed + 1, closed + 1 + 5 * SECOND)


@QUICK
@given(times, windows.filter(lambda window: not isinstance(window, Session)), watermark_delayes)
def test_a_declared_end_closes_the_last_window_and_not_the_next(
    max_event_time: int, window: Fixed | Sliding, watermark_delay: int
) -> None:
    """Every window with data is closed, however long the watermark delay; a window that starts after them is not."""
    frontier = Frontier().after_batch(max_event_time).declared_ended()
    end = window.last_end(max_event_time)

    assert closed_until(frontier, window, watermark_delay) == end
    assert is_late(frontier, window, watermark_delay, max_event_time, end)
    first = end + waits(window) + 1 if waits(window) else end
    assert not is_late(frontier, window, watermark_delay, first, first + 1)


@QUICK
@given(times, watermark_delayes)
def test_a_declared_end_closes_the_last_session_of_whole_milliseconds(
    max_event_time: int, watermark_delay: int
) -> None:
    """Up to the end that the last record's session has."""
    max_event_time, window = max_event_time // MILLI * MILLI, Session(timedelta(seconds=5))

    assert (
        closed_until(Frontier(max_event_time).declared_ended(), window, watermark_delay) == max_event_time + 5 * SECOND
    )


@QUICK
@given(times, windows, watermark_delayes, st.integers(-(10**12), 2 * 10**12), st.integers(0, 10**9))
def test_a_close_by_silence_never_passes_the_clock(
    max_event_time: int, window: Window, watermark_delay: int, clock: int, idle: int
) -> None:
    """Beyond what the max event time itself has closed, at most the clock less the idle time, at most the last window."""
    frontier = Frontier(max_event_time=max_event_time).fallen_silent(clock, idle)
    by_max_event_time = closed_until(Frontier(max_event_time=max_event_time), window, watermark_delay)
    closed = closed_until(frontier, window, watermark_delay)

    assert closed is not None
    assert by_max_event_time is not None
    last_end, bound = (
        -(-window.last_end(max_event_time) // MILLI) * MILLI,
        (clock - idle) // MILLI * MILLI - waits(window),
    )
    assert closed == max(by_max_event_time, min(last_end, bound))


def test_an_hour_that_still_runs_stays_open_when_its_source_pauses() -> None:
    """A minute of silence at half past closes nothing of the running hour, and all of the hour before."""
    hour, minute = 3600 * SECOND, 60 * SECOND
    frontier = Frontier().after_batch(hour + 29 * minute).fallen_silent(hour + 31 * minute, minute)
    window = Fixed(timedelta(hours=1))

    assert is_late(frontier, window, 0, hour - 1, hour)
    assert not is_late(frontier, window, 0, hour + 29 * minute, 2 * hour)


def test_silence_before_the_first_record_closes_nothing() -> None:
    """Without a max event time there is no window with data."""
    frontier = Frontier().fallen_silent(10**12, 0)

    assert closed_until(frontier, Fixed(timedelta(seconds=1)), 0) is None
    assert closed_until(frontier.after_batch(5 * SECOND), Fixed(timedelta(seconds=1)), 10 * SECOND) == -5 * SECOND


@pytest.mark.parametrize("kind", ["ended", "silent"])
def test_a_close_after_a_source_is_retired_moves_no_bound_back(kind: str) -> None:
    """A close covers the largest event time of all sources, which is smaller once the furthest source is retired."""
    close = (kind,) if kind == "ended" else (kind, 100 * SECOND, 0)
    furthest = after(Frontier(max_event_time=50 * SECOND), close)

    then = after(replace(furthest, max_event_time=20 * SECOND), close)

    assert (then.ended, then.silent_max_event_time) == (furthest.ended, furthest.silent_max_event_time)


def test_a_day_of_25_hours_is_not_closed_before_its_last_hour() -> None:
    """A day by the clock on the wall is judged by the end that it has, not by its usual length."""
    window = Fixed(timedelta(days=1), timezone="Europe/Berlin")
    midnight = micros(datetime(2026, 10, 24, 22, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC))
    hour = 3600 * SECOND
    end = window.last_end(midnight)
    after_24, after_25 = Frontier(max_event_time=midnight + 24 * hour), Frontier(max_event_time=midnight + 25 * hour)

    assert end == midnight + 25 * hour
    assert not is_late(after_24, window, 0, midnight, end)
    assert is_late(after_25, window, 0, midnight, end)
    assert closed_until(Frontier().after_batch(midnight).declared_ended(), window, 0) == end


def test_outputs_of_different_windows_over_one_close_are_each_closed_up_to_their_own_last_window() -> None:
    """After the close, data of the same hour is late for its minute and late for its hour, by one stored frontier;
    the next minute of that hour is late for the hour only. One number could not say both."""
    minute, hour = Fixed(timedelta(minutes=1)), Fixed(timedelta(hours=1))
    max_event_time = 3600 * SECOND + 90 * SECOND
    frontier = Frontier().after_batch(max_event_time).declared_ended()
    next_minute = max_event_time + 60 * SECOND

    assert is_late(frontier, minute, 0, max_event_time, minute.last_end(max_event_time))
    assert is_late(frontier, hour, 0, max_event_time, hour.last_end(max_event_time))
    assert not is_late(frontier, minute, 0, next_minute, minute.last_end(next_minute))
    assert is_late(frontier, hour, 0, next_minute, hour.last_end(next_minute))


@pytest.mark.parametrize("max_event_time", [1, 999, -1])
def test_a_declared_end_closes_the_last_session_whatever_its_microseconds(max_event_time: int) -> None:
    """`--close` gives the last result; sessions are not aligned, so their ends are no whole milliseconds."""
    window = Session(timedelta(seconds=5))
    closed = closed_until(Frontier(max_event_time).declared_ended(), window, 0)

    assert closed is not None
    assert closed >= max_event_time + micros(window.gap)


# --- the model: a stream by the rule, against the batch --------------------------------------------------------------

Member = tuple[int, int]  # (record, window end; for a session its time)
Group = tuple[int, int, tuple[Member, ...]]  # (start, end, members)
Result = tuple[int, int, tuple[int, ...]]  # (start, end, records)


@dataclass
class Commit:
    """One commit of `events`: its rows with the frontier stamped on them, and where its control row leads."""

    stamped: Frontier
    rows: list[tuple[int, int]]
    control: Frontier


@dataclass
class Stream:
    """An output's query as Spark runs it: state, a watermark by control rows only, append mode."""

    window: Window
    watermark_delay: int
    watermark: int | None = None
    state: list[Member] = field(default_factory=list)
    result: list[Result] = field(default_factory=list)
    dropped: int = 0

    def batch(self, commits: list[Commit]) -> None:
        """One micro-batch over whole commits, then the batch without data that follows when the watermark moved."""
        for commit in commits:
            for record, time in commit.rows:
                self._take(commit.stamped, record, time)
        self._emit()
        closed = [closed_until(c.control, self.window, self.watermark_delay) for c in commits]
        self.watermark = max((c for c in (*closed, self.watermark) if c is not None), default=None)
        self._emit()

    def _take(self, stamped: Frontier, record: int, time: int) -> None:
        ends = (
            [time + micros(self.window.gap)]
            if isinstance(self.window, Session)
            else [end for _, end in self.window.assign(time)]
        )
        in_time = [end for end in ends if not is_late(stamped, self.window, self.watermark_delay, time, end)]
        # What Spark does by itself with rows that are too late for its watermark. The platform promises: none.
        late_for_spark = [end for end in in_time if self.watermark is not None and end <= self.watermark]
        self.dropped += len(late_for_spark)
        self.state += [(record, end if not isinstance(self.window, Session) else time) for end in in_time]

    def _emit(self) -> None:
        closed = [g for g in grouped(self.window, self.state) if self.watermark is not None and g[1] <= self.watermark]
        self.state = list((Counter(self.state) - Counter(m for *_, members in closed for m in members)).elements())
        self.result += results(closed)


def grouped(window: Window, state: list[Member]) -> list[Group]:
    """(start, end, members): by window end, or merged sessions by time."""
    if not isinstance(window, Session):
        by_end: dict[int, list[Member]] = defaultdict(list)
        for record, end in state:
            by_end[end].append((record, end))
        return [(end - micros(window.size), end, tuple(members)) for end, members in by_end.items()]
    sessions: list[tuple[int, int, list[Member]]] = []
    for record, time in sorted(state, key=lambda pair: pair[1]):
        if sessions and time <= sessions[-1][1]:
            start, _, members = sessions.pop()
            sessions.append((start, time + micros(window.gap), [*members, (record, time)]))
        else:
            sessions.append((time, time + micros(window.gap), [(record, time)]))
    return [(start, end, tuple(members)) for start, end, members in sessions]


def results(groups: list[Group]) -> list[Result]:
    """What a function over each window gives: the multiset of its records."""
    return [(start, end, tuple(sorted(record for record, _ in members))) for start, end, members in groups]


def of_batch(window: Window, watermark_delay: int, commits: list[Commit]) -> Counter[Result]:
    """The batch computation over the rows in time, by the stored frontiers."""
    state = []
    for commit in commits:
        for record, time in commit.rows:
            if isinstance(window, Session):
                state += [(record, time)] * (not is_late(commit.stamped, window, watermark_delay, time, 0))
            else:
                ends = [end for _, end in window.assign(time)]
                state += [(record, e) for e in ends if not is_late(commit.stamped, window, watermark_delay, time, e)]
    return Counter(results(grouped(window, state)))


OUTPUTS: list[tuple[Window, int]] = [
    (Fixed(timedelta(seconds=1)), 0),
    (Fixed(timedelta(seconds=10)), 2 * SECOND),
    (Fixed(timedelta(seconds=60)), 300_500),
    (Fixed(timedelta(seconds=10), timedelta(seconds=7)), SECOND),
    (Sliding(timedelta(seconds=9), timedelta(seconds=3)), SECOND),
    (Sliding(timedelta(seconds=9), timedelta(seconds=3), timedelta(milliseconds=2999)), 0),
    (Session(timedelta(seconds=2)), SECOND // 2),
]


def random_history(chance: random.Random, grain: int = 1) -> list[Commit]:
    """Batches of disordered records at times of that grain, with closes of both kinds between them."""
    frontier, commits, record, now = Frontier(), [], 0, chance.randrange(0, 10**7)
    for _ in range(chance.randrange(1, 10)):
        now += chance.randrange(0, 15 * SECOND)
        rows = []
        for _ in range(chance.randrange(0, 8)):
            back = int(chance.expovariate(1) * chance.choice((0, 1, 5)) * SECOND)
            rows.append((record, max(0, now - back) // grain * grain))
            record += 1
        largest = max((time for _, time in rows), default=None)
        commits.append(Commit(frontier, rows, frontier := frontier.after_batch(largest)))
        if chance.random() < 0.4:
            clock = now + chance.randrange(0, 20 * SECOND)
            closed = frontier.declared_ended() if chance.random() < 0.5 else frontier.fallen_silent(clock, SECOND)
            commits.append(Commit(frontier, [], frontier := closed))
    commits.append(Commit(frontier, [], frontier.declared_ended()))
    return commits


def run_cut(chance: random.Random, commits: list[Commit], stream: Stream) -> Stream:
    """The same commits, cut at random into the output's own batches; a commit is never split."""
    left = list(commits)
    while left:
        size = chance.randrange(1, 4)
        stream.batch(left[:size])
        del left[:size]
    return stream


@pytest.mark.parametrize("seed", range(8))
def test_streams_over_closes_drop_nothing_double_nothing_and_equal_the_batch(seed: int) -> None:
    """Random histories, seven outputs of different windows on the same stored frontiers, batches cut at random: no row
    meets Spark's own drop, each record is in one result for each of its windows in time, and the results are the
    batch's."""
    late = kept = 0
    for number in range(60):
        for window, watermark_delay in OUTPUTS:
            chance = random.Random(seed * 1000 + number)
            commits = random_history(chance, MILLI if isinstance(window, Session) else 1)
            stream = run_cut(chance, commits, Stream(window, watermark_delay))
            wanted = of_batch(window, watermark_delay, commits)
            where = f"seed {seed * 1000 + number}, {window}"
            assert stream.dropped == 0, where
            assert stream.state == [], where
            assert Counter(stream.result) == wanted, where
            in_time = sum(len(members) for _, _, members in stream.result)
            pairs = sum(len(c.rows) for c in commits) * window.per_record
            kept, late = kept + in_time, late + pairs - in_time

    assert late > 0
    assert kept > late


def test_the_model_can_tell_one_number_from_three() -> None:
    """The control: with the max event time alone set up to the end of the widest window at a close, outputs of narrower windows
    lose rows or differ from their own batch; the same comparison finds it."""
    differences = 0
    for seed in range(40):
        chance = random.Random(seed)
        commits = [Commit(one_number(c.stamped), c.rows, one_number(c.control)) for c in random_history(chance)]
        true = random_history(random.Random(seed))
        for window, watermark_delay in OUTPUTS:
            stream = run_cut(chance, commits, Stream(window, watermark_delay))
            differences += Counter(stream.result) != of_batch(window, watermark_delay, true)

    assert differences > 0


def one_number(frontier: Frontier) -> Frontier:
    """The design that was refused: a close moves the one max event time to the end of the widest window."""
    widest = Fixed(timedelta(seconds=60))
    closes = [widest.last_end(t) for t in (frontier.ended, frontier.silent_max_event_time) if t is not None]
    return Frontier(
        max_event_time=max((*closes, frontier.max_event_time), default=None)
        if frontier.max_event_time is not None
        else None
    )


@QUICK
@given(windows, watermark_delayes, times, times)
def test_the_newest_open_window_closes_at_the_time_that_is_told(
    window: Window, delay: int, first: int, last: int
) -> None:
    """By the millisecond in which that time is, and not before."""
    reached = max(first, last)
    frontier = Frontier().after_batch(first).after_batch(last)
    found = newest_open(frontier, window, delay, reached)
    if found is None:
        return
    end, closes_at = found

    def closed(time: int) -> bool:
        bound = closed_until(frontier.after_batch(time), window, delay)
        return bound is not None and end <= bound

    assert closed(closes_at + MILLI)
    assert not closed(closes_at - 1)
