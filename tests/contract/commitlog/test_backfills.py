"""The log's side of a backfill: one at a time for a window, generations that count, and a driver that was overtaken."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.api import load as declarations
from onlyonce.commitlog import backfills, batches, units
from onlyonce.commitlog.backfills import Backfills, Request
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.units import Units
from onlyonce.core import backfill as model
from onlyonce.core.backfill import InBegunBackfill, InRunningBackfill, Span
from onlyonce.core.batch import Outcome
from onlyonce.core.errors import Superseded
from onlyonce.core.triggers import AfterRecords, AfterTime, Trigger
from onlyonce.core.units import Content, UnitId
from onlyonce.core.windows import Session, micros
from onlyonce.database.connect import run
from onlyonce.outputs import backfill, events
from tests.contract.conftest import Log, plan_of
from tests.support.shop import SHOP

DAY = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def hours(first: int, last: int) -> Span:
    """The windows of some hours of that day."""
    return Span.of(DAY + first * HOUR, DAY + last * HOUR)


def request(span: Span, asked_by: Any = "person") -> Request:
    """A backfill of the test's output."""
    return Request("shop", "per_shop", span, asked_by, "d1")


def opened(log: Log, asked: Request) -> Driver:
    """Its driver."""
    log.start("shop", "per_shop")
    return Backfills(log.database).open_incarnation(asked, "run")


def begin(log: Log, driver: Driver, asked: Request, version: int = 7) -> int:
    """Begin it, under the driver's own name, as a run does."""
    return Backfills(driver.session(log.database)).begin(driver, asked, version)


def end(log: Log, driver: Driver, asked: Request, number: int, *windows: int) -> None:
    """End it with rows in the windows of these hours."""
    panes = [{"window_start": DAY + n * HOUR, "window_end": DAY + (n + 1) * HOUR, "rows": 1} for n in windows]
    counts = {"windows": len(panes), "rows": len(panes), "in_time": 1, "late": 0}
    Backfills(driver.session(log.database)).end(
        driver, asked, number, asked.span, {"per_shop": pa.Table.from_pylist(panes, backfills.MADE)}, counts
    )


def generations(log: Log) -> Counter[Any]:
    """(hour, generation, rows) of each pane that is there."""
    return log.multiset(
        "SELECT extract(hour FROM window_start AT TIME ZONE 'UTC')::int, generation, rows FROM onlyonce_private.panes"
    )


def test_each_recomputation_is_the_next_generation_of_each_window(log: Log) -> None:
    """Also where intervals overlap; a window that has no rows any more gets a generation without any."""
    one, two = request(hours(0, 3)), request(hours(2, 4))
    first = opened(log, one)
    end(log, first, one, begin(log, first, one), 0, 1, 2)
    second = opened(log, two)
    end(log, second, two, begin(log, second, two), 2)
    again = opened(log, one)
    end(log, again, one, begin(log, again, one), 1)

    assert generations(log) == Counter([(0, 1, 1), (0, 2, 0), (1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 1), (2, 3, 0)])
    states = log.multiset(
        "SELECT extract(hour FROM window_start AT TIME ZONE 'UTC')::int, generation, state FROM onlyonce.windows"
    )
    assert states == Counter(
        [
            (0, 1, "replaced"), (0, 2, "closed"), (1, 1, "replaced"), (1, 2, "closed"), (2, 1, "replaced"),
            (2, 2, "replaced"), (2, 3, "closed"),
        ]
    )  # fmt: skip


@pytest.mark.parametrize(("hour", "told"), [([], ["no record has its window between these times"]), ([0], [])])
def test_report_warns_if_no_window_had_a_record(log: Log, hour: list[int], told: list[str]) -> None:
    asked = request(hours(0, 1))
    driver = opened(log, asked)
    end(log, driver, asked, begin(log, driver, asked), *hour)

    warnings = backfill.report(log.database, declarations.load()["user_counts"], asked.span, "run").warnings

    assert [warning.partition(",")[0] for warning in warnings] == told


def test_an_end_whose_answer_was_lost_counts_once(log: Log) -> None:
    """The same end again finds the backfill committed, and adds no generation."""
    asked = request(hours(0, 1))
    driver = opened(log, asked)
    number = begin(log, driver, asked)
    for _ in range(2):
        end(log, driver, asked, number, 0)

    assert generations(log) == Counter([(0, 1, 1)])


def test_what_a_dead_driver_left_is_replaced_by_the_next_of_the_same_interval(log: Log) -> None:
    """The next attempt is a batch of its own; the one before is marked, and its driver can't end it any more."""
    asked = request(hours(0, 2))
    dead = opened(log, asked)
    left = begin(log, dead, asked)
    alive = opened(log, asked)
    number = begin(log, alive, asked)
    end(log, alive, asked, number, 0, 1)

    with pytest.raises(Superseded):
        end(log, dead, asked, left, 0)

    assert number == left + 1
    assert log.multiset("SELECT batch_id, state FROM onlyonce_private.backfills") == Counter(
        [(0, "replaced"), (1, "committed")]
    )
    assert generations(log) == Counter([(0, 1, 1), (1, 1, 1)])


def test_another_interval_waits_for_the_one_at_work_that_shares_a_window(log: Log) -> None:
    """Else the sinks of a window could end at different generations. Without a shared window both go on."""
    one = request(hours(0, 3))
    first = opened(log, one)
    number = begin(log, first, one)

    with pytest.raises(InRunningBackfill, match="and running"):
        begin(log, opened(log, request(hours(2, 5))), request(hours(2, 5)))
    beside = request(hours(3, 5))
    driver = opened(log, beside)
    end(log, driver, beside, begin(log, driver, beside), 3)
    end(log, first, one, number, 0)

    after = request(hours(2, 5))
    driver = opened(log, after)
    end(log, driver, after, begin(log, driver, after), 2)
    assert generations(log) == Counter([(3, 1, 1), (0, 1, 1), (2, 1, 1), (3, 2, 0)])


@pytest.mark.parametrize(
    ("asked_by", "command"),
    [
        ("person", "onlyonce backfill shop --output per_shop --from 2026-01-01T00:00:00Z --to 2026-01-01T03:00:00Z"),
        ("late rows", "onlyonce run shop"),
    ],
)
def test_a_half_done_one_whose_driver_has_ended_is_named_with_the_way_out(
    log: Log, asked_by: str, command: str
) -> None:
    """The message gives the command that finishes it."""
    one = request(hours(0, 3), asked_by)
    dead = opened(log, one)
    settle(log, dead, one, begin(log, dead, one), one.span)
    killed(log, dead)

    with pytest.raises(InBegunBackfill, match="whose driver has ended") as refused:
        begin(log, opened(log, request(hours(2, 5))), request(hours(2, 5)))

    assert command in refused.value.hint


def killed(log: Log, driver: Driver) -> None:
    """End the session of a driver, as its kill does."""
    log.rows(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = %s",
        driver.session(log.database).name,
    )


def settle(log: Log, driver: Driver, asked: Request, number: int, span: Span) -> None:
    """Settle it, under the driver's own name."""
    Backfills(driver.session(log.database)).settle(driver, asked, number, span, 7)


def test_two_that_turn_out_to_need_the_windows_of_each_other_do_not_wait_for_each_other_for_ever(log: Log) -> None:
    """Sessions of one have merged with sessions of the other. Neither has written anything when its driver ends."""
    for one in (first := request(hours(0, 1))), (second := request(hours(1, 2))):
        driver = opened(log, one)
        begin(log, driver, one)
        killed(log, driver)

    for one in first, second:
        again = opened(log, one)
        settle(log, again, one, number := begin(log, again, one), hours(0, 2))
        end(log, again, one, number, 0, 1)


def test_a_wide_one_is_alone_from_its_begin(log: Log) -> None:
    """Of two joins whose windows are neighbours one comes first."""
    one, other = request(hours(0, 1)), request(hours(1, 2))
    driver = opened(log, one)
    Backfills(driver.session(log.database)).begin(driver, one, 7, hours(0, 2))

    with pytest.raises(InRunningBackfill, match="and running"):
        begin(log, opened(log, other), other)


def test_an_attempt_at_what_was_settled_keeps_its_windows(log: Log) -> None:
    """A sink may have some of the new rows, in windows out of the interval too."""
    one, other = request(hours(0, 1)), request(hours(2, 3))
    for _ in range(2):
        driver = opened(log, one)
        number = begin(log, driver, one)
        if not number:
            settle(log, driver, one, number, hours(0, 3))
        killed(log, driver)

    with pytest.raises(InBegunBackfill, match="whose driver has ended"):
        begin(log, opened(log, other), other)


def test_a_widened_span_holds_what_it_took(log: Log) -> None:
    """Sessions that reach past the interval are counted as its own, and others stay out meanwhile."""
    one = request(hours(2, 3))
    driver = opened(log, one)
    number = begin(log, driver, one)
    Backfills(driver.session(log.database)).settle(driver, one, number, hours(0, 3), 7)

    with pytest.raises(InRunningBackfill, match="and running"):
        begin(log, opened(log, request(hours(0, 1))), request(hours(0, 1)))
    assert log.rows("SELECT window_from FROM onlyonce.backfills WHERE state = 'begun'") == [(DAY,)]


def test_a_backfill_that_has_read_less_replaces_no_window_of_one_that_has_read_more(log: Log) -> None:
    """Its windows would lose late records that count as included. It began before the other, and is widened after."""
    narrow, late = request(hours(0, 1)), request(hours(1, 3), "late rows")
    driver, of_late = opened(log, narrow), opened(log, late)
    number = begin(log, driver, narrow, 7)
    end(log, of_late, late, begin(log, of_late, late, 9), 1, 2)

    with pytest.raises(InRunningBackfill, match="meanwhile another backfill has computed windows of"):
        Backfills(driver.session(log.database)).settle(driver, narrow, number, hours(0, 2), 7)
    with pytest.raises(InRunningBackfill, match="that this one has not read"):
        begin(log, opened(log, request(hours(2, 4))), request(hours(2, 4)), 8)
    Backfills(driver.session(log.database)).settle(driver, narrow, number, hours(0, 2), 9)


# --- how far the stream has come
# -------------------------------------------------------------------------------------------


def receive(log: Log, driver: Driver, batch_id: int, max_event_time: datetime, mode: str = "exactly_once") -> None:
    """A committed receive batch, in version `batch_id` of `events`."""

    def work(conn: Any) -> None:
        batch = Batches(conn).begin(driver, "shop", plan_of(driver, batch_id, mode=mode), None)
        for partition in range(2):
            unit = UnitId(driver.incarnation, batch_id, "events", partition)
            Units(conn).claim(units.Claim(unit, driver.epoch, "x", "reference"))
            Units(conn).fill(unit, Content(0, ""))
        outcome = Outcome(
            read=0,
            kept=0,
            invalid=0,
            expired=0,
            duplicate=0,
            unknown_fields=0,
            max_event_time_after=max_event_time,
            delta_version=batch_id,
        )
        Batches(conn).end(driver, batch, outcome)

    run(log.database, work)


def consume(
    log: Log,
    driver: Driver,
    batch_id: int,
    before: int | None,
    upto: int,
    *,
    stateless: bool = False,
    met: dict[int, tuple[int, int]] | None = None,
) -> None:
    """A committed output batch that read `events` up to a version, and met rows (in time, late) of these hours."""
    offset = {"reservoirVersion": upto + 1, "index": -1}
    start = None if before is None else {"reservoirVersion": before + 1, "index": -1}
    plan = plan_of(driver, batch_id, source_from=start, source_to=offset, facts={"stateless": stateless})

    counts: list[dict[str, Any]] = [
        {"window_start": DAY + n * HOUR, "window_end": DAY + (n + 1) * HOUR, "in_time": in_time, "late": late}
        for n, (in_time, late) in (met or {}).items()
    ]

    def work(conn: Any) -> None:
        batch = Batches(conn).begin(driver, "shop", plan, None)
        Batches(conn).count_windows(batch, "per_shop", pa.Table.from_pylist(counts, batches.COUNTED))
        outcome = Outcome(in_time=sum(c["in_time"] for c in counts), late=sum(c["late"] for c in counts))
        Batches(conn).end(driver, batch, outcome)

    run(log.database, work)


def test_what_a_backfill_is_made_of_is_counted_by_the_log(log: Log) -> None:
    """In time and late, of its windows only, and only of what it reads: not of batches that came after its look."""
    output = log.start("shop", "per_shop")
    consume(log, output, 0, None, 4, met={0: (5, 0), 1: (7, 0), 2: (11, 0)})
    consume(log, output, 1, 4, 6, met={1: (0, 2), 2: (13, 0), 3: (17, 0)})
    consume(log, output, 2, 6, 7, met={1: (0, 3), 2: (19, 0)})

    def met(span: Span, version: int) -> dict[str, int]:
        return Backfills(log.database).met("shop", request(span).output, span, version)

    assert met(hours(1, 3), 6) == {"in_time": 7 + 11 + 13, "late": 2}
    assert met(hours(1, 3), 7) == {"in_time": 7 + 11 + 13 + 19, "late": 5}
    assert met(hours(5, 6), 7) == {"in_time": 0, "late": 0}


def test_windows_count_as_written_one_batch_after_their_end_was_read(log: Log) -> None:
    """Spark writes a window in the batch after the one that moved its watermark: until then it is the stream's own."""
    source, output = log.start("shop", "receive"), log.start("shop", "per_shop")
    seen = []
    for version in range(3):
        receive(log, source, version, DAY + version * HOUR)
        consume(log, output, version, version - 1 if version else None, version)
        seen.append(Backfills(log.database).reach("shop", "per_shop"))
    consume(log, output, 3, 2, 2)
    seen.append(Backfills(log.database).reach("shop", "per_shop"))

    micros = [None if s.frontier.max_event_time is None else s.frontier.max_event_time // 3_600_000_000 for s in seen]
    start = int(DAY.timestamp()) // 3600
    assert micros == [None, start, start + 1, start + 2]
    assert [s.consumed for s in seen] == [0, 1, 2, 2]


def test_an_output_without_state_has_written_what_it_has_read(log: Log) -> None:
    """It never needs a further batch for its windows."""
    source, output = log.start("shop", "receive"), log.start("shop", "per_shop")
    receive(log, source, 0, DAY)
    consume(log, output, 0, None, 0, stateless=True)

    reach = Backfills(log.database).reach("shop", "per_shop")

    assert reach.frontier.max_event_time == int(DAY.timestamp()) * 1_000_000


@pytest.mark.parametrize("mode, after", [("exactly_once", 0), ("at_least_once", 1), ("by_position", 1)])
def test_a_batch_tells_of_event_time_from_its_control_row_on(log: Log, mode: str, after: int) -> None:
    """Which without a catalog is a commit of its own, the next: who has read `events` up to between the two has not met
    it, so Spark has closed nothing by it."""
    receive(log, log.start("shop", "receive"), 5, DAY, mode)

    told = [Backfills(log.database).frontier_at("shop", v).max_event_time for v in (4, 5, 6)]  # type: ignore[misc]

    assert [max_event_time is not None for max_event_time in told] == [False, after == 0, True]


def test_an_output_that_has_not_run_has_closed_nothing(log: Log) -> None:
    """Nor has a pipeline that the log does not know."""
    assert Backfills(log.database).reach("shop", "per_shop").frontier.max_event_time is None


def test_late_rows_of_sessions_are_folded_by_a_backfill_that_holds_them_all(log: Log) -> None:
    """They are known by their hour and by where in it they are: a backfill of its start or of its first half has not
    read them.

    One that is asked for by the late rows themselves holds the first and the last."""
    output = log.start("shop", "per_shop")
    hour, minute = DAY + 10 * HOUR, HOUR / 60
    late = {"window_start": hour, "window_end": hour + HOUR, "in_time": 0, "late": 2}
    late |= {"late_from": hour + 37 * minute, "late_to": hour + 50 * minute}
    plan = plan_of(output, source_to={"reservoirVersion": 5, "index": -1})

    def work(conn: Any) -> None:
        batch = Batches(conn).begin(output, "shop", plan, None)
        Batches(conn).count_windows(batch, "per_shop", pa.Table.from_pylist([late], batches.COUNTED))
        Batches(conn).end(output, batch, Outcome(in_time=0, late=2))

    run(log.database, work)
    [asked] = model.spans(Backfills(log.database).late_windows("shop", "per_shop"))
    first_half, folded = Span.of(hour, hour + HOUR / 2), []
    for span in (Span(first_half.start, first_half.start + 1), first_half, Span.of(hour, hour + 50 * minute), asked):
        driver = opened(log, request(span))
        end(log, driver, request(span), begin(log, driver, request(span)))
        folded += log.rows("SELECT included FROM onlyonce.late")

    assert folded == [(False,), (False,), (False,), (True,)]
    assert asked.times == (hour + 37 * minute, hour + 50 * minute + timedelta(microseconds=1))
    assert Backfills(log.database).late_windows("shop", "per_shop") == []


def test_late_records_of_sessions_are_taken_inside_of_an_interval(log: Log) -> None:
    """The log knows the first and the last late record of the hour; an interval may begin or end between them."""
    output = log.start("shop", "per_shop")
    hour, minute = DAY + 10 * HOUR, HOUR / 60
    late = {"window_start": hour, "window_end": hour + HOUR, "in_time": 0, "late": 3}
    late |= {"late_from": hour + 5 * minute, "late_to": hour + 50 * minute}

    def work(conn: Any) -> None:
        batch = Batches(conn).begin(output, "shop", plan_of(output), None)
        Batches(conn).count_windows(batch, "per_shop", pa.Table.from_pylist([late], batches.COUNTED))
        Batches(conn).end(output, batch, Outcome(in_time=0, late=3))

    run(log.database, work)
    root = replace(SHOP.output("per_shop"), window=Session(5 * minute), watermark_delay=timedelta(0))

    def between(first: int, last: int) -> Span:
        return Span.of(hour + first * minute, hour + last * minute)

    def taken(first: int, last: int) -> list[Span]:
        return events.late_spans(log.database, SHOP, "shop", root, between(first, last))

    assert taken(0, 30) == [between(5, 30)]
    assert taken(10, 30) == [between(10, 30)]
    assert taken(10, 60) == [Span(between(10, 50).start, between(10, 50).stop + 1)]
    assert (taken(0, 5), taken(51, 60)) == ([], [])


@pytest.mark.parametrize("seed", range(3))
def test_late_windows_are_due_as_a_list_of_waiting_records_says(log: Log, seed: int) -> None:
    """By records, by time since the batch of the first, or by either, after backfills too. A window that an ended driver
    has begun to compute again is due whatever the trigger says."""
    chance = random.Random(seed)
    either = AfterRecords(9) | AfterTime(5 * HOUR)
    triggers: list[Trigger] = [backfills.ANY, AfterRecords(9), AfterTime(5 * HOUR), either]
    waiting: dict[int, list[datetime]] = {}
    now = DAY + 30 * HOUR
    for number in range(12):
        output = log.start("shop", "per_shop")
        now += HOUR * chance.choice([0.5, 1, 3])
        met = {hour: chance.randrange(1, 6) for hour in chance.sample(range(4), 2)}
        plan = plan_of(output, number, source_to={"reservoirVersion": number + 1, "index": -1}, ingestion_time=now)
        late = [
            {"window_start": DAY + hour * HOUR, "window_end": DAY + (hour + 1) * HOUR, "in_time": 0, "late": count}
            for hour, count in met.items()
        ]

        def work(conn: Any, output: Any = output, plan: Any = plan, late: Any = late) -> None:
            batch = Batches(conn).begin(output, "shop", plan, None)
            Batches(conn).count_windows(batch, "per_shop", pa.Table.from_pylist(late, batches.COUNTED))
            Batches(conn).end(output, batch, Outcome(in_time=0, late=sum(one["late"] for one in late)))

        run(log.database, work)
        for hour, count in met.items():
            waiting.setdefault(hour, []).extend([now] * count)
        for trigger in triggers:
            due = [
                hour
                for hour, times in sorted(waiting.items())
                if (isinstance(trigger, AfterRecords) and len(times) >= trigger.records)
                or (isinstance(trigger, AfterTime) and now - times[0] >= trigger.time)
                or (trigger is either and (len(times) >= 9 or now - times[0] >= 5 * HOUR))
            ]
            assert late_hours(log, trigger) == due, trigger
        if due and chance.random() < 0.5:
            asked = request(hours(due[0], due[0] + 1), "late rows")
            driver = opened(log, asked)
            mine = Backfills(driver.session(log.database)).begin(driver, asked, number)
            del waiting[due[0]]
            end(log, driver, asked, mine, due[0])

    rare = AfterRecords(1_000_000)
    assert late_hours(log, rare) == []
    left = max(waiting)
    asked = request(hours(left, left + 1), "late rows")
    begin(log, opened(log, asked), asked)
    assert late_hours(log, rare) == [left]


def test_begun_late_backfill_comes_before_other_windows(log: Log) -> None:
    """The begin of another one replaces it; if that one then failed, the log would not know the begun one any more."""
    output = log.start("shop", "per_shop")
    late = [
        {"window_start": DAY + hour * HOUR, "window_end": DAY + (hour + 1) * HOUR, "in_time": 0, "late": 1}
        for hour in (1, 4, 7)
    ]

    def work(conn: Any) -> None:
        batch = Batches(conn).begin(output, "shop", plan_of(output), None)
        Batches(conn).count_windows(batch, "per_shop", pa.Table.from_pylist(late, batches.COUNTED))
        Batches(conn).end(output, batch, Outcome(in_time=0, late=3))

    run(log.database, work)
    asked = request(hours(4, 5), "late rows")
    begin(log, opened(log, asked), asked)
    root = replace(SHOP.output("per_shop"), late="backfill")

    found = events.late_windows_of_stream(log.database, SHOP, "shop", root)

    assert [(span.start - micros(DAY - EPOCH)) // micros(HOUR) for span in found] == [4, 1, 7]


def test_late_windows_of_a_backfill_before_are_not_recomputed_again(log: Log) -> None:
    """A session with late records of two hours is recomputed with those of the first."""
    output = log.start("shop", "per_shop")
    read = {"reservoirVersion": 5, "index": -1}
    late = [
        {"window_start": DAY + hour * HOUR, "window_end": DAY + (hour + 1) * HOUR, "in_time": 0, "late": 1}
        for hour in (1, 4, 7)
    ]

    def work(conn: Any) -> None:
        batch = Batches(conn).begin(output, "shop", plan_of(output, source_to=read), None)
        Batches(conn).count_windows(batch, "per_shop", pa.Table.from_pylist(late, batches.COUNTED))
        Batches(conn).end(output, batch, Outcome(in_time=0, late=3))

    run(log.database, work)
    root = replace(SHOP.output("per_shop"), late="backfill")
    found = []

    for span in events.spans_to_include(log.database, SHOP, "shop", root):
        found.append((span.start - micros(DAY - EPOCH)) // micros(HOUR))
        asked = request(hours(1, 5) if found == [1] else hours(7, 8))
        driver = opened(log, asked)
        end(log, driver, asked, begin(log, driver, asked))

    assert found == [1, 7]


def late_hours(log: Log, trigger: Trigger) -> list[int]:
    """The hours of the windows that are due."""
    found = Backfills(log.database).late_windows("shop", "per_shop", trigger)
    return [(start - micros(DAY - EPOCH)) // micros(HOUR) for start, _ in found]
