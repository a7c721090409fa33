"""A team's own PostgreSQL table as a sink: what is computed, checked, encoded or dropped there.

Rows are read back with psycopg2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from onlyonce.api.pipeline import Output, Postgres
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed
from onlyonce.database.connect import forget_connections, run
from onlyonce.database.migrate import migrate
from onlyonce.sinks.postgres.postgres_rows import WINDOW
from onlyonce.sinks.postgres.postgres_table import SinkTable
from tests.contract.conftest import Log
from tests.contract.sinks.test_newest_rows import KINDS, Table
from tests.contract.sinks.test_newest_rows import SCHEMA as NEWEST
from tests.contract.task import Task, shop_rows
from tests.support.shared_server import SharedServer

COMPUTED = (
    "id bigint GENERATED ALWAYS AS IDENTITY, number serial NOT NULL, made_by text NOT NULL DEFAULT 'them', "
    "shop text NOT NULL UNIQUE, cents bigint NOT NULL, double_cents bigint NOT NULL GENERATED ALWAYS AS (cents * "
    "2) STORED"
)
SUMS = Postgres(table="results.shop", write="increment", keys="shop")
OUTPUT_OF_SUMS = Output(
    name="per_shop", transform="a:b", window=Fixed(timedelta(hours=1)), on_backfill="correct", sink=SUMS
)
WRITES = ("append", "upsert", "increment")
DROPS = """
CREATE FUNCTION results.judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
CREATE TRIGGER judge BEFORE INSERT ON results.shop FOR EACH ROW EXECUTE FUNCTION results.judge()
"""


@pytest.fixture
def driver(log: Log) -> Driver:
    """A driver of an output."""
    return log.start("shop", "per_shop")


@pytest.fixture
def encoded(server: SharedServer, request: pytest.FixtureRequest) -> Iterator[Log]:
    """A log in a database of another encoding than UTF-8."""
    log = Log(server, server.new_encoded(getattr(request, "param", "LATIN1")))
    migrate(log.url)
    yield log
    forget_connections()
    server.drop(log.name)


def keys_of(write: str) -> tuple[str, ...]:
    return () if write == "append" else ("shop",)


def table_of(log: Log, write: str = "upsert") -> SinkTable:
    sink = Postgres(table="results.shop", write=write, keys=keys_of(write))  # type: ignore[arg-type]
    return SinkTable(log.database, Output(name="per_shop", transform="a:b", sink=sink), sink, "")


def schema_of(*columns: str) -> StructType:
    return StructType([StructField(name, StringType() if name == "shop" else LongType()) for name in columns])


@pytest.mark.parametrize("write", WRITES)
def test_columns_that_the_function_lacks_get_their_own_values(log: Log, driver: Driver, write: str) -> None:
    """An identity, a serial, a default and a generated column, all NOT NULL, are computed by PostgreSQL."""
    task = Task(log, driver, log.database, write, keys_of(write), columns=COMPUTED)
    table_of(log, write).prepare(schema_of("shop", "cents"))

    task.run(shop_rows(3))

    assert log.multiset(
        "SELECT id IS NOT NULL, number IS NOT NULL, made_by, shop, cents, double_cents FROM results.shop"
    ) == Counter((True, True, "them", f"shop {n}", n, 2 * n) for n in range(3))


def test_a_column_that_a_trigger_fills_is_not_missing(log: Log, driver: Driver) -> None:
    """PostgreSQL looks for nulls after the triggers before a row."""
    columns = "shop text, cents bigint, theirs text NOT NULL"
    task = Task(log, driver, log.database, "append", columns=columns)
    log.rows(
        "CREATE FUNCTION results.fill() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN NEW.theirs := 'filled'; RETURN NEW; END$$; "
        "CREATE TRIGGER fill BEFORE INSERT ON results.shop FOR EACH ROW EXECUTE FUNCTION results.fill()"
    )
    table_of(log, "append").prepare(schema_of("shop", "cents"))

    task.run(shop_rows(2))

    assert log.multiset("SELECT shop, theirs FROM results.shop") == Counter(
        [("shop 0", "filled"), ("shop 1", "filled")]
    )


@pytest.mark.parametrize("write", ["append", "upsert"])
def test_strings_arrive_in_a_database_that_is_not_utf8(encoded: Log, write: str) -> None:
    """Each character that the encoding has is stored as itself; one that it lacks is refused, and nothing is
    written."""
    task = Task(encoded, encoded.start("shop", "per_shop"), encoded.database, write, keys_of(write))
    task.run(pa.RecordBatch.from_pylist([{"shop": "café Ãé", "cents": 1}]))
    second = Task(encoded, task.driver, encoded.database, write, keys_of(write), batch=1)
    with pytest.raises(Refused, match="no equivalent"):
        second.run(pa.RecordBatch.from_pylist([{"shop": "漢字", "cents": 2}]))

    assert encoded.multiset("SELECT shop, length(shop) FROM results.shop") == Counter([("café Ãé", 7)])


@pytest.mark.parametrize(
    ("encoded", "name"), [("LATIN1", "größe"), ("EUC_JP", "漢字"), ("SQL_ASCII", "größe")], indirect=["encoded"]
)
def test_names_of_columns_arrive_in_a_database_that_is_not_utf8(encoded: Log, name: str) -> None:
    """psycopg2 quotes a name as UTF-8, whatever the encoding of the session."""
    rows = pa.RecordBatch.from_pylist([{"shop": "é" if name == "größe" else "字", name: 1}])
    table_of(encoded, "increment").prepare(schema_of("shop", name))
    for batch in range(2):
        Task(encoded, encoded.start("shop", "per_shop"), encoded.database, "increment", ("shop",), batch=batch).run(
            rows
        )

    found = run(
        encoded.database, lambda connection: connection.exec_driver_sql("SELECT * FROM results.shop").mappings().all()
    )
    assert [dict(row) for row in found] == [{"shop": rows["shop"][0].as_py(), name: 2}]


@pytest.mark.parametrize(
    "setup, cause",
    [
        (DROPS.format(body="RAISE 'of a code' USING ERRCODE = 'AB123';"), "of a code"),
        (DROPS.format(body="RAISE 'at the end';").replace("CREATE TRIGGER judge BEFORE INSERT ON results.shop", "CREATE CONSTRAINT TRIGGER judge AFTER INSERT ON results.shop DEFERRABLE INITIALLY DEFERRED"), "at the end"),
        (DROPS.format(body="IF NEW.cents = 1 THEN RETURN NULL; END IF; RETURN NEW;"), "drops 1 of its rows"),
    ],
    ids=["own code", "deferred trigger", "dropped row"],
)  # fmt: skip
@pytest.mark.parametrize("write", WRITES)
def test_what_a_table_rejects_is_refused_at_once(log: Log, driver: Driver, write: str, setup: str, cause: str) -> None:
    """Also at COMMIT: the error is an answer, so it is not retried, and no unit says that the rows are there."""
    task = Task(log, driver, log.database, write, keys_of(write))
    log.rows(setup)

    with pytest.raises(Refused, match=cause):
        task.run(shop_rows(3))

    assert task.table() == Counter()
    assert log.rows("SELECT * FROM onlyonce_private.units") == []


@pytest.mark.parametrize(
    "setup, columns, cause",
    [
        ("CREATE TABLE results.shop (shop text, cents bigint)", ("shop", "cents"), "no unique index over the keys"),
        ("CREATE TABLE results.shop (shop text, cents bigint, UNIQUE (shop, cents))", ("shop", "cents"), "no unique index over the keys"),
        ("CREATE TABLE results.shop (shop text, cents bigint); CREATE UNIQUE INDEX ON results.shop (shop) " "WHERE cents > 0", ("shop", "cents"), "no unique index"),
        ("CREATE TABLE results.shop (shop text PRIMARY KEY DEFERRABLE, cents bigint)", ("shop", "cents"), "DEFERRABLE"),
        ("CREATE TABLE results.shop (shop text UNIQUE, cents bigint)", ("shop", "cents"), "takes two nulls for two keys"),
        ("CREATE TABLE results.base (shop text PRIMARY KEY, cents bigint); CREATE VIEW results.shop AS TABLE " "results.base", ("shop", "cents"), "is a view"),
        ("CREATE TABLE results.shop (shop text PRIMARY KEY, cents bigint GENERATED ALWAYS AS (1) STORED)", ("shop", "cents"), "only PostgreSQL gives"),
        ("CREATE TABLE results.shop (shop text PRIMARY KEY, cents bigint GENERATED ALWAYS AS IDENTITY)", ("shop", "cents"), "only PostgreSQL gives"),
        ("CREATE TABLE results.shop (shop text PRIMARY KEY, cents bigint, theirs text NOT NULL)", ("shop", "cents"), r"results\.shop requires the column theirs \(NOT NULL\)"),
        ("CREATE DOMAIN results.word text NOT NULL; CREATE TABLE results.shop (shop text PRIMARY KEY, theirs results.word)", ("shop",), "requires the column theirs"),
        ("SELECT", ("shop", "ctid"), "a column ctid of its own"),
        ("SELECT", ("shop", "xmin"), "a column xmin of its own"),
        ("SELECT", ("shop", "é" * 32), "é has 64 bytes, and the database takes 63"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("when", ["prepare", "check"])
def test_a_table_that_cannot_take_an_upsert_is_refused_before_any_row(
    log: Log, when: str, setup: str, columns: tuple[str, ...], cause: str
) -> None:
    """By prepare and by check, with the table as it was."""
    log.rows(f"CREATE SCHEMA results; {setup}")
    there = log.multiset(
        "SELECT attrelid::regclass::text, attname FROM pg_attribute WHERE attrelid = to_regclass('results.shop')"
    )

    with pytest.raises(Refused, match=cause):
        getattr(table_of(log), when)(schema_of(*columns))

    assert (
        log.multiset(
            "SELECT attrelid::regclass::text, attname FROM pg_attribute WHERE attrelid = to_regclass('results.shop')"
        )
        == there
    )


@pytest.mark.parametrize(
    "of_key, of_index", [("COLLATE results.any_case", ""), ("", "COLLATE results.any_case")], ids=["column", "index"]
)
def test_a_collation_that_merges_keys_is_refused(log: Log, of_key: str, of_index: str) -> None:
    """A server without ICU can't make such a collation, so its catalog is changed: the rule asks the catalog."""
    log.rows("CREATE SCHEMA results; CREATE COLLATION results.any_case (provider = libc, locale = 'C')")
    with closing(psycopg2.connect(log.server.url("admin", log.name).replace("+psycopg2", ""))) as session, session:
        session.cursor().execute("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'any_case'")
    log.rows(
        f"CREATE TABLE results.shop (shop text {of_key} NOT NULL, cents bigint); CREATE UNIQUE INDEX ON "
        f"results.shop (shop {of_index})"
    )

    with pytest.raises(Refused, match="different strings are one key"):
        table_of(log).check(schema_of("shop", "cents"))


@pytest.mark.parametrize(
    "unique", ["shop text PRIMARY KEY", "shop text NOT NULL UNIQUE", "shop text UNIQUE NULLS NOT DISTINCT"]
)
def test_a_unique_index_that_finds_each_key_is_enough(log: Log, unique: str) -> None:
    """A primary key, NOT NULL keys, or nulls that are one key."""
    log.rows(f"CREATE SCHEMA results; CREATE TABLE results.shop ({unique}, cents bigint)")

    table_of(log).prepare(schema_of("shop", "cents"))
    table_of(log).check(schema_of("shop", "cents"))


GIVE_WAY = """
CREATE FUNCTION results.judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER judge BEFORE {event} ON results.{table} FOR EACH ROW EXECUTE FUNCTION results.judge()
"""
SECOND: dict[str, dict[str, Any]] = {
    "INSERT": {"key": "b"},
    "UPDATE": {"key": "a", "value": 2},
    "DELETE": {"key": "a", "gone": True},
}
IN_ORDER: dict[str, dict[str, Any]] = {
    "upsert": {"write": "upsert"}, "upsert with deletes": {"write": "upsert", "delete_when": "gone"}, "history": {"write": "history"},
    "history with deletes": {"write": "history", "delete_when": "gone"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("sink", "event"),
    [(sink, event) for sink in IN_ORDER for event in SECOND if event != "DELETE" or sink == "upsert with deletes"],
)
def test_a_row_in_order_that_a_trigger_drops_is_refused(log: Log, sink: str, event: str) -> None:
    """Older rows are left out of these tables by design, so the reported counts alone prove nothing."""
    kinds = KINDS | {"valid_from": TimestampType()}
    schema = NEWEST.append(pa.field("valid_from", pa.timestamp("us", "UTC")))
    table = Table(log, Postgres(table="results.customers", keys="key", sequence_by="position", **IN_ORDER[sink]), kinds)
    first: dict[str, Any] = {
        "key": "a",
        "position": 1,
        "value": 1,
        "gone": False,
        "valid_from": datetime(2026, 1, 1, tzinfo=UTC),
    }
    older = first | {"position": 0, "value": 0}
    table.write(0, [first], schema)
    table.write(1, [older], schema)
    before = log.multiset("SELECT to_jsonb(c)::text FROM results.customers c")
    log.rows(GIVE_WAY.format(event=event, table="customers"))

    with pytest.raises(Refused, match=r"a trigger of results\.customers drops"):
        table.write(2, [first | SECOND[event] | {"position": 2}], schema)

    assert log.multiset("SELECT to_jsonb(c)::text FROM results.customers c") == before


@pytest.mark.parametrize("event", ["INSERT", "UPDATE"])
def test_a_sum_by_window_that_a_trigger_drops_is_refused(log: Log, driver: Driver, event: str) -> None:
    """The unit would note rows that are in no sum."""
    table = SinkTable(log.database, OUTPUT_OF_SUMS, SUMS, "")
    table.prepare(
        StructType([StructField(name, TimestampType()) for name in WINDOW]).add("shop", "string").add("cents", "long")
    )
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def add(batch: int, shop: str) -> None:
        rows = [{"window_start": start, "window_end": start + timedelta(hours=1), "shop": shop, "cents": 1}]
        Task(log, driver, log.database, "increment", ("shop",), batch=batch, by_window=True).run(
            pa.RecordBatch.from_pylist(rows)
        )

    add(0, "a")
    log.rows(GIVE_WAY.format(event=event, table="shop"))
    with pytest.raises(Refused, match=r"a trigger of results\.shop drops"):
        add(1, "b" if event == "INSERT" else "a")

    assert (
        log.rows("SELECT shop, cents FROM results.shop")
        == log.rows("SELECT shop, cents FROM results.shop_by_window")
        == [("a", 1)]
    )


@pytest.mark.parametrize("event", ["INSERT", "UPDATE"])
def test_a_row_of_a_later_window_that_a_trigger_drops_is_refused(log: Log, driver: Driver, event: str) -> None:
    """An upsert whose keys don't say the window leaves rows of earlier windows out, and no others."""
    columns = "window_start timestamptz, window_end timestamptz, shop text UNIQUE NULLS NOT DISTINCT, cents bigint"
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def put(batch: int, shop: str, hour: int) -> None:
        at = start + timedelta(hours=hour)
        rows = [{"window_start": at, "window_end": at + timedelta(hours=1), "shop": shop, "cents": batch}]
        Task(log, driver, log.database, "upsert", ("shop",), columns=columns, batch=batch).run(
            pa.RecordBatch.from_pylist(rows)
        )

    put(0, "a", 1)
    put(1, "a", 0)
    log.rows(GIVE_WAY.format(event=event, table="shop"))
    with pytest.raises(Refused, match=r"a trigger of results\.shop drops"):
        put(2, "b" if event == "INSERT" else "a", 2)

    assert log.rows("SELECT shop, cents FROM results.shop") == [("a", 0)]


def test_rows_of_a_window_that_a_trigger_keeps_are_refused(log: Log, driver: Driver) -> None:
    """A backfill would write its rows next to the old ones."""
    columns = "window_start timestamptz, shop text, cents bigint"
    start = datetime(2026, 1, 1, tzinfo=UTC)
    row = pa.RecordBatch.from_pylist([{"window_start": start, "shop": "a", "cents": 1}])
    Task(log, driver, log.database, columns=columns).run(row)
    log.rows(GIVE_WAY.format(event="DELETE", table="shop"))
    span = (start.isoformat(), (start + timedelta(hours=1)).isoformat())
    with pytest.raises(Refused, match=r"a trigger of results\.shop drops"):
        Task(log, driver, log.database, "replace", batch=1, windows=span).run(row)

    assert log.rows("SELECT shop, cents FROM results.shop") == [("a", 1)]


def test_a_new_key_alone_that_a_trigger_drops_is_refused(log: Log, driver: Driver) -> None:
    """An upsert of keys alone changes no row, so a count of what was written proves nothing."""
    put = partial(
        Task,
        log,
        driver,
        log.database,
        "upsert",
        ("shop",),
        columns="shop text UNIQUE NULLS NOT DISTINCT, cents bigint",
    )
    keys = [pa.RecordBatch.from_pylist([{"shop": shop}]) for shop in ("a", "b")]
    put().run(keys[0])
    put(batch=1).run(keys[0])
    log.rows(GIVE_WAY.format(event="INSERT", table="shop"))
    with pytest.raises(Refused, match=r"a trigger of results\.shop drops"):
        put(batch=2).run(*keys)

    assert log.rows("SELECT shop FROM results.shop") == [("a",)]


def test_a_trigger_that_keeps_rows_from_a_new_computation_is_refused(log: Log) -> None:
    """As one that only marks rows as deleted: the rows that are computed again would be there a second time."""
    table = table_of(log)
    log.rows(
        "CREATE SCHEMA IF NOT EXISTS results; CREATE TABLE results.shop (shop text NOT NULL UNIQUE, cents "
        "bigint); INSERT INTO results.shop VALUES ('a', 1), ('b', 2)"
    )
    log.rows(DROPS.format(body="RETURN CASE OLD.shop WHEN 'a' THEN OLD END;").replace("BEFORE INSERT", "BEFORE DELETE"))
    with pytest.raises(Refused, match="keeps 1 rows that are to be deleted"):
        run(log.database, table.clear)
    assert log.rows("SELECT shop FROM results.shop ORDER BY 1") == [("a",), ("b",)]
    log.rows("DROP TRIGGER judge ON results.shop")
    run(log.database, table.clear)
    assert log.rows("SELECT shop FROM results.shop") == []
