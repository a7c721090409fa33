"""A unit of the Postgres sink, run as a function: what is written, what a replay does, what stops it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pyarrow as pa
import pyspark
import pytest

from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.errors import InvariantBroken, Refused, Superseded
from onlyonce.database.connect import transaction
from onlyonce.local.processes import wait_until
from onlyonce.sinks.postgres.postgres_unit import _Csv, put_rows, write_unit
from onlyonce.testing.suite import Context, hashed
from tests.contract.conftest import Log
from tests.contract.task import Task, shop_rows
from tests.support.steps import PATIENCE, Stage, Steps

TEXTS = [
    None, "", " ", "null", "NULL", r"\N", r"\.", "\\", r"C:\new\table", '"', '""', "it's", "a,b;c\td", "one\ntwo", "\r\n",
    "🛒 çé 漢字 \u202e", "{\"a\": 1}", "$1 %s :x", "-- x", "x" * 20_000,
]  # fmt: skip

INSTANT = pa.timestamp("us", "UTC")


@pytest.fixture
def driver(log: Log) -> Driver:
    """A driver of an output."""
    return log.start("shop", "per_shop")


@pytest.mark.parametrize("write", ["append", "upsert"])
def test_texts_arrive_as_they_are(log: Log, driver: Driver, write: str) -> None:
    """Null and '' stay apart; quotes, newlines, backslashes and signs beyond 16 bits mean only themselves."""
    keys = () if write == "append" else ("n",)
    task = Task(log, driver, log.database, write, keys, columns="n bigint PRIMARY KEY, s text")
    rows = [{"n": n, "s": s} for n, s in enumerate(TEXTS)]

    task.run(pa.RecordBatch.from_pylist(rows[:7]), pa.RecordBatch.from_pylist(rows[7:]))

    assert log.multiset("SELECT n, s FROM results.shop") == Counter(enumerate(TEXTS))


def test_a_lone_column_of_strange_texts_arrives_as_it_is(log: Log, driver: Driver) -> None:
    """A line of CSV with one empty field, or with the old end mark of COPY, is a row like any other."""
    task = Task(log, driver, log.database, columns="s text")

    task.run(pa.RecordBatch.from_pydict({"s": TEXTS}))

    assert log.multiset("SELECT s FROM results.shop") == Counter((s,) for s in TEXTS)


def test_an_upsert_replaces_the_row_of_its_keys(log: Log, driver: Driver) -> None:
    """The whole row, null over a value too; other rows stay."""
    task = Task(log, driver, log.database, "upsert", ("shop",))
    task.run(
        pa.RecordBatch.from_pylist([{"shop": "a", "cents": 1}, {"shop": "b", "cents": 2}, {"shop": "", "cents": 3}])
    )
    second = replace(task, batch=1)
    second.run(pa.RecordBatch.from_pydict({"shop": ["a", "c", "b"], "cents": pa.array([None, 4, 5], pa.int64())}))

    assert task.table() == Counter({("a", None): 1, ("b", 5): 1, ("c", 4): 1, ("", 3): 1})


def test_an_upsert_without_the_window_keeps_the_row_of_the_later_one(log: Log, driver: Driver) -> None:
    """Whichever comes first; the same window replaces its own, and a row of before there were windows gives way."""
    columns = "shop text PRIMARY KEY, window_start timestamptz, window_end timestamptz, cents bigint"
    task = Task(log, driver, log.database, "upsert", ("shop",), columns=columns)
    for batch, (hour, cents) in enumerate([(None, 0), (2, 2), (1, 1), (2, 20)]):
        times = [None if hour is None else datetime(2026, 1, 1, hour + more, tzinfo=UTC) for more in (0, 1)]
        values = {"shop": ["a"], "window_start": [times[0]], "window_end": [times[1]], "cents": [cents]}
        types = {"shop": pa.string(), "window_start": INSTANT, "window_end": INSTANT, "cents": pa.int64()}
        replace(task, batch=batch).run(
            pa.RecordBatch.from_pydict({n: pa.array(v, types[n]) for n, v in values.items()})
        )
        assert log.multiset("SELECT cents FROM results.shop") == Counter([(max(cents, 2 if batch > 1 else 0),)])


def test_an_upsert_of_keys_alone_adds_what_is_new(log: Log, driver: Driver) -> None:
    """There is nothing to replace."""
    task = Task(log, driver, log.database, "upsert", ("shop",), columns="shop text PRIMARY KEY")
    for number in range(2):
        replace(task, batch=number).run(pa.RecordBatch.from_pydict({"shop": ["a", f"b{number}"]}))

    assert log.multiset("SELECT shop FROM results.shop") == Counter([("a",), ("b0",), ("b1",)])


def test_an_increment_adds_to_the_row_of_its_keys(log: Log, driver: Driver) -> None:
    """Within one batch and over batches; null adds nothing, and nothing is added to null as to zero."""
    columns = "shop text PRIMARY KEY, cents bigint, weight double precision"
    task = Task(log, driver, log.database, "increment", ("shop",), ("weight",), columns)
    first = {
        "shop": ["a", "a", "b", "c"],
        "cents": pa.array([1, 2, None, -5], pa.int64()),
        "weight": [0.5, 0.25, 1.0, None],
    }
    second = {"shop": ["b", "c", "a"], "cents": pa.array([7, 5, None], pa.int64()), "weight": [None, 2.0, 0.25]}

    task.run(pa.RecordBatch.from_pydict(first))
    replace(task, batch=1).run(pa.RecordBatch.from_pydict(second))

    there = log.multiset("SELECT shop, cents, weight FROM results.shop")
    assert there == Counter([("a", 3, 1.0), ("b", 7, 1.0), ("c", 0, 2.0)])


@pytest.mark.parametrize("write", ["upsert", "increment"])
def test_a_null_key_is_one_key(log: Log, driver: Driver, write: str) -> None:
    """Its row is replaced, or added to, as any other's."""
    task = Task(log, driver, log.database, write, ("shop",))
    for number in range(3):
        batch = pa.RecordBatch.from_pydict({"shop": pa.array([None, "a"], pa.string()), "cents": [number + 1, 10]})
        replace(task, batch=number).run(batch)

    assert task.table() == Counter([(None, 3), ("a", 10)] if write == "upsert" else [(None, 6), ("a", 30)])


@pytest.mark.parametrize("way", ["replace", "replace open", "sums"])
def test_percent_sign_in_a_name_is_not_a_placeholder(log: Log, driver: Driver, way: str) -> None:
    """The rows of the windows are replaced in a table with such a name."""
    columns = "window_start timestamptz, window_end timestamptz, shop text, cents bigint, UNIQUE (shop)"
    task = Task(log, driver, log.database, way.replace("sums", "replace"), ("shop",), columns=columns)
    work = replace(task.work(), table="50%s %off", by_window=way == "sums", windows=("2026-01-01", "2026-01-02"))
    for table in (work.table, f"{work.table}_by_window"):
        log.rows(f'CREATE TABLE results."{table}" (LIKE results.shop INCLUDING INDEXES)')
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for cents in (1, 2):
        row = {"window_start": start, "window_end": start + timedelta(days=3), "shop": "a", "cents": cents}
        rows = iter([pa.RecordBatch.from_pylist([row])])
        with transaction(log.database) as connection:
            put_rows(connection, work, rows)

    assert log.rows('SELECT shop, cents FROM results."50%s %off"') == [("a", 2)]


@pytest.mark.parametrize("write", ["append", "upsert", "increment"])
def test_a_replay_writes_nothing_and_gives_the_same(log: Log, driver: Driver, write: str) -> None:
    """Also in another order of the rows and another cut into Arrow batches."""
    task = Task(log, driver, log.database, write, () if write == "append" else ("shop",))
    rows = shop_rows(9).to_pylist()
    first = task.run(pa.RecordBatch.from_pylist(rows))
    noted = log.rows("SELECT xmin, * FROM onlyonce_private.units")
    again = task.run(*[pa.RecordBatch.from_pylist(part) for part in (rows[6:], rows[:1], rows[1:6])], attempt=1)

    assert first == again == {"partition": [0], "rows": [9]}
    assert task.table() == task.wanted(shop_rows(9))
    assert log.rows("SELECT xmin, * FROM onlyonce_private.units") == noted


@pytest.mark.parametrize("meant", [shop_rows(4), shop_rows(6), shop_rows(5, first=1)], ids=["fewer", "more", "other"])
def test_a_replay_with_other_rows_stops_and_writes_nothing(log: Log, driver: Driver, meant: pa.RecordBatch) -> None:
    """The message names the unit and the option; what is committed stays."""
    task = Task(log, driver, log.database)
    task.run(shop_rows(5))
    with pytest.raises(InvariantBroken, match="shop/per_shop/1/0/per_shop/0 is committed with 5 rows") as stopped:
        task.run(meant)

    assert "stable_input" in stopped.value.hint
    assert task.table() == task.wanted(shop_rows(5))


def test_float_sums_in_another_order_pass_and_other_floats_stop(log: Log, driver: Driver) -> None:
    """The last digits of a sum are no difference; a thousandth is."""
    columns = "shop text, weight double precision"
    task = Task(log, driver, log.database, floats=("weight",), columns=columns)
    values = [0.1 * n * 3**n for n in range(20)]
    batch = pa.RecordBatch.from_pydict({"shop": ["a"] * 20, "weight": values})
    shuffled = pa.RecordBatch.from_pydict({"shop": ["a"] * 20, "weight": values[::-1]})
    other = pa.RecordBatch.from_pydict({"shop": ["a"] * 20, "weight": [v * 1.001 for v in values]})
    task.run(batch)
    task.run(shuffled)
    with pytest.raises(InvariantBroken):
        task.run(other)

    assert log.multiset("SELECT weight FROM results.shop") == Counter((v,) for v in values)


@pytest.mark.parametrize(
    "batches", [[], [shop_rows(0)], [shop_rows(0), shop_rows(0)]], ids=["none", "empty", "two empty"]
)
def test_an_empty_partition_has_its_unit(log: Log, driver: Driver, batches: list[pa.RecordBatch]) -> None:
    """With no rows, so that the end of the batch finds every partition; its replay passes in either form."""
    batches = [
        pa.RecordBatch.from_pydict({"shop": pa.array([], pa.string()), "cents": pa.array([], pa.int64())})
        for _ in batches
    ]
    task = Task(log, driver, log.database)

    assert task.run(*batches) == task.run() == {"partition": [0], "rows": [0]}
    assert log.rows("SELECT unique_id, rows FROM onlyonce_private.units") == [("shop/per_shop/1/0/per_shop/0", 0)]
    assert task.table() == Counter()


def test_empty_batches_between_others_change_nothing(log: Log, driver: Driver) -> None:
    """Spark may hand over any cut."""
    task, empty = Task(log, driver, log.database), shop_rows(3).slice(0, 0)
    task.run(empty, shop_rows(3), empty, shop_rows(2, first=3), empty)

    assert task.table() == task.wanted(shop_rows(5))


def test_twins_of_one_unit_write_once(log: Log, driver: Driver) -> None:
    """The second comes while the first is between two rows, waits in its claim, finds the unit, gives the same
    result."""
    task, results = Task(log, driver, log.database), {}
    with mock.patch.object(pyspark.TaskContext, "get", return_value=Context(0)), Stage(log.url) as stage:

        def rows_of_second() -> Iterator[pa.RecordBatch]:
            yield from [hashed(shop_rows(3), 0), hashed(shop_rows(3, first=3), 0)]

        def rows_of_first() -> Iterator[pa.RecordBatch]:
            yield hashed(shop_rows(3), 0)
            second.submit()
            wait_until(lambda: second.idle(0) or stage.is_blocked(second.session), PATIENCE, "the second attempt")
            yield hashed(shop_rows(3, first=3), 0)

        def attempt(name: str, rows: Callable[[], Iterator[pa.RecordBatch]]) -> Steps:
            def steps(session: str) -> Iterator[None]:
                named = replace(task, database=replace(log.database, name=session))
                given = list(write_unit(named.work())(rows()))
                results[name] = pa.Table.from_batches(given).to_pydict()
                yield

            return steps

        second = stage.enter("B", attempt("B", rows_of_second))
        first = stage.enter("A", attempt("A", rows_of_first))
        first.submit()
        for one in (first, second):
            one.finish()

    assert [first.error, second.error] == [None, None]
    assert results["A"] == results["B"] == {"partition": [0], "rows": [6]}
    assert task.table() == task.wanted(shop_rows(6))


def test_partitions_of_a_batch_are_units_of_their_own(log: Log, driver: Driver) -> None:
    """Each is there once, with its own rows."""
    task = Task(log, driver, log.database)
    for partition in (0, 1, 0, 2, 1):
        replace(task, partition=partition).run(shop_rows(2, first=10 * partition))

    assert task.table() == task.wanted(*[shop_rows(2, first=10 * p) for p in range(3)])
    units = log.multiset("SELECT partition, rows, kind FROM onlyonce_private.units")
    assert units == Counter([(0, 2, "data"), (1, 2, "data"), (2, 2, "data")])


def test_rows_of_another_partition_stop_the_unit(log: Log, driver: Driver) -> None:
    """When Spark has moved rows between tasks nothing is committed, not even what came before them."""
    task = Task(log, driver, log.database)
    with pytest.raises(InvariantBroken, match=r"has rows of the partitions \[1\]"):
        task.consume(iter([hashed(shop_rows(2), 0), hashed(shop_rows(2, first=2), 1)]))

    assert task.table() == Counter()
    assert log.rows("SELECT * FROM onlyonce_private.units") == []


@pytest.mark.parametrize("write", ["append", "upsert"])
def test_an_error_of_the_rows_is_told_as_it_is(log: Log, driver: Driver, write: str) -> None:
    """What breaks while COPY reads is no fault of the database: it is not Retryable, and nothing was written."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield hashed(shop_rows(2), 0)
        raise ZeroDivisionError("of the user's own function")

    task = Task(log, driver, log.database, write, () if write == "append" else ("shop",))
    with pytest.raises(ZeroDivisionError, match="of the user's own function"):
        task.consume(rows())

    assert task.table() == Counter()
    assert log.rows("SELECT * FROM onlyonce_private.units") == []


def test_two_rows_with_the_same_keys_stop_an_upsert(log: Log, driver: Driver) -> None:
    """Which of them would stay is nobody's guess."""
    task = Task(log, driver, log.database, "upsert", ("shop",))
    with pytest.raises(InvariantBroken, match=r"two rows have the same keys \(shop\)") as stopped:
        task.run(pa.RecordBatch.from_pylist([{"shop": "a", "cents": 1}, {"shop": "a", "cents": 2}]))

    assert "group by all of them" in stopped.value.hint
    assert task.table() == Counter()
    assert log.rows("SELECT * FROM onlyonce_private.units") == []


@pytest.mark.parametrize(
    "write, rows, cause",
    [
        ("upsert", [{"shop": None, "cents": 1}], "null value in column"),
        ("increment", [{"shop": None, "cents": 1}], "null value in column"),
        ("append", [{"shop": "nul \x00 sign", "cents": 1}], "0x00"),
    ],
    ids=["null key", "null key of a sum", "NUL sign"],
)
def test_rows_that_the_table_cannot_hold_are_refused_with_the_cause(
    log: Log, driver: Driver, write: str, rows: list[dict[str, Any]], cause: str
) -> None:
    """By one of our own errors, which names the unit and what PostgreSQL said, and nothing of the unit is written."""
    columns = "shop text PRIMARY KEY, cents bigint"
    task = Task(log, driver, log.database, write, () if write == "append" else ("shop",), columns=columns)
    with pytest.raises(Refused, match=cause) as refusal:
        task.run(shop_rows(3), pa.RecordBatch.from_pylist(rows, schema=shop_rows(1).schema))

    assert "shop/per_shop/1/0/per_shop/0" in refusal.value.what
    assert "\n" not in refusal.value.what
    assert task.table() == Counter()
    assert log.rows("SELECT * FROM onlyonce_private.units") == []


def test_a_task_of_an_overtaken_driver_writes_nothing(log: Log, driver: Driver) -> None:
    """Superseded, also where the newer driver has not written the unit yet."""
    task = Task(log, driver, log.database)
    newer = log.restart(driver)
    with pytest.raises(Superseded):
        task.run(shop_rows(3))
    between = task.table()
    replace(task, driver=newer).run(shop_rows(3))

    assert between == Counter()
    assert log.rows("SELECT epoch FROM onlyonce_private.units") == [(newer.epoch,)]
    assert task.table() == task.wanted(shop_rows(3))


@pytest.mark.parametrize("size", [1, 7, 8192, -1])
def test_the_stream_to_copy_is_the_same_in_pieces_of_any_size(size: int) -> None:
    """What COPY reads, whatever it asks for at a time: no byte lost or doubled at a border."""
    batches = [shop_rows(5), shop_rows(0), shop_rows(300, first=5)]
    stream = _Csv(batches[0], iter(batches[1:]))
    pieces = [*iter(lambda: stream.read(size), b"")]

    assert b"".join(pieces) == b"".join(f'"shop {n}","{n}"\n'.encode() for n in range(305))
    assert size < 0 or all(len(piece) <= size for piece in pieces)
