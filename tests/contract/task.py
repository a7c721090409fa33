"""A task of a Postgres sink without Spark: the product's own function over Arrow batches, with a table to write to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pyarrow as pa
import pyspark

from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.units import UnitId
from onlyonce.database.connect import Database
from onlyonce.sinks.postgres import postgres_unit
from onlyonce.testing.suite import Context, hashed
from tests.contract.conftest import Log


@dataclass
class Task:
    """A partition of one batch of an output; `run` is one attempt at it."""

    log: Log
    driver: Driver
    database: Database
    write: str = "append"
    keys: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()
    columns: str = ""
    batch: int = 0
    partition: int = 0
    windows: tuple[str, ...] | None = None
    by_window: bool = False
    _made: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        plain = "shop text, cents bigint" + (
            f", UNIQUE NULLS NOT DISTINCT ({', '.join(self.keys)})" if self.keys else ""
        )
        self.log.rows("CREATE SCHEMA IF NOT EXISTS results")
        self.log.rows(f"CREATE TABLE IF NOT EXISTS results.shop ({self.columns or plain})")

    def work(self) -> postgres_unit.Work:
        """What the driver tells the task; its partition is the task's own to know."""
        unit = UnitId(self.driver.incarnation, self.batch, "per_shop", 0)
        return postgres_unit.Work(
            self.database, unit, self.driver.epoch, "results", "shop", self.write, self.keys, self.floats,
            self.windows, self.by_window,
        )  # fmt: skip

    def run(self, *batches: pa.RecordBatch, attempt: int = 0) -> dict[str, list[Any]]:
        """One attempt over these batches, to its end; gives what the driver gets back."""
        return self.consume(iter([hashed(batch, self.partition) for batch in batches]), attempt)

    def consume(self, batches: Iterator[pa.RecordBatch], attempt: int = 0) -> dict[str, list[Any]]:
        """The same over batches that are hashed already and come as they are asked for."""
        context = Context(self.partition, attempt)
        with mock.patch.object(pyspark.TaskContext, "get", return_value=context):
            results = list(postgres_unit.write_unit(self.work())(batches))
        return pa.Table.from_batches(results).to_pydict()

    def table(self) -> Counter[tuple[Any, ...]]:
        """What is in the table."""
        return self.log.multiset("SELECT shop, cents FROM results.shop")

    @staticmethod
    def wanted(*batches: pa.RecordBatch) -> Counter[tuple[Any, ...]]:
        """What must be there when these were appended once."""
        return Counter((row["shop"], row["cents"]) for batch in batches for row in batch.to_pylist())


def shop_rows(count: int, first: int = 0) -> pa.RecordBatch:
    """Rows of a shop's cents, each different."""
    return pa.RecordBatch.from_pylist([{"shop": f"shop {n}", "cents": n} for n in range(first, first + count)])
