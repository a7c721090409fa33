"""An upsert that keeps the newest row of each key and removes rows, whatever comes first, comes again or is killed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Any

import psycopg2
import psycopg2.extensions
import pyarrow as pa
import pytest
from psycopg2 import sql
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from onlyonce.api.pipeline import Output, Postgres
from onlyonce.commitlog.dropping import Drops
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.units import UnitId
from onlyonce.database.connect import run
from onlyonce.sinks.postgres import postgres_rows, postgres_unit
from onlyonce.sinks.postgres.postgres_table import SinkTable
from onlyonce.testing.suite import hash_of, hashed, run_unit
from tests.contract.conftest import Log
from tests.support import changes_of_a_table as source
from tests.support.changes_of_a_table import Change

SCHEMA = pa.schema([("key", pa.string()), ("position", pa.int64()), ("value", pa.int64()), ("gone", pa.bool_())])
KINDS = {"key": StringType(), "position": LongType(), "value": LongType(), "gone": BooleanType()}
PARTITIONS = 2
POINTS = (
    "postgres-unit-after-claim",
    "postgres-unit-after-delete",
    "postgres-unit-after-rows",
    "postgres-unit-before-commit",
    "postgres-unit-after-commit",
)
SINK = Postgres(table="results.customers", write="upsert", keys="key", sequence_by="position", delete_when="gone")


class Killed(Exception):
    """Stands for a kill: a transaction that has not committed is gone."""


class Table:
    """The table of an output that is written by units, as the tasks of a batch do it."""

    def __init__(self, log: Log, sink: Postgres = SINK, kinds: dict[str, Any] = KINDS) -> None:
        self.log, self.sink, self.driver = log, sink, log.start("shop", "customers")
        self.schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
        output = Output(name="customers", transform="a:b", sink=sink)
        SinkTable(log.database, output, sink, "").prepare(self.schema)

    def write(self, batch: int, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
        """All units of a batch; those that are there are compared."""
        for partition in range(PARTITIONS):
            mine = [row for row in rows if hash_of({"key": row["key"]}) % PARTITIONS == partition]
            brought = [hashed(pa.RecordBatch.from_pylist(mine, schema), partition)] if mine else []
            run_unit(postgres_unit.write_unit(self._work(batch)), iter(brought), partition)

    def killed(self, batch: int, rows: list[dict[str, Any]], point: str, schema: pa.Schema = SCHEMA) -> None:
        """The same, ended where it first passes a point; it may pass none."""

        def kill(name: str) -> None:
            if name == point:
                raise Killed

        with pytest.MonkeyPatch.context() as killing, suppress(Killed):
            for module in (postgres_unit, postgres_rows):
                killing.setattr(module, "passing", kill)
            self.write(batch, rows, schema)

    def rows(self) -> set[tuple[Any, ...]]:
        """(key, position, value) of each row."""
        found = self.log.rows("SELECT key, position, value FROM results.customers")
        assert len(found) == len(set(found))
        return set(found)

    def deleted(self) -> set[tuple[Any, ...]]:
        """(key, position) of what was deleted."""
        return set(self.log.rows("SELECT key, position FROM results.customers_deleted"))

    def _work(self, batch: int) -> postgres_unit.Work:
        driver: Driver = self.driver
        unit = UnitId(driver.incarnation, batch, "customers", 0)
        return postgres_unit.Work(
            self.log.database, unit, driver.epoch, "results", "customers", self.sink.write, self.sink.keys, (),
            sequence_by=self.sink.sequence_by, delete_when=self.sink.delete_when,
        )  # fmt: skip


def rows_of(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """The newest of each key in a batch, as `results.measured` gives them to a sink."""
    newest = source.newest(changes).values()
    return [{"key": one.key, "position": one.position, "value": one.value, "gone": one.deleted} for one in newest]


def row(key: str, position: int | None, value: int = 0, *, gone: bool | None = False) -> dict[str, Any]:
    return {"key": key, "position": position, "value": value, "gone": gone}


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_the_table_is_what_the_source_has_and_what_it_has_deleted_is_remembered(log: Log, seed: int) -> None:
    """Changes that come again and out of order, in any batches, with kills at each point and batches written again."""
    chance = random.Random(seed)
    table = Table(log)
    changes = source.made(chance, keys=9, changes=120)
    seen: list[Change] = []
    for number, batch in enumerate(source.cut(chance, source.delivered(chance, changes))):
        rows = rows_of(batch)
        if chance.random() < 0.5:
            table.killed(number, rows, chance.choice(POINTS))
        for _ in range(chance.choice([1, 1, 2])):
            table.write(number, rows)
        seen += batch
        assert table.rows() == source.table(seen)
        assert table.deleted() == {(one.key, one.position) for one in source.newest(seen).values() if one.deleted}
    assert table.rows() == source.table(changes)


def test_an_older_change_does_not_bring_a_deleted_row_back_and_a_newer_one_does(log: Log) -> None:
    """The key and its position stay as long as it is deleted, and no longer."""
    table = Table(log)
    table.write(0, [row("a", 1)])
    table.write(1, [row("a", 5, gone=True)])
    table.write(2, [row("a", 4, 40)])
    assert (table.rows(), table.deleted()) == (set(), {("a", 5)})
    table.write(3, [row("a", 6, 60)])
    table.write(4, [row("a", 3, gone=True)])
    assert (table.rows(), table.deleted()) == ({("a", 6, 60)}, set())


def test_a_delete_of_a_key_that_never_came_is_remembered_too(log: Log) -> None:
    """What it deletes may come behind it."""
    table = Table(log)
    table.write(0, [row("a", 5, gone=True)])
    table.write(1, [row("a", 4, 40)])
    assert (table.rows(), table.deleted()) == (set(), {("a", 5)})


def test_texts_are_in_the_order_of_their_bytes_in_any_database(log: Log) -> None:
    """In the order of a language 'B' is behind 'a'; Spark, which puts the rows of a batch in order, goes by bytes.

    The statement says so itself, since a server may have no language."""
    kinds = {"key": StringType(), "position": StringType(), "value": LongType()}
    sink = Postgres(table="results.customers", write="upsert", keys="key", sequence_by="position")
    table = Table(log, sink, kinds)
    schema = pa.schema([("key", pa.string()), ("position", pa.string()), ("value", pa.int64())])
    for number, position in enumerate(["a", "C", "b", "B"]):
        table.write(number, [{"key": "k", "position": position, "value": number}], schema)
    assert table.rows() == {("k", "b", 2)}
    said = run(
        log.database,
        lambda conn: postgres_rows.newer_rows(("position",), schema).as_string(conn.connection.cursor()),  # type: ignore[arg-type]
    )
    assert said.count('"position" COLLATE "C"') == 2


def test_a_stored_row_with_a_null_in_its_order_is_the_older_of_equal_ones(log: Log) -> None:
    """As of a table that was there before the column: nulls come first, as in Spark, and a larger first column wins."""
    kinds = {"key": StringType(), "position": LongType(), "value": LongType()}
    sink = Postgres(table="results.customers", write="upsert", keys="key", sequence_by=("position", "value"))
    table = Table(log, sink, kinds)
    log.rows("INSERT INTO results.customers VALUES ('equal', 5, NULL), ('larger', 5, NULL), ('none', NULL, 1)")
    schema = pa.schema([("key", pa.string()), ("position", pa.int64()), ("value", pa.int64())])
    arriving = {"equal": 5, "larger": 4, "none": 4}
    table.write(0, [{"key": key, "position": position, "value": 0} for key, position in arriving.items()], schema)
    assert table.rows() == {("equal", 5, 0), ("larger", 5, None), ("none", 4, 0)}


def test_a_table_of_that_name_that_is_somebody_elses_is_neither_written_nor_dropped(log: Log) -> None:
    """What the platform has made goes with the table next to it it."""
    log.rows("CREATE SCHEMA results")
    log.rows("CREATE TABLE results.customers_deleted (key text)")
    with pytest.raises(Refused, match=r"there is a table results\.customers_deleted, which is not the platform's"):
        Table(log)
    Drops(log.database).drop_table(SINK.table)
    assert log.rows("SELECT count(*) FROM results.customers_deleted") == [(0,)]
    log.rows("DROP TABLE results.customers_deleted")
    Table(log)
    Drops(log.database).drop_table(SINK.table)
    assert log.rows("SELECT count(*) FROM pg_tables WHERE schemaname = 'results'") == [(0,)]


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ([row("a", None)], Refused, 'null value in column "position"'),
        ([row("a", 1, gone=None)], Refused, 'null value in column "gone"'),
        ([row("a", 1, 10), row("a", 1, 11)], InvariantBroken, "two rows have the same keys"),
        ([row("a", 1, 10), row("a", 1, 10, gone=True)], InvariantBroken, "two rows have the same keys"),
    ],
)
def test_rows_of_which_none_is_the_newest_are_refused_and_change_nothing(
    log: Log, rows: list[dict[str, Any]], error: type[Exception], said: str
) -> None:
    """A position that is missing, and two rows of a key at one position, also where one of them is a delete."""
    table = Table(log)
    table.write(0, [row("a", 0, 1)])
    with pytest.raises(error, match=said):
        table.write(1, rows)
    assert (table.rows(), table.deleted()) == ({("a", 0, 1)}, set())


class Planned(psycopg2.extensions.cursor):
    """A cursor that notes how many rows its statements visit."""

    visited = 0

    def execute(self, statement: Any, values: Any = None) -> None:
        """Plan and run the statement first, then run it for its answer."""
        super().execute(sql.SQL("EXPLAIN (ANALYZE, FORMAT JSON) {}").format(statement), values)
        [[[told]]] = self.fetchall()
        self.visited += _rows_of(told["Plan"])
        super().execute(statement, values)


def _rows_of(plan: dict[str, Any]) -> int:
    seen = sum(value for name, value in plan.items() if name == "Actual Rows" or name.startswith("Rows Removed"))
    return int(seen * plan["Actual Loops"]) + sum(map(_rows_of, plan.get("Plans", [])))


@pytest.mark.parametrize("region", ["'north'", "NULL", "nullif(mod(n, 2), 0)::text"], ids=["keys", "null keys", "both"])
def test_dropped_rows_are_counted_without_comparing_all_pairs(log: Log, region: str) -> None:
    """Of 1,000 arriving rows 998 are in the table, one has the key of an older row, and one has a new key."""
    rows = f"SELECT {region} AS region, n::text AS shop, 5 AS position FROM generate_series(%s, %s) AS n"
    changed = "SET position = 6 WHERE shop = '7'"
    types = pa.schema([("region", pa.string()), ("shop", pa.string()), ("position", pa.int32())])
    with closing(psycopg2.connect(log.url.replace("+psycopg2", ""))) as session:
        with session.cursor() as cursor:
            cursor.execute(f"CREATE TABLE stock AS {rows}", (1, 20_000))
            cursor.execute("CREATE UNIQUE INDEX ON stock (region, shop) NULLS NOT DISTINCT")
            cursor.execute("ANALYZE stock")
            cursor.execute(f"CREATE TEMP TABLE arriving AS {rows}", (1, 999))
            cursor.execute(f"UPDATE arriving {changed}")
            cursor.execute("INSERT INTO arriving SELECT region, 'new', 5 FROM arriving WHERE shop = '8'")
        with session.cursor(cursor_factory=Planned) as planned:
            unwritten = postgres_rows.unwritten_keys(
                planned, sql.Identifier("stock"), ("region", "shop"), ("position",), None, types
            )
    assert unwritten == 2
    assert planned.visited < 10 * 21_000
