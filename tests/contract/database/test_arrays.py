"""Rows that a batch tells the log together: each arrives as it is, once, whether they fit into one statement or not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Connection, text

from onlyonce.commitlog import backfills, batches, removals
from onlyonce.commitlog.backfills import Backfills, Panes, Request
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.removals import Rejections
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Outcome, to_micros
from onlyonce.core.frontier import Frontier
from onlyonce.database import locks
from onlyonce.database.connect import Database, run
from tests.contract.conftest import NOON, Log, plan_of
from tests.contract.sinks.test_postgres_unit import TEXTS
from tests.support.proxy import ANSWER_LOST, COMMIT_LOST, Proxy

PAGE = 3
GAP = timedelta(seconds=10)
TIMES = [
    NOON,
    None,
    datetime(1, 1, 1, tzinfo=UTC),
    NOON + timedelta(microseconds=1),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
]
NUMBERS = [0, None, -1, 2**63 - 1, -(2**63)]
LOOKUPS = [None, {"shops": {"version": 7, "table": 'a "b" \\ {c}, d'}}, {}, {"é\n": None}]
WINDOWS = "SELECT window_start, window_end, rows, final, batch_id FROM onlyonce_private.panes WHERE output = '{}'"


@pytest.fixture
def driver(log: Log) -> Driver:
    """A driver of an output."""
    return log.start("shop", "per_shop")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement takes three rows."""
    monkeypatch.setattr(locks, "ROWS_AT_ONCE", PAGE)


@pytest.fixture
def proxy(log: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before the server, and a short patience."""
    monkeypatch.setenv("ONLYONCE_DATABASE_PATIENCE", "20.0")
    with Proxy(log.url) as made:
        yield made


def sessions(number: int, first: int = 0, rows: int = 1) -> pa.Table:
    """Sessions of a few seconds, which overlap as those of different keys do."""
    starts = [NOON + timedelta(microseconds=n) for n in range(first, first + number)]
    return pa.table([starts, [start + GAP for start in starts], [rows] * number], batches.WRITTEN)


def known(windows: pa.Table, rows: int, *, final: bool, batch: int) -> Counter[Any]:
    """What the log has of them."""
    return Counter((row["window_start"], row["window_end"], rows, final, batch) for row in windows.to_pylist())


@pytest.mark.parametrize(
    ("values", "kind", "of"),
    [(TEXTS, pa.string(), "text"), (NUMBERS, pa.int64(), "bigint"), (TIMES, locks.INSTANT, "timestamptz"), ([True, None, False], pa.bool_(), "boolean")],
    ids=["texts", "numbers", "times", "truth values"],
)  # fmt: skip
def test_values_arrive_as_they_are(log: Log, values: list[Any], kind: pa.DataType, of: str) -> None:
    """Null, '' and 'NULL' stay apart, and what an array or a text is written with means only itself; in any cut of the
    column."""
    statement = text(f"SELECT found FROM unnest(CAST(:given AS {of}[])) AS found")
    for first in range(len(values)):
        column = pa.chunked_array([pa.array(values, kind), pa.array(values, kind)]).slice(first)
        found = run(
            log.database,
            lambda conn, column=column: conn.execute(statement, {"given": locks.array(column)}).scalars().all(),  # type: ignore[misc]
        )
        assert found == (values + values)[first:]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("number", [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 3 * PAGE + 1])
def test_each_row_is_there_once_however_many_statements_take_them(log: Log, driver: Driver, number: int) -> None:
    """Texts with every sign, from one row more than a statement takes to none; noted twice, as after an answer that was
    lost."""
    reasons = [reason or "" for reason in TEXTS[:number]]
    rows = [
        {"event_time": NOON + timedelta(microseconds=n), "oo_high": n, "oo_low": -n, "received_as": reason, "received_in": n, "reason": reason, "rows": n}
        for n, reason in enumerate(reasons)
    ]  # fmt: skip
    told, whose = pa.Table.from_pylist(rows, removals.REJECTED), {"incarnation": driver.incarnation, "batch_id": 0}
    for _ in range(2):
        Rejections(log.database).note("shop", "per_shop", whose, told)

    found = (
        "SELECT window_start, window_end, event_time, oo_high, oo_low, received_as, received_in, reason, rows, "
        "incarnation, batch_id FROM onlyonce_private.rejected"
    )
    assert log.multiset(found) == Counter((None, None, *row.values(), driver.incarnation, 0) for row in rows)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("how", [ANSWER_LOST, COMMIT_LOST])
def test_a_batch_whose_answer_was_lost_has_its_windows_once(log: Log, driver: Driver, proxy: Proxy, how: str) -> None:
    """All kinds of what is told of windows, in several statements each: rows that are added up are not added again."""
    database, made = Database(proxy.url), sessions(2 * PAGE + 1)
    held = pa.table([*made.columns[:2], [5, None] * PAGE + [7], [NOON, None] * PAGE + [NOON]], backfills.HELD)
    counts = pa.table(
        [*made.columns[:2], [2] * 7, [1] * 7, [None, 3] * PAGE + [0], [None] * 7, [NOON] * 7], batches.COUNTED
    )
    batch = Batches(database).begin(driver, "shop", plan_of(driver), Frontier())

    def end(conn: Connection) -> None:
        Batches(conn).count_windows(batch, "per_shop", counts)
        Batches(conn).add_panes(batch, "shop", "whole", made, final=True)
        Panes(conn).add_rows(batch, "shop", "raw", made)
        Panes(conn).hold(batch, "shop", "fired", held)
        Batches(conn).end(driver, batch, Outcome(in_time=14, late=7))

    proxy.cut_next(how)
    run(database, end)

    assert proxy.cuts == 1
    assert log.multiset(WINDOWS.format("whole")) == known(made, 1, final=True, batch=0)
    assert log.multiset(WINDOWS.format("raw")) == known(made, 1, final=False, batch=0)
    left = "SELECT window_start, window_end, held, held_since FROM onlyonce_private.panes WHERE output = 'fired'"
    assert log.multiset(left) == Counter(tuple(row.values()) for row in held.to_pylist())
    met = (
        "SELECT window_start, window_end, in_time, late, rejected, late_from, late_to FROM "
        "onlyonce_private.window_counts"
    )
    assert log.multiset(met) == Counter(
        tuple((row | {"rejected": row["rejected"] or 0}).values()) for row in counts.to_pylist()
    )


@pytest.mark.usefixtures("small")
def test_two_batches_that_are_ended_again_add_their_rows_once_to_the_sessions_they_share(
    log: Log, driver: Driver
) -> None:
    """As they come one after the other: the first ends twice, then the second."""
    shared, own = sessions(PAGE + 1), sessions(PAGE, first=PAGE + 1, rows=7)
    for number, windows in enumerate((shared, pa.concat_tables([shared, own]))):
        batch = Batches(log.database).begin(driver, "shop", plan_of(driver, number), Frontier())
        for _ in range(2):
            Panes(log.database).add_rows(batch, "shop", "raw", windows)

    assert log.multiset(WINDOWS.format("raw")) == known(shared, 2, final=False, batch=1) + known(
        own, 7, final=False, batch=1
    )


@pytest.mark.usefixtures("small")
def test_a_backfill_keeps_what_each_window_saw_of_the_lookups(log: Log, driver: Driver) -> None:
    """JSON of any signs, and null, beside each other."""
    batch = Batches(log.database).begin(driver, "shop", plan_of(driver), Frontier())
    made = sessions(len(LOOKUPS))
    Batches(log.database).add_panes(batch, "shop", "per_shop", made, final=True)
    request = Request("shop", "per_shop", Span(to_micros(NOON) or 0, (to_micros(NOON) or 0) + 1), "person", "d1")
    again = Backfills(log.database).open_incarnation(request, "run")
    number = Backfills(log.database).begin(again, request, 1)
    seen = pa.array([None if one is None else json.dumps(one) for one in LOOKUPS], pa.string())
    counts = {"in_time": 1, "late": 0, "windows": len(LOOKUPS), "rows": len(LOOKUPS)}
    Backfills(log.database).end(
        again,
        request,
        number,
        request.span,
        {"per_shop": made.append_column("lookups", seen).append_column("pane", pa.nulls(made.num_rows, pa.int32()))},
        counts,
    )

    found = log.rows("SELECT generation, lookups FROM onlyonce_private.panes ORDER BY generation, window_start")
    assert found == [*[(0, None)] * len(LOOKUPS), *((1, one) for one in LOOKUPS)]
