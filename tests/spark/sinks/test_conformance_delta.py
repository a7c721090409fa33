"""The conformance suite over the Delta sink, by the writer that the platform uses, in one Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.commitlog.batches import Batches
from onlyonce.context import Query, RunContext
from onlyonce.core.batch import Outcome
from onlyonce.core.locations import on_disk
from onlyonce.database.connect import run
from onlyonce.outputs import results
from onlyonce.sinks.delta.sink_delta import DeltaWriter
from onlyonce.testing import suite
from onlyonce.testing.suite import CASES, PARTITIONS, Case, Guarantee, OfLog, Row, Rows, UnderTest, pieces
from tests.contract.conformance_threads import Threads
from tests.contract.conftest import Log, plan_of, shared  # noqa: F401 - a fixture

pytestmark = pytest.mark.spark
NAME = "we\"ird'ключ🛒`"
QUICK = {suite.a_unit_written_twice_is_there_once, suite.a_fenced_driver_writes_nothing}


@dataclass
class DeltaAppend(OfLog):
    """A table; a batch is one reference unit and one Delta commit."""

    spark: ClassVar[Any]
    sink: ClassVar[Delta] = Delta()
    mode: ClassVar[str] = "exactly_once"
    huge = 1_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self._writer().prepare(self._frame([], 1).schema)

    def _writer(self) -> DeltaWriter:
        output = Output(name=self.output, transform="a:b", sink=self.sink)
        pipeline = Pipeline(
            name="shop", source=Files(), schema="id string, at timestamp", record_id=("id",), event_time="at",
            outputs=(output,), mode=self.mode,  # type: ignore[arg-type]
        )  # fmt: skip
        session = self.driver.session(self.log.database)
        context = RunContext(self.spark, pipeline, "shop", "run", session)
        return DeltaWriter(context, Query(self.driver, Path(), session, {}), output)

    def _frame(self, rows: Rows, cut: int) -> Any:
        ordered = [row for part in pieces(rows, cut) for row in part]
        values = [(row["id"], row["key"], row["n"], row["text"]) for row in ordered]
        frame = self.spark.createDataFrame(values, "id string, key string, n long, text string")
        return frame.repartition(cut).select("id", "key", "n", F.col("text").alias(self.text))

    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """As `outputs` does it: begin, measure, write, end."""
        session = self.driver.session(self.log.database)
        plan = plan_of(self.driver, batch, partitions=PARTITIONS, mode=self.mode)
        begun = Batches(session).begin(self.driver, "shop", plan, None)
        found = results.measured(self._frame(rows, cut))
        writer = self._writer()
        writer.write(begun, found.rows, found.content)

        def end(connection: Any) -> None:
            writer.end(connection, begun)
            if begun.committed:
                return
            Batches(connection).end(self.driver, begun, Outcome(in_time=0, late=0))

        run(session, end)

    def seen(self) -> list[Row]:
        """The table."""
        found = DeltaTable(str(self._writer().path)).to_pyarrow_table().to_pylist()
        return [{"text" if name == self.text else name: value for name, value in row.items()} for row in found]

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """A file is where the table was."""
        return {"missing": self._in_the_way}

    @contextmanager
    def _in_the_way(self) -> Iterator[None]:
        path = on_disk(self._writer().path)
        aside = path.rename(path.with_name("aside"))
        path.write_text("I am no table")
        yield
        path.unlink()
        aside.rename(path)


class DeltaUpsert(DeltaAppend):
    """A row replaces the one of its keys."""

    sink = Delta(write="upsert", keys=("key", "id"))


class DeltaPlain(DeltaAppend):
    """Of a pipeline that is at least once: Delta's own transaction still keeps a replay out."""

    guarantee = Guarantee.AT_LEAST_ONCE
    mode = "at_least_once"


def _marked() -> list[Any]:
    return [
        pytest.param(sink, case, id=f"{sink.__name__}-{case.__name__}",
                     marks=() if sink is DeltaAppend and case in QUICK else pytest.mark.slow)
        for sink in (DeltaAppend, DeltaUpsert, DeltaPlain)
        for case in CASES
        if not (sink is DeltaPlain and case is suite.a_fenced_driver_writes_nothing)  # its rows may land: 4
    ]  # fmt: skip


@pytest.mark.parametrize(("sink", "case"), _marked())
def test_delta_does_what_it_promises(
    sink: type[DeltaAppend], case: Case, shared: Log, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    """Every case of the suite; what is a kill elsewhere is an exception here."""
    monkeypatch.setattr(DeltaAppend, "spark", spark, raising=False)
    odd = case is suite.odd_names_mean_only_themselves
    under_test: UnderTest = sink(shared, NAME if odd else "text")
    case(under_test, Threads(shared, tmp_path, monkeypatch))
