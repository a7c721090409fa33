"""A hundred thousand windows and a thousand units end in one batch: in few statements, and no bound on time ends it
each time anew."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sqlalchemy import Connection, event

from onlyonce.commitlog import batches, units
from onlyonce.commitlog.backfills import MADE, Backfills, Panes, Request
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.units import Units
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Batch, Outcome, to_micros
from onlyonce.core.frontier import Frontier
from onlyonce.core.units import Content, Counts, UnitId
from onlyonce.database.connect import forget_connections, run
from tests.contract.conftest import NOON, Log, ask, plan_of

SESSIONS = 100_000
FEWER = 20_000
"""Where the statement is much the same."""
UNITS = 1_000
FEW = 100
GAP = timedelta(seconds=10)


@pytest.fixture
def log(log: Log) -> Log:
    """A database whose owner lets no statement take longer than a millisecond, as a team may have for its readers."""
    ask(log.server.url("writer", log.name), f'ALTER DATABASE "{log.name}" SET statement_timeout = 1')
    forget_connections()
    return log


def windows() -> pa.Table:
    """Sessions that close at once."""
    starts = [NOON + timedelta(milliseconds=n) for n in range(SESSIONS)]
    return pa.Table.from_pydict(
        {"window_start": starts, "window_end": [start + GAP for start in starts], "rows": [1] * SESSIONS},
        batches.WRITTEN,
    )


def test_all_sessions_of_a_batch_are_counted_and_final_in_few_statements(log: Log) -> None:
    """Counts, panes written whole, panes written as they come, and a backfill of them; none has a statement of its
    own."""
    driver = log.start(query="bursts")
    batch = Batches(log.database).begin(driver, "shop", plan_of(driver), Frontier())
    made = windows()
    [starts, ends, ones], none = made.columns, pa.nulls(SESSIONS)
    pairs = pa.table([starts, ends, ones, pc.subtract(ones, 1), none, none, none], batches.COUNTED.names).cast(
        batches.COUNTED
    )
    statements: list[str] = []

    def end(conn: Connection) -> None:
        event.listen(conn, "before_cursor_execute", lambda _c, _k, statement, *_: statements.append(statement))
        Batches(conn).count_windows(batch, "bursts", pairs)
        Batches(conn).add_panes(batch, "shop", "bursts", made, final=True)
        Panes(conn).add_rows(batch, "shop", "raw", made.slice(0, FEWER))
        Batches(conn).end(driver, batch, Outcome(in_time=SESSIONS, late=0))

    run(log.database, end)

    assert len(statements) < FEW
    said = "SELECT output, count(*), sum(rows), bool_and(final) FROM onlyonce_private.panes GROUP BY 1 ORDER BY 1"
    assert patient(log, said) == [("bursts", SESSIONS, SESSIONS, True), ("raw", FEWER, FEWER, False)]
    assert patient(log, "SELECT count(*), sum(in_time) FROM onlyonce_private.window_counts") == [(SESSIONS, SESSIONS)]
    backfilled(log)


def backfilled(log: Log) -> None:
    """Some of them again, by a backfill: the next generation of each."""
    span = Span(to_micros(NOON) or 0, (to_micros(NOON) or 0) + 1000 * FEWER)
    request = Request("shop", "bursts", span, "person", "d1")
    driver = Backfills(log.database).open_incarnation(request, "run")
    number = Backfills(log.database).begin(driver, request, 1)
    counts = {"in_time": SESSIONS, "late": 0, "windows": FEWER, "rows": FEWER}
    made = windows().slice(0, FEWER)
    for field in (MADE.field("lookups"), MADE.field("pane")):
        made = made.append_column(field, pa.nulls(FEWER, field.type))
    Backfills(log.database).end(driver, request, number, span, {"bursts": made}, counts)

    last = "SELECT generation, count(*) FROM onlyonce_private.panes WHERE output = 'bursts' GROUP BY 1 ORDER BY 1"
    assert patient(log, last) == [(0, SESSIONS), (1, FEWER)]


def test_a_thousand_units_end_their_batch(log: Log) -> None:
    """Each in a transaction of its own, as tasks commit them; those of a sink without rows together."""
    driver = log.start()
    batch: Batch = Batches(log.database).begin(driver, "shop", plan_of(driver, partitions=UNITS), Frontier())
    for partition in range(UNITS):
        run(log.database, partial(commit, unit=UnitId(driver.incarnation, 0, "events", partition), epoch=driver.epoch))
    other, nothing = log.start(query="out"), Content(0, "")
    Units(log.database).commit_same(other.incarnation, 0, "out", UNITS, other.epoch, nothing)

    total = Batches(log.database).end_receive(driver, batch, UNITS, 1, bounded=False)

    assert total["kept"] == UNITS
    assert len(Units(log.database).contents(other.incarnation, 0, "out")) == UNITS
    assert patient(log, "SELECT state FROM onlyonce.batches") == [("committed",)]


def commit(conn: Connection, unit: UnitId, epoch: int) -> None:
    """A unit with one record."""
    Units(conn).claim(units.Claim(unit, epoch, "test", "reference"))
    Units(conn).fill(
        unit, Content(1, "x"), Counts(kept=1, invalid=0, expired=0, duplicate=0, unknown_fields=0, largest=NOON)
    )


def patient(log: Log, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a statement, by the product's own session."""
    return run(log.database, lambda conn: [tuple(row) for row in conn.exec_driver_sql(statement)])
