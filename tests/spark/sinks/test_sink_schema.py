"""What a table does when the rows of its output change: a column more, one fewer, one of another type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce.api.pipeline import Delta, Files, MySQL, Output, Pipeline, Postgres, Sink
from onlyonce.commitlog.batches import Batches
from onlyonce.context import Query, RunContext
from onlyonce.core.batch import Outcome
from onlyonce.core.errors import Refused
from onlyonce.database.connect import run
from onlyonce.outputs import results
from onlyonce.sinks.mysql.sink_mysql import database_of
from onlyonce.sinks.targets import SinkWriter, writer_for
from tests.contract.conftest import Log, plan_of, shared  # noqa: F401 - a fixture

pytestmark = pytest.mark.spark

SINKS: dict[str, Callable[[str], Sink]] = {
    "delta": lambda table: Delta(),
    "delta upsert": lambda table: Delta(write="upsert", keys=("id",)),
    "postgres": lambda table: Postgres(table=table),
    "postgres upsert": lambda table: Postgres(table=table, write="upsert", keys=("id",)),
    "postgres increment": lambda table: Postgres(table=table, write="increment", keys=("id",)),
}
NUMBERS = count()
Rows = list[dict[str, Any]]


class Table:
    """The table of one output, written batch by batch as `outputs` does it; each `write` is another run of the job."""

    def __init__(self, log: Log, spark: Any, name: str, sink: Callable[[str], Sink]) -> None:
        self._log, self._spark, self._batch = log, spark, 0
        self._output = Output(name=name, transform="a:b", sink=sink(f"results.{name}"))
        self._driver = log.start("shop", name)

    def write(self, schema: str, *rows: tuple[Any, ...]) -> None:
        """One batch of rows with these columns."""
        frame = self._spark.createDataFrame(rows, schema)
        writer = self._writer()
        writer.prepare(frame.schema)
        plan = plan_of(self._driver, self._batch, partitions=1)
        begun = Batches(self._log.database).begin(self._driver, "shop", plan, None)
        found = results.measured(frame, self._output.sink)
        writer.write(begun, found.rows, found.content)

        def end(connection: Any) -> None:
            writer.end(connection, begun)
            Batches(connection).end(self._driver, begun, Outcome(in_time=0, late=0))

        run(self._log.database, end)
        self._batch += 1

    def rows(self) -> Rows:
        """The whole table in the order of its ids."""
        if isinstance(self._output.sink, Postgres):
            found = [row for (row,) in self._log.rows(f"SELECT to_jsonb(t) FROM {self._output.sink.table} t")]
        elif isinstance(self._output.sink, MySQL):
            table = self._output.sink.table
            there = run(
                database_of(self._output.sink), lambda conn: list(conn.exec_driver_sql(f"SELECT * FROM {table}"))
            )
            found = [dict(row._mapping) for row in there]
        else:
            found = DeltaTable(str(self.path())).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: row["id"])

    def path(self) -> Path:
        """Where its Delta table is."""
        found: Path = self._writer().path  # type: ignore[attr-defined]
        return found

    def _writer(self) -> SinkWriter:
        pipeline = Pipeline(
            name="shop", source=Files(), schema="id string, at timestamp", record_id=("id",), event_time="at",
            outputs=(self._output,),
        )  # fmt: skip
        context = RunContext(self._spark, pipeline, "shop", "run", self._log.database)
        return writer_for(context, Query(self._driver, Path(), self._log.database, {}), self._output)


@pytest.fixture(params=SINKS)
def table(request: pytest.FixtureRequest, shared: Log, spark: Any) -> Table:  # noqa: F811
    """A table of each kind, of this test's own, with one row."""
    name = f"{request.param.replace(' ', '_')}_{next(NUMBERS)}"
    made = Table(shared, spark, name, SINKS[request.param])
    made.write("id string, cents long", ("a", 1))
    return made


def test_an_added_column_is_null_in_the_rows_before_it(table: Table) -> None:
    """Allowed: the table gains the column, and what was there stays."""
    table.write("id string, cents long, weight double", ("b", 2, 0.5))
    assert table.rows() == [{"id": "a", "cents": 1, "weight": None}, {"id": "b", "cents": 2, "weight": 0.5}]


def test_a_column_that_is_not_given_any_more_stays_and_is_null(table: Table) -> None:
    """Allowed: nobody's data is dropped, new rows have nothing there."""
    table.write("id string, cents long, weight double", ("b", 2, 0.5))
    table.write("id string, weight double", ("c", 1.5))
    assert table.rows() == [
        {"id": "a", "cents": 1, "weight": None}, {"id": "b", "cents": 2, "weight": 0.5}, {"id": "c", "cents": None, "weight": 1.5}
    ]  # fmt: skip


def test_a_changed_type_is_refused_by_the_columns_name_and_changes_nothing(table: Table) -> None:
    """Also a narrower type, and where another column is new: rows and columns are as they were, and the old schema goes
    on."""
    for schema in ("id string, cents int", "id string, cents double", "id string, weight double, cents int"):
        with pytest.raises(Refused, match="column cents is") as refused:
            table.write(schema)
        assert "another name" in refused.value.hint
        assert table.rows() == [{"id": "a", "cents": 1}]
    table.write("id string, cents long", ("b", 2))
    assert table.rows() == [{"id": "a", "cents": 1}, {"id": "b", "cents": 2}]


WINDOWED = "id string, window_start timestamp, window_end timestamp, cents long"


def test_an_upsert_without_the_window_among_its_keys_has_one_row_a_key_whatever_its_date(
    shared: Log,  # noqa: F811
    spark: Any,
) -> None:
    """As in PostgreSQL: a row of a later date replaces the one of before.

    So it is in a table by dates, as they were made once, but one that has a key twice is refused, with the way out."""
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    made = {}
    for name in ("delta upsert", "postgres upsert"):
        made[name] = Table(shared, spark, f"{name.replace(' ', '_')}_{next(NUMBERS)}", SINKS[name])
        for number, day in enumerate(days):
            made[name].write(WINDOWED, ("a", day, day, number), *[("b", day, day, 7)][:number])
    kept = [[(row["id"], row["cents"]) for row in table.rows()] for table in made.values()]
    assert kept == [[("a", 2), ("b", 7)]] * 2

    old = Table(shared, spark, f"by_date_{next(NUMBERS)}", SINKS["delta upsert"])
    rows = pa.table({
        "id": ["a"], "window_start": pa.array(days[:1], pa.timestamp("us", "UTC")),
        "window_end": pa.array(days[:1], pa.timestamp("us", "UTC")), "cents": [0], "window_date": [days[0].date()],
    })  # fmt: skip
    write_deltalake(str(old.path()), rows, partition_by=["window_date"])
    old.write(WINDOWED, ("a", days[1], days[1], 1))
    assert [(row["cents"], row["window_date"]) for row in old.rows()] == [(1, days[1].date())]
    write_deltalake(str(old.path()), rows, mode="append")
    with pytest.raises(Refused, match=r"has 2 rows with the keys \{'id': 'a'\}") as refused:
        old.write(WINDOWED, ("a", days[2], days[2], 2))
    assert "leave one row of each key" in refused.value.hint
    assert len(old.rows()) == 2


def test_a_session_default_that_lets_tables_forget_their_transactions_is_refused(shared: Log, spark: Any) -> None:  # noqa: F811
    """A table made under it has no row yet; the mend is named."""
    default = "spark.databricks.delta.properties.defaults.setTransactionRetentionDuration"
    spark.conf.set(default, "interval 1 hours")
    try:
        with pytest.raises(Refused, match="forgets its transactions") as refused:
            Table(shared, spark, f"forgets_{next(NUMBERS)}", SINKS["delta"]).write("id string", ("a",))
    finally:
        spark.conf.unset(default)
    assert default in refused.value.hint
