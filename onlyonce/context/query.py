"""One streaming query of a lineage: runs it to its end, and tells why it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from onlyonce.commitlog.lineages import Driver, Lineages
from onlyonce.context.working_copy import WorkingCopy
from onlyonce.database.connect import Database
from onlyonce.model.run.long_run import first_cause
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import FIRST_WINDOW
from onlyonce.session.failures import OTHER_DRIVER, translate
from onlyonce.session.worker import GONE
from onlyonce.storage import checkpoint

log = structlog.get_logger()

RESTARTS = 3
"""How often in a row, without a batch between, a query is started again after a fenced driver wrote into its
checkpoint."""

LOOK_SECONDS = 1.0
"""How often a query at work is looked at: whether it is to end, and what Spark tells of it."""

WHAT_IS_THERE: Mapping[str, Any] = {"availableNow": True}
"""The trigger of a query that processes all that is there now, and ends."""

ONE_BATCH: Mapping[str, Any] = {"processingTime": "36500 days"}
"""The trigger of a query that processes one batch, and ends before Spark plans another: its second trigger would be in
a hundred years."""


@dataclass(frozen=True)
class Query:
    """A query that this driver may run: its lineage, checkpoint folder, and database under its name.

    `copy`: where Spark does not work on that folder itself.
    """

    driver: Driver
    folder: Location
    database: Database
    start_from: dict[str, Any]
    between_batches: Callable[[], None] = lambda: None
    trigger: Mapping[str, Any] = field(default_factory=lambda: WHAT_IS_THERE)
    copy: WorkingCopy | None = None

    @property
    def written(self) -> Location:
        """Where Spark writes its checkpoint: the folder itself, or a copy of it."""
        return self.copy.path if self.copy else self.folder

    @property
    def lineage(self) -> str:
        """The lineage's name."""
        return self.driver.lineage

    @property
    def first_window(self) -> int | None:
        """Where the windows of this life begin, in microseconds, if those before are of another declaration."""
        return self.start_from.get(FIRST_WINDOW)

    @property
    def log(self) -> Any:
        """A logger whose lines say for which lineage and epoch they are."""
        return log.bind(lineage=self.driver.lineage, epoch=self.driver.epoch)


OnBatch = Callable[[DataFrame, int], None]
Look = Callable[[StreamingQuery], None]


def drain_query(query: Query, frame: DataFrame, mode: str, on_batch: OnBatch, look: Look = lambda _: None) -> None:
    """Run a query to its end: of what is there now, or, where its trigger has none, when the run is to end.

    Raises our own error where one is the cause, or what the run was asked to stop with between two batches: to Spark
    that is a batch that failed, to the log one that has not begun.

    `look` is called before each batch, now and then, and at the end; what it raises ends the query between two batches.

    A fenced driver may still write into the checkpoint and so stop the live one, and a live one clears away the blocks
    of a fenced one: as long as our epoch is the highest the query starts again, a bounded number of times in a row.
    """
    in_a_row = 0
    while True:
        started = _Started(query, on_batch, look)
        error = started.run(frame, mode)
        if not started.failures:
            return
        in_a_row = 1 if started.batches else in_a_row + 1
        if not any(mark in str(error) for mark in (*OTHER_DRIVER, GONE)) or in_a_row > RESTARTS:
            raise translate(first_cause(started.failures)) from error
        Lineages(query.database).check_epoch(query.lineage, query.driver.epoch)
        checkpoint.sweep(query.folder)
        query.log.warning("another driver was at our files; still ours, starting again")


class _Started:
    """A query from one start to its end.

    `failures` are in the order in which they were found: the first one is the cause.
    """

    def __init__(self, query: Query, on_batch: OnBatch, look: Look) -> None:
        self.failures: list[BaseException] = []
        self.batches = 0
        self._query, self._on_batch, self._look = query, on_batch, look
        self._running: StreamingQuery | None = None
        self._broken_off = False  # by us: what Spark then tells is the same once more

    def run(self, frame: DataFrame, mode: str) -> Exception | None:
        """Start it and wait for its end; gives what Spark says of that, if it failed."""
        if self._query.copy:
            self._query.copy.fill()
        writer = frame.writeStream.queryName(self._query.lineage).outputMode(mode)  # type: ignore[arg-type]
        writer = writer.option(
            "checkpointLocation", self._query.copy.url if self._query.copy else str(self._query.folder)
        ).trigger(**self._query.trigger)
        self._running = running = writer.foreachBatch(self._batch).start()
        told: Exception | None = None
        try:
            while not running.awaitTermination(LOOK_SECONDS):
                self._go_on_or_stop(running)
        except Exception as error:
            told = error
            if not self._broken_off:
                self.failures.append(error)
        try:
            self._look(running)
            self._put_what_ended()
        except Exception as error:
            # Worse than whatever ended it, and no reason to start again.
            self.failures.insert(0, error)
            told = None
        return told

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        # Spark hands the driver only the text of what a batch function raised.
        try:
            if self.failures:
                raise self.failures[0]
            self._query.between_batches()
            if self._running:
                self._look(self._running)
            if self._query.copy:
                self._query.copy.planned(batch_id)
            self._on_batch(frame, batch_id)
        except BaseException as error:
            self.failures.append(error)
            self._broken_off = True
            raise
        self.batches += 1

    def _go_on_or_stop(self, running: StreamingQuery) -> None:
        if not self.failures:
            self._keep_failure(lambda: self._look(running))
            self._keep_failure(self._put_what_ended)
            self._keep_failure(self._query.between_batches)
        # A batch at work is left to end. One that would begin after this look ends the query by itself.
        done = self.failures or (self._query.trigger is ONE_BATCH and self.batches)
        if done and not running.status["isTriggerActive"]:
            running.stop()

    def _put_what_ended(self) -> None:
        if self._query.copy:
            self._query.copy.ended()

    def _keep_failure(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            self.failures.append(error)
