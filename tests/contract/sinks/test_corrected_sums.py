"""Increments that a backfill corrects: the difference of what each window added, once, whatever ends in the middle."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType
from sqlalchemy import Connection

from onlyonce.api.pipeline import Output, Postgres
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed
from onlyonce.database.connect import run
from onlyonce.sinks.postgres import postgres_rows
from onlyonce.sinks.postgres.postgres_table import SinkTable
from tests.contract.conftest import Log
from tests.contract.task import Task

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Rows = list[tuple[int, str, int]]
"""(window, shop, cents)"""


class Killed(Exception):
    """Stands for a kill: the transaction ends without a commit."""


@pytest.fixture
def driver(log: Log) -> Driver:
    driver = log.start("shop", "per_shop")
    log.rows("CREATE SCHEMA results")
    log.rows("CREATE TABLE results.shop (shop text, cents bigint, UNIQUE NULLS NOT DISTINCT (shop))")
    log.rows(
        "CREATE TABLE results.shop_by_window (window_start timestamptz, window_end timestamptz, shop text, cents "
        "bigint)"
    )
    return driver


def batch_of(rows: Rows) -> pa.RecordBatch:
    made = [
        {"window_start": START + n * MINUTE, "window_end": START + (n + 1) * MINUTE, "shop": shop, "cents": cents}
        for n, shop, cents in rows
    ]
    return pa.RecordBatch.from_pylist(made)


def add(log: Log, driver: Driver, batch: int, rows: Rows) -> None:
    """A unit of the stream."""
    task = Task(log, driver, log.database, "increment", ("shop",), batch=batch, by_window=True)
    task.run(batch_of(rows))


def correct(log: Log, driver: Driver, batch: int, rows: Rows, first: int, stop: int) -> None:
    """A unit of a backfill over the windows [first, stop)."""
    span = tuple((START + n * MINUTE).isoformat() for n in (first, stop))
    task = Task(log, driver, log.database, "replace", ("shop",), batch=batch, windows=span, by_window=True)
    task.run(*[batch_of(rows)] if rows else [])


def sums(rows: Rows) -> Counter[Any]:
    """What a table of sums must hold; keys of which nothing is left are zeros, which this leaves out."""
    total: Counter[str] = Counter()
    for _, shop, cents in rows:
        total[shop] += cents
    return Counter((shop, cents) for shop, cents in total.items() if cents)


def there(log: Log) -> Counter[Any]:
    return log.multiset("SELECT shop, cents FROM results.shop WHERE cents <> 0")


def test_a_correction_adds_the_difference_and_a_second_one_nothing(log: Log, driver: Driver) -> None:
    """More, less and nothing in a window, a key that is new and one that goes; the windows beside it stay."""
    old: Rows = [(0, "a", 10), (0, "b", 5), (1, "a", 7), (1, "c", 2), (2, "a", 1)]
    add(log, driver, 0, old)
    assert there(log) == sums(old)
    new: Rows = [(0, "a", 12), (1, "a", 6), (1, "d", 3)]

    correct(log, driver, 1, new, 0, 2)
    assert there(log) == sums([*new, (2, "a", 1)])
    correct(log, driver, 2, new, 0, 2)
    assert there(log) == sums([*new, (2, "a", 1)])

    correct(log, driver, 3, [], 0, 1)
    assert there(log) == sums([(1, "a", 6), (1, "d", 3), (2, "a", 1)])


@pytest.mark.parametrize("kind", ["double precision", "real"])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e17, -1e17])
def test_float_that_is_corrected_leaves_no_trace_in_the_sum(log: Log, driver: Driver, wrong: float, kind: str) -> None:
    """NaN and infinity are in no sum of finite numbers, and a large number has taken the small ones' digits.

    A null key is one key. A row that was not corrected stays, also with what another writer has added.
    """
    for table in ("shop", "shop_by_window"):
        log.rows(f"ALTER TABLE results.{table} ALTER cents TYPE {kind}")
    for shop in ("a", None):
        add(log, driver, 0 if shop else 1, [(0, shop, 0.1), (1, shop, wrong), (1, "b", 2.0), (2, shop, 0.5)])  # type: ignore[list-item]
    log.rows("UPDATE results.shop SET cents = cents + 100 WHERE shop = 'b'")

    correct(log, driver, 2, [(1, "a", 5.0), (1, None, 7.0), (1, "b", 4.0)], 1, 2)  # type: ignore[list-item]

    found = dict(log.rows("SELECT shop, cents FROM results.shop"))
    assert found == pytest.approx({"a": 5.6, None: 7.6, "b": 104.0})
    correct(log, driver, 3, [], 0, 3)
    assert dict(log.rows("SELECT shop, cents FROM results.shop")) == pytest.approx({"a": 0, None: 0, "b": 100.0})


@pytest.mark.parametrize("point", ["postgres-unit-after-delete", "postgres-unit-after-rows"])
def test_a_correction_that_is_killed_has_changed_nothing(
    log: Log, driver: Driver, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt is a batch of its own and adds the difference once."""
    old: Rows = [(0, "a", 10), (1, "b", 3)]
    add(log, driver, 0, old)

    def kill(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(postgres_rows, "passing", kill)
        with pytest.raises(Killed):
            correct(log, driver, 1, [(0, "a", 11)], 0, 1)
    assert there(log) == sums(old)

    correct(log, driver, 2, [(0, "a", 11)], 0, 1)
    assert there(log) == sums([(0, "a", 11), (1, "b", 3)])


def test_any_order_of_additions_and_corrections_is_the_sum_of_the_last_rows(log: Log, driver: Driver) -> None:
    """Random windows are added and corrected; each window counts with the rows that were written for it last."""
    chance = random.Random(7)
    last: dict[int, Rows] = {}
    for number in range(40):
        first = chance.randrange(8)
        stop = first + chance.randrange(1, 3)
        rows = [(n, chance.choice("abc"), chance.randrange(9)) for n in range(first, stop) for _ in range(3)]
        if any(n in last for n in range(first, stop)):
            correct(log, driver, number, rows, first, stop)
        else:
            add(log, driver, number, rows)
        last |= {n: [row for row in rows if row[0] == n] for n in range(first, stop)}
    assert there(log) == sums([row for rows in last.values() for row in rows])


def sums_table(log: Log, on_backfill: Any) -> SinkTable:
    sink = Postgres(table="results.sums", write="increment", keys=("shop",))
    output = Output(name="per_shop", transform="a:b", window=Fixed(MINUTE), on_backfill=on_backfill, sink=sink)
    return SinkTable(log.database, output, sink, "")


@pytest.mark.parametrize(("began", "now"), [("skip", "correct"), ("correct", "skip")])
def test_a_table_of_sums_is_kept_by_window_from_its_first_row_or_never(log: Log, began: str, now: str) -> None:
    """A gap in what the windows have added would make a correction wrong, so the declaration can't change under a
    table."""

    def make(connection: Connection, made: SinkTable) -> None:
        made.make(connection, "sums", {"shop": "text", "cents": "bigint"}, ("shop",))
        if began == "correct":
            made._keep(
                connection,
                "sums_by_window",
                stored_names.BY_WINDOW_NOTE,
                {"window_start": "timestamp with time zone"},
                (),
            )

    def check(on_backfill: str) -> None:
        table = sums_table(log, on_backfill)
        run(log.database, lambda conn: table._check_beside(conn, "sums_by_window"))

    run(log.database, lambda conn: make(conn, sums_table(log, began)))

    check(began)
    with pytest.raises(Refused, match=f"{'without' if began == 'skip' else 'with'} on_backfill='correct'"):
        check(now)


def test_an_increment_without_a_number_is_refused(log: Log) -> None:
    """A table of keys alone has nothing that could be added up or corrected."""
    keys = StructType([StructField("shop", StringType())])
    with pytest.raises(Refused, match="no number to add"):
        sums_table(log, "correct").prepare(keys)
