"""One run of one pipeline: its session, its data, its queries under their epochs, and the checkpoints that they work
on.

`RunContext` is what a run works with; `run_query` runs one query to its end. `WorkingCopy` is for a checkpoint in a
store: docs/specification/object-store.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from threading import Condition
from typing import Any
from uuid import UUID

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.declaration import declared_at
from onlyonce.api.pipeline import Pipeline
from onlyonce.api.target_identity import targets
from onlyonce.commitlog import incarnations
from onlyonce.commitlog.drivers import DriverClock
from onlyonce.commitlog.dropping import Drops
from onlyonce.commitlog.incarnations import Declarations, Declared, Driver, Incarnations
from onlyonce.commitlog.removals import Removals
from onlyonce.commitlog.sources import Arrivals
from onlyonce.commitlog.units import Authorities
from onlyonce.core import batch, errors, stored_names
from onlyonce.core.batch import EXACTLY_ONCE, Corrections
from onlyonce.core.changes import Change, NeedsName
from onlyonce.core.errors import OnlyonceError, Refused, Retryable
from onlyonce.core.locations import Location
from onlyonce.core.runs import first_cause
from onlyonce.core.stored_names import FIRST_WINDOW
from onlyonce.database.connect import Database
from onlyonce.engine import temporary
from onlyonce.engine.failures import OTHER_DRIVER, PLANNED, translate
from onlyonce.engine.state import cluster_cores
from onlyonce.engine.worker import GONE
from onlyonce.failpoints import passing
from onlyonce.lookups.seen import NOTHING, Seen
from onlyonce.sources import all_sources
from onlyonce.sources.manifest import Readings
from onlyonce.sources.source_kafka import Bounds
from onlyonce.tables import checkpoint, stores
from onlyonce.tables.commit import Own

KEPT = 100
"""Batches whose files stay, as Spark keeps them."""
AT_ONCE = 10
"""How many batches' files leave the store in one request, each time this number of batches has ended. The next start
removes what a kill has left behind."""
KINDS = ("offsets", "commits")


def check_declarations(database: Database, pipeline: Pipeline, instance: str) -> list[Change]:
    """Raise Refused, before a run starts Spark, if a query can't continue as it is declared now.

    Return the changes with which they continue. Also raise Refused if the pipeline would write to a target of an
    unfinished drop.
    """
    Drops(database).refuse_left(instance, targets(pipeline, instance))
    found: list[Change] = []
    stopped: list[Refused] = []
    for query in pipeline.queries():
        if live := Incarnations(database).live(instance, query):
            now = Declared.of(pipeline, instance, query)
            try:
                found += Declarations(database).check(live, now)
            except Refused as error:
                error.what = f"{_changed_at(pipeline, query, error.what)}{error.what}"
                stopped.append(error)
    if stopped:  # a new incarnation of one query is of no use while another query needs another name
        raise next((error for error in stopped if isinstance(error, NeedsName)), stopped[0])
    return found


def _changed_at(pipeline: Pipeline, query: str, what: str) -> str:
    """Return where an option or function is written that has changed: its name is the first word of an error."""
    option = what.split()[0]
    if query == "receive":
        return declared_at(pipeline, option)
    output = pipeline.output(query)
    if option == "function" and (at := errors.origin_of_function(declarations.functions(output)[0])):
        return f"{at}: "
    return declared_at(output, option)


def working_copy_session(spark: SparkSession) -> SparkSession:
    """Return a session like the run's for a stream that works on a copy: the run's own writes checkpoints as only
    stores can."""
    found = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    found.conf.set(stores.CHECKPOINTS, stores.ON_DISK)
    return found


@contextmanager
def working_copy_of(folder: Location) -> Iterator[WorkingCopy | None]:
    """Yield a copy of the checkpoint at a folder, for as long as the context.

    Yield None for a checkpoint on a disk, on which Spark works itself.
    """
    if isinstance(folder, Path):
        yield None
        return
    with tempfile.TemporaryDirectory(dir=temporary.of_driver(), prefix="checkpoint-") as path:
        yield WorkingCopy(folder, Path(path))


@dataclass
class WorkingCopy:
    """The copy at `path` of the checkpoint at `folder`, for a query without state whose data is in a store.

    Spark asks a store four times for each file of a checkpoint whether it exists, each time in two requests, before it
    puts it. Without state a checkpoint is two files for each batch, `offsets/<n>` and `commits/<n>`. So Spark works on
    a folder of this machine with the last of these files. `WorkingCopy` puts each file into the store in one request,
    as Spark has written it. The store has the checkpoint; the copy is made again at each start, for this driver only.

    - `offsets/<n>` is put on condition that there is none, before the batch begins in the log: a replay by any driver
      finds the plan that the batch row rests on.
    - `commits/<n>` is put after the batch has ended, and before the offsets of the next one. A driver that is killed
      before has left the log one batch ahead, as it may be (docs/specification/object-store.md).

    Only the last KEPT batches are kept, and up to AT_ONCE more for a while.
    """

    folder: Location
    path: Path
    _put: int = -1

    @property
    def url(self) -> str:
        """Return the path as a URL, since Spark's own file system may be another."""
        return f"file://{self.path}"

    def fill(self) -> None:
        """Make it what Spark reads at a start: the last two offsets, and the last commit.

        What is older than a checkpoint keeps is deleted from the store.
        """
        stores.of(self.path).clear(self.path)
        store = stores.of(self.folder)
        there = {
            kind: sorted(int(name) for name in store.names(self.folder / kind) if name.isdigit()) for kind in KINDS
        }
        self._put = max(there["commits"], default=-1)
        self._take("metadata")
        for number in there["offsets"]:
            if number >= self._put - 1:
                self._take(f"offsets/{number}")
        if self._put >= 0:
            self._take(f"commits/{self._put}")
        for kind, numbers in there.items():
            for number in numbers:
                if number <= self._put - KEPT:
                    store.delete(self.folder / kind / str(number))

    def planned(self, batch_id: int) -> None:
        """Put the plan of a batch, before it begins in the log.

        Raise Retryable if another driver has put another plan.
        """
        self.ended()
        name = f"offsets/{batch_id}"
        if not stores.of(self.folder).put_new(self.folder / name, self._written(name)):
            raise Retryable(
                f"{PLANNED} {batch_id} of {self.folder}",
                data="nothing of the batch has begun here",
                hint="run the same command again; the epoch decides which driver continues",
            )
        if batch_id % AT_ONCE == 0 and batch_id >= KEPT:
            old = range(max(batch_id - KEPT - AT_ONCE + 1, 0), batch_id - KEPT + 1)
            stores.of(self.folder).delete_all(self.folder, [f"{kind}/{number}" for kind in KINDS for number in old])

    def ended(self) -> None:
        """Put Spark's word that a batch has ended, if the store does not have it yet."""
        last = checkpoint.last(self.path, "commits")
        if last > self._put:
            stores.of(self.folder).put(self.folder / f"commits/{last}", self._written(f"commits/{last}"))
            self._put = last

    def _take(self, name: str) -> None:
        stores.of(self.path).put(self.path / name, stores.of(self.folder).read(self.folder / name))

    def _written(self, name: str) -> bytes:
        return stores.of(self.path).read(self.path / name)


# One streaming query of an incarnation.


log = structlog.get_logger()

RESTARTS = 3
"""How often in a row, without a batch between, a query is started again after a fenced driver wrote into its
checkpoint."""

LOOK_SECONDS = 1.0
"""How often a running query is polled: whether it must end, and what Spark reports."""

WHAT_IS_THERE: Mapping[str, Any] = {"availableNow": True}
"""The trigger of a query that processes all input that is available now, and ends (Spark: available now)."""

ONE_BATCH: Mapping[str, Any] = {"processingTime": "36500 days"}
"""The trigger of a query that processes one batch, and ends before Spark plans another: its second trigger would be
in a hundred years."""


@dataclass(frozen=True)
class Query:
    """A query that this driver may run: its incarnation, checkpoint folder, and database under its name.

    copy      the copy that Spark works on instead of that folder
    running   the streaming queries of the run, by incarnation: this one too while it runs
    """

    driver: Driver
    folder: Location
    database: Database
    start_from: dict[str, Any]
    between_batches: Callable[[], None] = lambda: None
    trigger: Mapping[str, Any] = field(default_factory=lambda: WHAT_IS_THERE)
    copy: WorkingCopy | None = None
    running: dict[str, StreamingQuery] = field(default_factory=dict)

    @property
    def written(self) -> Location:
        """Return where Spark writes its checkpoint: the folder itself, or a copy of it."""
        return self.copy.path if self.copy else self.folder

    @property
    def incarnation(self) -> str:
        """Return the incarnation's name."""
        return self.driver.incarnation

    @property
    def first_window(self) -> int | None:
        """Return where the windows of this incarnation begin, in microseconds, if earlier ones differ in
        declaration.
        """
        return self.start_from.get(FIRST_WINDOW)

    @property
    def log(self) -> Any:
        """Return a logger whose lines have the incarnation and epoch."""
        return log.bind(incarnation=self.driver.incarnation, epoch=self.driver.epoch)


OnBatch = Callable[[DataFrame, int], None]
Look = Callable[[StreamingQuery], None]


def run_query(query: Query, frame: DataFrame, mode: str, on_batch: OnBatch, look: Look = lambda _: None) -> None:
    """Run a query to its end: of the available input, or, if its trigger does not end by itself, of the run.

    Raise our own error if one is the cause, or the error by which the run was asked to stop between two batches. To
    Spark this is a failed batch; in the log the batch has not begun.

    `look` is called before each batch, at intervals, and at the end; what it raises ends the query between two batches.

    A fenced driver may still write into the checkpoint and so stop the live driver, and a live driver removes a fenced
    driver's blocks. As long as our epoch is the highest the query starts again, a bounded number of times in a row.
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
        Incarnations(query.database).check_epoch(query.incarnation, query.driver.epoch)
        checkpoint.sweep(query.folder)
        query.log.warning("another driver changed the checkpoint; this driver is the newest, so its query restarts")


class _Started:
    """A query from one start to its end.

    `failures` are in the order in which they were found: the first one is the cause.
    """

    def __init__(self, query: Query, on_batch: OnBatch, look: Look) -> None:
        self.failures: list[BaseException] = []
        self.batches = 0
        self._query, self._on_batch, self._look = query, on_batch, look
        self._running: StreamingQuery | None = None
        self._broken_off = False  # by us: Spark then reports the same error again

    def run(self, frame: DataFrame, mode: str) -> Exception | None:
        """Start the query and wait for its end; return Spark's error if it failed."""
        if self._query.copy:
            self._query.copy.fill()
        writer = frame.writeStream.queryName(self._query.incarnation).outputMode(mode)  # type: ignore[arg-type]
        writer = writer.option(
            "checkpointLocation", self._query.copy.url if self._query.copy else str(self._query.folder)
        ).trigger(**self._query.trigger)
        self._running = running = writer.foreachBatch(self._batch).start()
        self._query.running[self._query.incarnation] = running
        try:
            return self._to_end(running)
        finally:
            del self._query.running[self._query.incarnation]

    def _to_end(self, running: StreamingQuery) -> Exception | None:
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
            # Worse than any error that ended it, and no reason to start again.
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
        # The current batch is left to end. A batch that would begin after this check ends the query by itself.
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


# What one run works with.


CUTTING = (
    "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled", "spark.sql.files.maxPartitionBytes",
    "spark.default.parallelism", "spark.master",
)  # fmt: skip
"""The Spark settings that move rows between partitions; each batch row keeps them."""


@dataclass
class CommittedBatches:
    """The number of batches that receive has committed, and whether more may come. Another thread waits for either."""

    number: int = 0
    ended: bool = False
    _changed: Condition = field(default_factory=Condition)

    def add(self) -> None:
        """Count a batch that is committed."""
        with self._changed:
            self.number += 1
            self._changed.notify_all()

    def end(self) -> None:
        """Say that no batch comes any more."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def wait_beyond(self, number: int) -> None:
        """Wait for more batches than this number, or for the end."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended or self.number > number)

    def wait_for_end(self, seconds: float) -> None:
        """Wait for the end, but no longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended, seconds)


@dataclass
class RunContext:
    """One run of one pipeline, on its stream or bounded. `instance` names its incarnations, data and targets.

    between_batches   called when a batch would begin; what it raises ends the run there, with nothing of it written
    trigger           of its queries, as Spark takes it
    receiving         held by a batch of receive and by a close, so that neither falls into the other; notified at their
                      end
    committed         the batches that receive has committed in this run
    seen              the lookups that functions get, at the versions of the current batch
    looked_at         when the driver last began to poll for new input
    refused           output with a query of its own -> why its table can't take its rows
    skipped           the folders below an inbox that its listings have skipped
    running           its streaming queries that run now, by incarnation. Spark lists those of one session only, and a
                      query on a working copy has a session of its own
    """

    spark: SparkSession
    pipeline: Pipeline
    instance: str
    run_id: str
    database: Database
    max_files: int | None = None
    between_batches: Callable[[], None] = lambda: None
    bounds: Bounds = field(default_factory=Bounds)
    trigger: Mapping[str, Any] = field(default_factory=lambda: WHAT_IS_THERE)
    receiving: Condition = field(default_factory=Condition)
    committed: CommittedBatches = field(default_factory=CommittedBatches)
    seen: Seen = NOTHING
    looked_at: datetime | None = None
    refused: Mapping[str, OnlyonceError] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    running: dict[str, StreamingQuery] = field(default_factory=dict)
    _open: dict[str, Query] = field(default_factory=dict)
    _clock: DriverClock | None = None
    _appended: Own | None = None
    _readings: Readings = field(default_factory=dict)

    @property
    def bounded(self) -> bool:
        """Return whether this is a bounded run, in which nothing is late and the targets are its own."""
        return self.instance != self.pipeline.name

    @property
    def mode(self) -> str:
        """Return the mode in which a batch begins. A bounded run is always exactly once."""
        return EXACTLY_ONCE if self.bounded else self.pipeline.mode

    @cached_property
    def platform(self) -> UUID | None:
        """Return the id of the platform's database."""
        return Authorities(self.database).identity()

    @property
    def folder(self) -> Location:
        """Return the place of the instance's own data."""
        return settings.data_location(self.instance)

    @property
    def events(self) -> Location:
        """Return the table `events`."""
        return self.folder / stored_names.EVENTS_FOLDER

    def appended(self) -> Own:
        """Return `events` as it is now, for this run to append to it.

        It reads what was added to the table's log since the last call.
        """
        self._appended = self._appended.look() if self._appended else Own(self.events)
        return self._appended

    @property
    def blocks(self) -> Path | None:
        """Return the folder of rows on their way to their task.

        Return None if no disk is shared, on a cluster with data in a store: then the rows go by Spark's exchange.
        """
        shared = isinstance(self.folder, Path) or self.spark.sparkContext.master.startswith("local")
        return settings.blocks_dir(self.instance) if shared else None

    @cached_property
    def corrected(self) -> Corrections:
        """Return the corrected arrivals of the input. No driver is running while they change."""
        return Arrivals(self.database).corrected(self.instance)

    def check_clock(self) -> None:
        """Raise Refused if the driver's clock can't give an ingestion time: it is far from PostgreSQL's."""
        self._clock = self._clock or DriverClock(self.database)
        self._clock.check()

    def source(self) -> all_sources.Source:
        """Return the source of the pipeline, by the manifest of this instance."""
        return all_sources.source_of(
            self.pipeline,
            self.instance,
            self.max_files,
            self.bounds if self.bounded else None,
            self._readings,
            self.skipped,
        )

    def open_query(self, name: str) -> Query:
        """Find or register the incarnation, check that the checkpoint is its own, bump the epoch; once a run.

        docs/specification/incarnation.md.

        Raise the refusal of an output's table, before anything of it is begun. Raise Refused if the checkpoint was
        lost, swapped or restored, or if the incarnation can't continue under this declaration (`onlyonce plan`). Raise
        it also if a first incarnation would begin at removed records.
        """
        if name in self._open:
            return self._open[name]
        if name in self.refused:
            raise self.refused[name]
        incarnation = Removals(self.database).register(self.instance, name)
        passing("start-registered")
        folder = self.folder / stored_names.CHECKPOINTS_FOLDER / name / str(incarnation.ordinal)
        begun = Incarnations(self.database).last_batches(incarnation.incarnation)[0]
        checkpoint.prepare(folder, incarnation.incarnation, incarnation.checkpoint_id, begun)
        incarnations.refuse_damaged(incarnation)
        Declarations(self.database).go_on(incarnation, self.declared(name))
        passing("start-before-bump")
        driver = Incarnations(self.database).bump(incarnation, self.run_id)
        passing("start-after-bump")
        committed = Incarnations(self.database).last_batches(incarnation.incarnation)[1]
        checkpoint.compare(folder, incarnation.incarnation, committed)
        checkpoint.sweep(folder)
        self._open[name] = Query(
            driver,
            folder,
            driver.session(self.database),
            incarnation.start_from or {},
            self.between_batches,
            self.trigger,
            running=self.running,
        )
        return self._open[name]

    def incarnations(self) -> dict[str, str]:
        """Return the incarnation of each query that is open, by the query's name."""
        return {name: query.incarnation for name, query in list(self._open.items())}

    def settings(self) -> dict[str, str]:
        """Return the present Spark settings that cut data."""
        conf = self.spark.conf
        return {name: str(conf.get(name, None)) for name in CUTTING}

    def partitions_of(self, size: int) -> int:
        """Return in how many partitions a new batch of about this size is cut.

        A replay takes the number from its batch row.
        """
        if self.pipeline.partitions:
            return self.pipeline.partitions
        return batch.partitions_of_batch(
            size, self._asked_cores or self.spark.sparkContext.defaultParallelism, settings.spark().most_partitions
        )

    @cached_property
    def _asked_cores(self) -> int | None:
        """Return the cores that a cluster is asked for, since executors come and go.

        It is read once: Python reads each setting of Spark's by a call.
        """
        return cluster_cores(dict(self.spark.sparkContext.getConf().getAll()))

    def declaration_hash(self, query: str) -> str:
        """Return the fingerprint of what decides a query's results."""
        return declarations.fingerprint(self.pipeline, query)

    def declared(self, query: str) -> Declared:
        """Return what a query is declared as, to be kept in the log."""
        return Declared.of(self.pipeline, self.instance, query)

    def kept_declaration(self, query: str) -> str:
        """Return the fingerprint of a query's declaration, which is kept in the log.

        A backfill makes windows under it.
        """
        now = self.declared(query)
        Declarations(self.database).keep(now)
        return now.hash

    def target_suffix(self) -> str:
        """Return what a bounded run adds to the name of a target, so that it has targets of its own."""
        return self.instance.removeprefix(self.pipeline.name)
