"""Writes the rows of one output as `outputs` does, batch by batch, by the driver or by tasks; and what a sink's file
gives the suite."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from onlyonce import failpoints, settings
from onlyonce.api.pipeline import Files, Output, Pipeline, Sink
from onlyonce.commitlog.batches import Batches
from onlyonce.context import Query, RunContext
from onlyonce.engine.failures import translate
from onlyonce.outputs import query as outputs_query
from onlyonce.outputs import results
from onlyonce.outputs.results import Versions
from onlyonce.sinks.targets import writer_for
from tests.contract.conftest import Log, plan_of

NUMBERS = count()
NOTHING_RECEIVED = Versions(-1, -1)
WAYS = {"driver": str(4 << 20), "tasks": "0"}
"""Who writes a batch: the driver, or Spark's tasks. A replay may go the other way."""


@dataclass
class Stage:
    """One output of a pipeline, and the driver that writes it."""

    log: Log
    spark: Any
    folder: Path
    name: str = field(default_factory=lambda: f"kept{next(NUMBERS)}")

    def __post_init__(self) -> None:
        self.driver = self.log.start(self.name, self.name)

    def restart(self) -> None:
        """Start the next driver, which fences the one before."""
        self.driver = self.log.restart(self.driver)

    def frame(self, rows: pa.Table) -> DataFrame:
        """Return rows as a function's result."""
        made: DataFrame = self.spark.createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))
        return made

    def pipeline(self, sink: Sink) -> Pipeline:
        """Return a pipeline with this output."""
        return Pipeline(
            name=self.name, source=Files(), schema="id string, at timestamp", record_id=("id",), event_time="at",
            outputs=(Output(name=self.name, transform="a:b", sink=sink),),
        )  # fmt: skip

    def write(
        self,
        sink: Sink,
        batch: int,
        rows: pa.Table,
        way: str = "driver",
        point: str | None = None,
        kills: Sequence[str] = (),
    ) -> None:
        """Write a batch; with a `point` the driver fails there.

        `kills`: fail-points at which a task ends, each once.
        """
        pipeline, frame = self.pipeline(sink), self.frame(rows)
        session = self.driver.session(self.log.database)
        context = RunContext(self.spark, pipeline, self.name, "run", session)
        query = Query(self.driver, Path(), session, {})
        writer = writer_for(context, query, pipeline.outputs[0])
        with settings.within({"ONLYONCE_IN_DRIVER_BYTES": WAYS[way]}), failing(point), killing(self.spark, kills):
            writer.prepare(frame.schema)
            plan = plan_of(self.driver, batch, partitions=1)
            begun = Batches(session).begin(self.driver, self.name, plan, None)
            try:
                with ExitStack() as held:
                    step = results.Step(pipeline.outputs[0], writer, adds_no_rows=True, staged=False)
                    outputs_query.commit(context, query, [step], begun, NOTHING_RECEIVED, frame, held)
            except Exception as error:
                raise translate(error) from error


@contextmanager
def failing(point: str | None) -> Any:
    """Inside, the driver fails at a fail-point."""

    def strike(name: str, action: str) -> None:
        raise failpoints.FailPoint(name)

    points = {point: (1, "raise")} if point else {}
    counted = mock.patch.multiple(failpoints, _strike=strike, _count=lambda *_: 1, _POINTS=points)
    with counted, settings.within({"ONLYONCE_FAILPOINT_DIR": "."}):
        yield


@contextmanager
def killing(spark: Any, points: Sequence[str]) -> Any:
    """Inside, a task ends at the first pass of each of these fail-points, and Spark tries it again. Each was passed.

    The variables are the same for all sinks, so all tests have one daemon of workers: they differ in the counters,
    which are empty at the start.
    """
    if not points:
        yield
        return
    passes = Path(tempfile.gettempdir()) / f"onlyonce-passes-{os.getpid()}"
    passes.mkdir(exist_ok=True)
    for file in passes.iterdir():
        file.unlink()
    armed = {
        "ONLYONCE_FAILPOINTS": ",".join(f"{point}:1:{action}" for point, action in ENDS.items()),
        "ONLYONCE_FAILPOINT_DIR": str(passes),
    }
    workers = spark.sparkContext.environment
    workers.update(armed)
    try:
        yield
    finally:
        for name in armed:
            del workers[name]
    assert {file.name for file in passes.iterdir()} == {*points}


OF_DATABASES = ("postgres-unit-after-rows", "postgres-unit-before-commit", "postgres-unit-after-commit")
OF_FILES = ("files-unit-mid-file", "files-unit-before-commit", "files-unit-after-commit")
OF_DELTA, OF_ICEBERG = ("delta-before-file", "delta-after-file"), ("iceberg-before-file", "iceberg-after-file")
ENDS = dict.fromkeys([*OF_DATABASES, *OF_FILES, *OF_DELTA, *OF_ICEBERG], "raise") | dict.fromkeys(
    ["postgres-unit-before-commit", "files-unit-before-commit", "delta-after-file", "iceberg-after-file"],
    "kill-process",
)
"""How a task ends at a fail-point: with what it has written and not committed its process is killed by SIGKILL; else it
fails, which keeps the process."""

ROWS = pa.table({"id": ["a", "𠮷"], "n": pa.array([1, 2], pa.int64())})
"""What a team's table is given."""
LONGER = pa.table({"id": ["a", "abc   "], "n": pa.array([1, 2], pa.int64())})
"""The same with a string that is longer than three characters, by spaces at its end: a database would cut them without
an error."""
TOO_LONG = (
    r"column id is 'abc   ' \(string\), and its sink can't hold more than 3 characters: it is \w+( \w+)?\(3\) "
    r"in the table. The row is 'id=abc   "
)


@dataclass(frozen=True)
class Team:
    """A table that a team has made, and what becomes of `rows` there: `row` is added to each of them, or they are
    `refused` with these words.

    `has`: the cases of the suite's table that it has; without any, its own name is its case.
    """

    made: str
    row: dict[str, Any] | None = None
    refused: str = ""
    has: tuple[str, ...] = ()
    rows: pa.Table = field(default_factory=lambda: ROWS)


HELD_FROM = datetime(2026, 3, 2, 1, 2, 3, 4, tzinfo=UTC)
"""When each version of a history begins in the suite."""


def as_versions(rows: pa.Table) -> pa.Table:
    """Return rows with the column that a history needs."""
    return rows.append_column("valid_from", pa.array([HELD_FROM] * rows.num_rows, pa.timestamp("us", "UTC")))


def held_now(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a history in which no version has ended. A row of another writer says nothing of it."""
    assert {(row.pop("valid_to"), row.pop("is_current")) for row in rows} <= {(None, True), (None, 1), (None, None)}
    return rows


class Kept:
    """One sink as the suite sees it: where its rows are, and who reads them."""

    point: ClassVar[str]
    """The fail-point of the driver after it has written a batch and before the batch ends."""
    cannot: ClassVar[dict[str, list[Any]]] = {}
    """Values that the sink can't hold, by their column. Each is refused with its column, its record and itself."""
    no_columns: ClassVar[tuple[str, ...]] = ()
    """Columns of types that the sink has none for: refused before any row."""
    slow_refusals: ClassVar[bool] = False
    """Whether tasks find what the sink refuses, and so try it several times."""
    ways: ClassVar[tuple[str, ...]] = ("driver", "tasks")
    theirs: ClassVar[int] = 1
    """How many rows of another writer a reader of the sink sees."""
    kills: ClassVar[tuple[str, ...]] = ()
    """Fail-points of a task, at most three: Spark tries a task four times."""
    teams: ClassVar[dict[str, Team]] = {}
    """The tables of teams that a sink meets, by what they have."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    @property
    def sink(self) -> Sink:
        """As it is declared."""
        raise NotImplementedError

    def write(
        self, batch: int, rows: pa.Table, way: str = "driver", point: str | None = None, kills: Sequence[str] = ()
    ) -> None:
        """Write a batch; see `Stage.write`."""
        self.stage.write(self.sink, batch, rows, way, point, kills)

    def read(self) -> list[dict[str, Any]]:
        """Read all rows by a reader that shares no code with the platform."""
        raise NotImplementedError

    def make(self, statements: str) -> None:
        """Make a team's table; in the statements its name is theirs_table."""
        raise NotImplementedError

    def wanted(self, kind: pa.DataType, value: Any) -> Any:
        """Return what that reader gives for a value."""
        return value

    def other_writer(self) -> Callable[[], None] | None:
        """Return what another writer does to the table between two attempts; None if the sink is the platform's
        alone."""
        return None

    def close(self) -> None:
        """Give back what the sink took."""
