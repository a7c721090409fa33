"""What fires a pane of an open window: against a list of every record that waits; and how it is declared."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onlyonce.api import load
from onlyonce.api.joins_and_state import Lookup
from onlyonce.api.pipeline import Delta, Files, Join, Output, Pipeline
from onlyonce.api.sinks import BigQuery, CustomSink, FileSink, Iceberg, KafkaSink, MySQL, Postgres, Sink, Webhook
from onlyonce.core.changes import Need, changes
from onlyonce.core.errors import Refused
from onlyonce.core.triggers import (
    AfterRecords,
    AfterTime,
    Held,
    LastPane,
    Trigger,
    decide_panes,
    decide_sessions,
    emptied,
    next_pane,
)  # fmt: skip
from onlyonce.core.windows import Bounds, Fixed, Session, micros

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    "trigger",
    [
        AfterRecords(1),
        AfterRecords(7),
        AfterTime(timedelta(microseconds=1)),
        AfterTime(timedelta(microseconds=30)),
        AfterRecords(7) | AfterTime(timedelta(microseconds=30)),
    ],
)
@pytest.mark.parametrize("seed", range(20))
def test_a_pane_comes_with_the_batch_that_makes_it_due_and_none_of_a_closed_window(trigger: Trigger, seed: int) -> None:
    """Batch after batch, the numbers that are held decide as a list of all records that wait does."""
    chance = random.Random(seed)
    held: dict[Bounds, Held] = {}
    waiting: dict[Bounds, list[int]] = {}
    now = 0
    for number in range(30):
        now += chance.randrange(20)
        closed = number * 10 - 50
        windows = [(start, start + 20) for start in range(number * 10 - 40, number * 10 + 40, 20)]
        met = {window: chance.choice([0, 0, 1, 3, 8]) for window in windows if window[1] > closed - 10}
        for window, records in met.items():
            waiting.setdefault(window, []).extend([now] * records)
        open_ones = {window: times for window, times in waiting.items() if window[1] > closed and times}
        due = sorted(
            window for window, times in open_ones.items()
            if (not isinstance(trigger, AfterTime) and len(times) >= trigger.records)
            or (not isinstance(trigger, AfterRecords) and now - times[0] >= micros(trigger.time))
        )  # fmt: skip
        waiting = {window: times for window, times in open_ones.items() if window not in due}

        again = decide_panes(trigger, held, met, closed, now)
        fired, after = decide_panes(trigger, held, met, closed, now)
        assert again == (fired, after)
        held |= {window: left for window, left in after.items() if left is not None}
        held = {window: left for window, left in held.items() if after.get(window, left) is not None}
        assert fired == due
        assert held == {window: Held(len(times), times[0]) for window, times in waiting.items()}


HOUR = micros(timedelta(hours=1))
GAPS = (HOUR // 4, 3 * HOUR)


@pytest.mark.parametrize(
    "trigger",
    [
        AfterRecords(1),
        AfterRecords(9),
        AfterTime(timedelta(microseconds=30)),
        AfterRecords(9) | AfterTime(timedelta(microseconds=30)),
    ],
)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("seed", range(10))
def test_pane_of_sessions_comes_when_due_and_before_a_session_closes(trigger: Trigger, gap: int, seed: int) -> None:
    """By a list of all records in no pane: never later than the trigger says, nor than a session of one may close."""
    chance, held, waiting, ends, now = random.Random(seed), dict[Bounds, Held](), list[tuple[int, int]](), [0], 0
    for number in range(40):
        now, closed = now + chance.randrange(20), number * HOUR // 3 - HOUR
        times = [closed + 1 + chance.randrange(2 * HOUR) for _ in range(chance.choice([0, 0, 1, 3]))]
        waiting += [(time, now) for time in times]
        met = {
            (hour * HOUR, (hour + 1) * HOUR): [time // HOUR for time in times].count(hour)
            for hour in {time // HOUR for time in times}
        }

        fired, left = decide_sessions(trigger, held, met, gap, ends, closed, now)
        due = bool(waiting) and (
            (not isinstance(trigger, AfterTime) and len(waiting) >= trigger.records)
            or (
                not isinstance(trigger, AfterRecords)
                and now - min(since for _, since in waiting) >= micros(trigger.time)
            )
        )
        must = bool(waiting) and (
            due or any(time + gap <= closed for time, _ in waiting) or any(end <= closed for end in ends)
        )
        may = must or any(time // HOUR * HOUR + gap <= closed for time, _ in waiting)
        assert must <= fired <= may
        if fired:
            assert left == dict.fromkeys(held)
            waiting, held, ends = [], {}, [closed + chance.randrange(1, HOUR)]
            continue
        held |= {hour: one for hour, one in left.items() if one is not None}
        assert sum(one.records for one in held.values()) == len(waiting)
        assert all(end > closed for _, end in held), "the log would take it for closed"


BY_COUNT = AfterRecords(1000)


def output(panes: Any = BY_COUNT, **more: Any) -> Output:
    """An output with a trigger."""
    plain: dict[str, Any] = {
        "name": "sums", "transform": f"{__name__}:output", "window": Fixed(MINUTE), "sink": Delta(write="upsert", keys="window_start"),
    }  # fmt: skip
    return Output(panes=panes, **plain | more)


def pipeline(*outputs: Output) -> Pipeline:
    """A pipeline of them."""
    return Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=outputs
    )


WRONG: dict[str, tuple[Callable[[], object], str, str]] = {
    "no records": (lambda: AfterRecords(0), "not a number of records", "panes='early'"),
    "no time": (lambda: AfterTime(timedelta(0)), "not a length of time", "timedelta"),
    "two numbers": (lambda: AfterRecords(5) | AfterRecords(7), "not a number of records and a length of time", "whichever comes first"),  # type: ignore[operator]
    "three of them": (lambda: AfterTime(MINUTE) | AfterRecords(7) | AfterTime(MINUTE), "not a number of records and", "whichever comes first"),
    "a number of seconds": (lambda: AfterTime(30), "must be a timedelta", "timedelta"),  # type: ignore[arg-type]
    "no number": (lambda: AfterRecords(True), r"AfterRecords\(True\): not a number of records", r"AfterRecords\(1000\)"),
    "no window": (lambda: output(window=None), "makes panes of windows, and it has none", "panes='early'"),
    "an append": (lambda: output(sink=Delta()), "append would add up", "pane_column='pane'"),
    "an increment": (
        lambda: output(sink=Postgres(table="a.b", write="increment", keys="window_start"), pane_column="pane"), "has one row in place", "append the rows"),
    "numbers in an upsert": (lambda: output(pane_column="pane"), "has one row in place of them", "leave pane_column out"),
    "numbers in files": (lambda: output(sink=FileSink(), pane_column="pane"), "names its files by their pane", "leave pane_column out"),
    "numbers of windows written once": (lambda: output("on_time", sink=Delta(), pane_column="pane"), "writes each window once", r"AfterRecords"),
    "numbers without a window": (lambda: output("early", sink=Delta(), window=None, pane_column="pane"), "has no window", "leave pane_column out"),
    "numbers of sessions": (lambda: output(sink=Delta(), window=Session(MINUTE), pane_column="pane"), "which merge", "leave pane_column out"),
    "a number in place of the window": (lambda: output(sink=Delta(), pane_column="Window_Start"), "can't be the name", "a letter, then"),
    "a number under the platform's prefix": (lambda: output(sink=Delta(), pane_column="oo_pane"), "can't be the name", "a letter, then"),
    "a number under no name": (lambda: output(sink=Delta(), pane_column="the pane"), "can't be the name", "a letter, then"),
    "sessions that keys don't name": (lambda: output(window=Session(MINUTE), sink=Delta(write="upsert", keys="shop")), "keys name no window", "window_start"),
    "sessions in another sink": (lambda: output(window=Session(MINUTE), sink=MySQL(table="b", connection="X_URL", write="upsert", keys="window_start")), "which MySQL can't do", "Postgres"),
    "sessions with a lookup": (
        lambda: output(window=Session(MINUTE), lookups=Lookup(name="shops", table=Delta(path="/a"), keys="id")), "other sessions", "in the readers"),
    "sessions in two attempts at once": (
        lambda: replace(pipeline(output(window=Session(MINUTE))), mode="at_least_once"), "leave rows of both", "exactly_once"),
    "late records without a window": (lambda: Output(name="all", transform="m:f", sink=Delta(), late=BY_COUNT), r"late=AfterRecords\(records=1000\) needs windows", "leave it out"),
    "late records by a number": (lambda: output(late=3), r"Output\(late=3\): must be 'keep', 'backfill', AfterRecords", "for example late=AfterRecords"),
    "late records that never come": (
        lambda: pipeline(output(panes="on_time"), output(name="hours", from_output="sums", window=Fixed(60 * MINUTE), panes="on_time", late=BY_COUNT)), "leaves late records out", "at sums too"),
    "a session at its close": (lambda: output(panes="at_close", window=Session(MINUTE)), "known only once they are merged", "Fixed"),
    "no window to close": (lambda: output(panes="at_close", window=None), "has no window", "Fixed"),
    "a join at its close": (
        lambda: Output(name="j", join=Join(left=f"{__name__}:output", right=f"{__name__}:pipeline", on="id", within=MINUTE), panes="at_close", sink=Delta()), "gives rows as records come", "leave panes out"),
    "a word": (lambda: output(panes="after"), "panes='after' is not a value", "AfterRecords"),
    "one made from it": (
        lambda: pipeline(output(), Output(name="made", transform="m:f", from_output="sums", sink=Delta())), "early panes change", "on_time"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_can_not_work_is_refused_with_the_way_out(case: str) -> None:
    """The message names the cause, the hint what to write instead."""
    make, what, hint = WRONG[case]
    with pytest.raises(Refused, match=what) as refused:
        make()
    assert re.search(hint, refused.value.hint), refused.value.hint


TAKES_NUMBERS: dict[str, Sink] = {
    "delta": Delta(), "postgres": Postgres(table="a.b"), "mysql": MySQL(table="b", connection="C"), "iceberg": Iceberg(table="a.b"),
    "webhook": Webhook(url="https://a"), "bigquery": BigQuery(table="a.b.c"), "kafka": KafkaSink(topic="a", connection="C"), "own": CustomSink(target_class="a:B"),
}  # fmt: skip


@pytest.mark.parametrize("kind", TAKES_NUMBERS)
def test_sinks_that_add_take_numbered_panes(kind: str) -> None:
    """All of them, since the number is a column of the rows; each pane then has all rows of its window."""
    numbered = output("early", sink=TAKES_NUMBERS[kind], pane_column="pane")

    assert (numbered.trigger, numbered.gets_whole_windows) == (AfterRecords(1), True)


def test_panes_are_numbered_on_from_the_log() -> None:
    """From 0, also behind rows of the window that have no number."""
    assert [next_pane(last) for last in (None, LastPane(None, 3, 3), LastPane(0), LastPane(4))] == [0, 0, 1, 5]


def test_windows_without_rows_in_their_next_pane() -> None:
    """Only of a window that the batch writes, and whose last pane has rows."""
    last = {(n, n + 10): LastPane(0, rows, rows) for n, rows in ((0, 1), (10, 1), (20, 0), (30, 1), (40, 1))}

    assert emptied(last, [(20, 30), (30, 40)], 10, []) == [(0, 10), (30, 40)]
    assert emptied(last, [(20, 30), (30, 40)], 10, [(0, 10), (30, 40)]) == []
    assert emptied(last, [(40, 50)], None, []) == [(40, 50)]


def test_plan_tells_of_a_pane_column() -> None:
    """Rows without the number, or with one of another name, can't be next to rows with it."""
    appended = {"sink": Delta()}
    before, without, renamed = (
        load.parts(pipeline(output(**appended, **more)), "sums")
        for more in ({"pane_column": "pane"}, {"panes": "on_time"}, {"pane_column": "number"})
    )
    assert [change.need for change in changes("sums", before, renamed)] == [Need.NAME]
    assert [change.need for change in changes("sums", without, before)] == [Need.INCARNATION, Need.NAME]


def test_a_plan_tells_of_a_trigger() -> None:
    """Another one holds from the next batch on; to have one needs a new incarnation, since Spark keeps no state then."""
    by_time = AfterTime(MINUTE)
    on_time, by_count, by_either = (
        load.parts(pipeline(output(panes)), "sums")
        for panes in ("on_time", AfterRecords(1000), AfterRecords(5) | by_time)
    )
    assert by_either == load.parts(pipeline(output(by_time | AfterRecords(5))), "sums")
    assert [change.need for change in changes("sums", on_time, by_count)] == [Need.INCARNATION]
    [change] = changes("sums", by_count, by_either)
    assert (change.before, change.after, change.need) == (
        "after_records(records=1000)",
        "after_any(records=5, time=1 minute)",
        Need.NOTHING,
    )
