"""What a table does when the rows of its output change: a column more, one fewer, one of another type."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.commitlog import batches
from jobs.commitlog.connect import run
from jobs.model.batch import Outcome
from jobs.model.declare import Delta, Files, Output, Pipeline, Postgres, Sink
from jobs.model.errors import Refused
from jobs.spark import results
from jobs.spark.query import Query
from jobs.spark.run_context import RunContext
from jobs.spark.sinks import SinkWriter, writer_for
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
        begun = run(self._log.database, lambda conn: batches.begin(conn, self._driver, "shop", plan, None))
        found = results.measured(frame)
        writer.write(begun, found.rows, found.content)

        def end(connection: Any) -> None:
            writer.end(connection, begun)
            batches.end(connection, self._driver, begun, Outcome(in_time=0, late=0))

        run(self._log.database, end)
        self._batch += 1

    def rows(self) -> Rows:
        """The whole table in the order of its ids."""
        if isinstance(self._output.sink, Postgres):
            found = [row for (row,) in self._log.rows(f"SELECT to_jsonb(t) FROM {self._output.sink.table} t")]
        else:
            found = DeltaTable(str(self._writer().path)).to_pyarrow_table().to_pylist()  # type: ignore[attr-defined]
        return sorted(found, key=lambda row: row["id"])

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


@pytest.mark.parametrize(
    "schema", ["id string, cents int", "id string, cents double", "id string, weight double, cents int"]
)
def test_a_changed_type_is_refused_by_the_columns_name_and_changes_nothing(table: Table, schema: str) -> None:
    """Also a narrower type, and where another column is new: rows and columns are as they were, and the old schema goes on."""
    with pytest.raises(Refused, match="column cents is") as refused:
        table.write(schema)
    assert "another name" in refused.value.hint
    assert table.rows() == [{"id": "a", "cents": 1}]
    table.write("id string, cents long", ("b", 2))
    assert table.rows() == [{"id": "a", "cents": 1}, {"id": "b", "cents": 2}]
