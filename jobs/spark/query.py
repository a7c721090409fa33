"""One streaming query under its lineage: run it to the end of what is there, and know why it stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from jobs.commitlog.connect import Database, run
from jobs.commitlog.lineages import Driver, check_epoch
from jobs.spark import checkpoint
from jobs.spark.failures import OTHER_DRIVER, translate

log = structlog.get_logger()

RESTARTS = 3
"""How often a query is started again after a fenced driver wrote into its checkpoint."""


@dataclass(frozen=True)
class Query:
    """A query that this driver may run: its lineage, checkpoint folder, and database under its name."""

    driver: Driver
    folder: Path
    database: Database
    start_from: dict[str, Any]
    between_batches: Callable[[], None] = lambda: None

    @property
    def lineage(self) -> str:
        """The lineage's name."""
        return self.driver.lineage

    @property
    def first_window(self) -> int | None:
        """Where the windows of this life begin, in microseconds, if those before are of another declaration."""
        return self.start_from.get("first_window")

    @property
    def log(self) -> Any:
        """A logger whose lines say for which lineage and epoch they are."""
        return log.bind(lineage=self.driver.lineage, epoch=self.driver.epoch)


OnBatch = Callable[[DataFrame, int], None]


def drain_query(query: Query, frame: DataFrame, mode: str, on_batch: OnBatch) -> StreamingQuery:
    """Process all that is there now, then stop. Raises our own error where one is the cause, or what the run was asked
    to stop with between two batches: to Spark that is a batch that failed, to the log one that has not begun.

    A fenced driver may still write into the checkpoint and so stop the live one (experiments, A8): as long
    as our epoch is the highest the query starts again, a bounded number of times.
    """
    for attempt in range(RESTARTS + 1):
        failures: list[BaseException] = []
        started = _start(query, frame, mode, _keeping(query, on_batch, failures))
        try:
            started.awaitTermination()
            return started
        except Exception as error:
            cause = translate(failures[0] if failures else error)
            if not any(mark in str(error) for mark in OTHER_DRIVER) or attempt == RESTARTS:
                raise cause from error
            run(query.database, lambda conn: check_epoch(conn, query.lineage, query.driver.epoch))
            checkpoint.sweep(query.folder)
            query.log.warning("another driver wrote into the checkpoint; still ours, starting again")
    raise AssertionError("the loop ends by a return or an error")


def _start(query: Query, frame: DataFrame, mode: str, on_batch: OnBatch) -> StreamingQuery:
    writer = frame.writeStream.queryName(query.lineage).outputMode(mode)  # type: ignore[arg-type]
    writer = writer.option("checkpointLocation", str(query.folder)).trigger(availableNow=True)
    return writer.foreachBatch(on_batch).start()


def _keeping(query: Query, on_batch: OnBatch, failures: list[BaseException]) -> OnBatch:
    # Spark hands the driver only the text of what a batch function raised.
    def guarded(frame: DataFrame, batch_id: int) -> None:
        try:
            query.between_batches()
            on_batch(frame, batch_id)
        except BaseException as error:
            failures.append(error)
            raise

    return guarded
