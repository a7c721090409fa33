"""The interface between receive and a source, the choice of a pipeline's source, and several sources as one.

Every source has a manifest (`manifest`). New input is noted there and cut into batches once. A batch may be read any
number of times, with the same input each time.

If a pipeline has several sources, each has its own manifest below the instance's folder `sources`. The table
`source_batches` has the order of all their batches: for each batch its number there, its source, and its number in that
manifest. Receive streams `source_batches`. So a replay, another driver and a new incarnation read the same batch of the
same source. A look-up in the id catalog also knows which batches came before, from any source. Sources alternate.

If a crash leaves batches that are in a manifest and not in `source_batches`, the next `register` adds them there.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce import settings
from onlyonce.api.messages import Kafka
from onlyonce.api.pipeline import DeltaSource, Pipeline
from onlyonce.commitlog.incarnations import SOURCE, Driver
from onlyonce.core import stored_names
from onlyonce.core.batch import EPOCH, NOTHING, Corrections
from onlyonce.core.errors import Refused, Superseded
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import BATCH_NO, SEEN_AT, SOURCE_BATCH_NO
from onlyonce.engine import session
from onlyonce.failpoints import passing
from onlyonce.sources import delta_log, discovery, manifest, source_files
from onlyonce.sources.discovery import NO_BATCH, Registered
from onlyonce.sources.lines import Lines
from onlyonce.sources.manifest import Reading, Readings, Vouched
from onlyonce.sources.source_files import Inbox
from onlyonce.sources.source_kafka import Bounds, topic_of
from onlyonce.tables import commit
from onlyonce.tables.commit import Own

SCHEMA = stored_names.SOURCE_BATCHES_COLUMNS
# `known`: for each source the number of its last batch in `source_batches`, so the last row alone shows which are new.
LOOKS = 5


@dataclass(frozen=True)
class Several:
    """The sources of an instance by name, and the table `source_batches`."""

    pipeline: Pipeline
    instance: str
    table: Location
    sources: Mapping[str, Any]  # of `sources.Source`, which imports this module

    def register(self, spark: SparkSession, driver: Driver, now: datetime, corrected: Corrections = NOTHING) -> int:
        """Let each source register new input, and give the batches source_batches. Return the number of new entries."""
        commit.make(self.table, session.schema_of(SCHEMA), spark, [], commit.KEEP_ALL)
        added = sum(source.register(spark, driver, now, corrected) for source in self.sources.values())
        for _ in range(LOOKS):
            # Read before `_new`: if another driver adds source batches after that, the transaction's number is taken.
            app_id = stored_names.transaction(self.instance, stored_names.SOURCE_BATCHES_BY)
            number = (commit.version(self.table, app_id) or 0) + 1
            rows = self._new(corrected)
            passing("receive-before-source-batches")
            if not rows or manifest.append(Own(self.table), SCHEMA, rows, driver, number, app_id):
                return added
        raise Superseded(
            f"{self.table}: another driver gives source batches to the same batches, {LOOKS} times in a row",
            data="each batch has one source batch, by whichever driver was first",
            hint="nothing to do while the other one runs",
        )

    def waits(self) -> bool:
        """Return whether `register` would add anything."""
        return not commit.exists(self.table) or any(one.waits() for one in self.sources.values()) or bool(self._new())

    @property
    def manifest(self) -> str:
        """Return the log's name for the table `source_batches`."""
        return manifest.name(self.table)

    def last_batch(self) -> int | None:
        """Return the number of the last source batch; None before the first."""
        return manifest.last_batch(self.table)

    def vouched(self, batch_no: int | None) -> Iterator[Vouched]:
        """See Source. Each row of `source_batches` stands for a batch in the manifest of its source."""
        yield manifest.vouched(self.table, batch_no)
        last = self._last_source_batch() if commit.exists(self.table) else None
        for name, number in (json.loads(last["known"]) if last else {}).items():
            if name in self.sources:
                yield from self.sources[name].vouched(number)

    def records_after(self, batch_no: int | None) -> int:
        """Return about how many records the later batches have."""
        return sum(manifest.after(self.table, batch_no, ["records"])["records"].to_pylist())

    def behind(self, batch_no: int | None) -> Collection[str]:
        """Return the sources with later batches."""
        return set(manifest.after(self.table, batch_no, ["source"])["source"].to_pylist())

    def stream(self, spark: SparkSession, start: int) -> DataFrame:
        """Return the source batches as a stream, one at a time."""
        return manifest.stream(spark, self.table, start)

    def listed(self, spark: SparkSession, batch: DataFrame) -> Taken:
        """Return the batch of the source batch in a batch of the stream."""
        rows = batch.withColumn(SEEN_AT, F.unix_micros(SEEN_AT)).collect()
        if not rows:
            return Taken(None, None, NO_BATCH, datetime.now(EPOCH.tzinfo))
        [source_batch] = rows
        self.pipeline.of_source(source_batch.source)  # raises Refused if the source is not declared any more
        cut = self.sources[source_batch.source].batch(spark, source_batch.source_batch_no)
        return Taken(
            cut, source_batch.source, source_batch.batch_no, EPOCH + timedelta(microseconds=source_batch.seen_at)
        )

    def batch(self, spark: SparkSession, batch_no: int) -> Taken:
        """Return a source batch by its number."""
        return self.listed(spark, manifest.batch(spark, self.table, batch_no))

    def _new(self, corrected: Corrections = NOTHING) -> list[tuple[Any, ...]]:
        """Return a row of `source_batches` for each batch that has none."""
        last = self._last_source_batch()
        known: dict[str, int] = json.loads(last["known"]) if last else {}
        found = {name: self._of_source(name, known.get(name), corrected) for name in self.sources}
        source_batches, reached = [], corrected.of(self.manifest, last[BATCH_NO], last[SEEN_AT]) if last else None
        for number, (name, source_batch_no, records, at) in enumerate(
            _alternating(found), last[BATCH_NO] + 1 if last else 0
        ):
            known[name] = source_batch_no
            # Ingestion time never moves back: it decides which ids may be removed. A source may have been registered by
            # an earlier run that was killed.
            reached = max(at, reached or at)
            source_batches.append((number, name, source_batch_no, records, json.dumps(known), reached))
        return source_batches

    def _last_source_batch(self) -> dict[str, Any] | None:
        entries = manifest.last(self.table, [BATCH_NO, "known", SEEN_AT])
        source_batches: list[dict[str, Any]] = [] if entries is None else entries.to_pylist()
        return max(source_batches, key=itemgetter(BATCH_NO), default=None)

    def _of_source(self, name: str, known: int | None, corrected: Corrections) -> deque[tuple[Any, ...]]:
        source = self.sources[name]
        return deque(
            (name, number, records, corrected.of(source.manifest, number, seen))
            for number, records, seen in source.batches_after(known)
        )


def _alternating(found: Mapping[str, deque[tuple[Any, ...]]]) -> Iterator[tuple[Any, ...]]:
    """Yield one batch of each source in turn, as long as there are any, so no source keeps the others waiting."""
    while any(found.values()):
        for batches in found.values():
            if batches:
                yield batches.popleft()


@dataclass(frozen=True)
class Taken:
    """A batch of one of several sources, with the number and the ingestion time of its source_batch.

    Without a cut no batch was registered yet.
    """

    cut: Any  # a `sources.Cut`
    source: str | None
    batch_no: int
    seen_at: datetime

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to read."""
        return self.cut is None or self.cut.empty

    def size(self) -> int:
        """Return about how many bytes the batch has."""
        return 0 if self.cut is None else int(self.cut.size())

    def summary(self) -> dict[str, Any]:
        """Return what the batch row keeps of the batch."""
        if self.cut is None:
            return {BATCH_NO: self.batch_no}
        told = self.cut.summary()
        return {**told, BATCH_NO: self.batch_no, SOURCE: self.source, SOURCE_BATCH_NO: told[BATCH_NO]}

    def unreadable(self) -> dict[str, Any]:
        """Return which input of the batch can't be read when the batch begins."""
        return {} if self.cut is None else dict(self.cut.unreadable())

    def lines(self, facts: dict[str, Any]) -> tuple[Lines, Callable[[int], int]]:
        """Return the batch's lines, and a function that maps the number of judged records to the number expected."""
        found: tuple[Lines, Callable[[int], int]] = self.cut.lines(facts)
        return found

    def committed(self) -> None:
        """Report the committed batch to systems outside."""
        if self.cut is not None:
            self.cut.committed()


# The interface between receive and a source.


class Cut(Protocol):
    """One batch of a manifest."""

    @property
    def batch_no(self) -> int:
        """Return the batch's number in the manifest; NO_BATCH if nothing was registered yet."""

    @property
    def seen_at(self) -> datetime:
        """Return the batch's ingestion time."""

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to read."""

    def size(self) -> int:
        """Return about how many bytes the batch has; compressed files count by their lines.

        The size only decides into how many partitions the batch is cut.
        """

    def summary(self) -> dict[str, Any]:
        """Return what the batch row keeps of the batch."""

    def unreadable(self) -> dict[str, Any]:
        """Return which input of the batch can't be read when the batch begins."""

    def lines(self, facts: dict[str, Any]) -> tuple[Lines, Callable[[int], int]]:
        """Return the batch's lines, and a function that maps the number of judged records to the number expected."""

    def committed(self) -> None:
        """Report the committed batch to systems outside, if the declaration asks for it. Raise nothing."""


class Source(Protocol):
    """Where the records of an instance come from."""

    @property
    def manifest(self) -> str:
        """Return the log's name for the manifest."""

    def register(self, spark: SparkSession, driver: Driver, now: datetime, corrected: Corrections = NOTHING) -> int:
        """Note new input, and return the number of new entries. `corrected`: when earlier entries have arrived."""

    def waits(self) -> bool:
        """Return whether `register` would add anything, even if that is not certain. Asked now, and without Spark.

        Raise what the source's store or server raises, and what `register` refuses.
        """

    def last_batch(self) -> int | None:
        """Return the number of the last registered batch; None before the first."""

    def vouched(self, batch_no: int | None) -> Iterator[Vouched]:
        """Yield each manifest, with the batch up to which it must reach if receive has committed up to `batch_no`."""

    def records_after(self, batch_no: int | None) -> int:
        """Return about how many records the later batches have. It is an estimate for people; nothing depends on it."""

    def behind(self, batch_no: int | None) -> Collection[str]:
        """Return the names of the sources with later batches; empty if the pipeline has one source."""

    def stream(self, spark: SparkSession, start: int) -> DataFrame:
        """Return the manifest as a stream, a batch at a time."""

    def listed(self, spark: SparkSession, batch: DataFrame) -> Cut:
        """Return the input that a batch of that stream names."""

    def batch(self, spark: SparkSession, batch_no: int) -> Cut:
        """Return a registered batch by its number."""


def source_of(
    pipeline: Pipeline,
    instance: str,
    max_files: int | None,
    bounds: Bounds | None = None,
    readings: Readings | None = None,
    skipped: set[str] | None = None,
) -> Source:
    """Return the source of an instance.

    bounds    the bounds of a bounded run
    readings  what a run has read of the manifests
    skipped   gets the folders below an inbox that a listing skips
    """
    if pipeline.sources:
        views = {name: pipeline.of_source(name) for name in pipeline.sources}
        each = {
            name: source_of(view, instance, None if view.source.is_topic else max_files, bounds, readings, skipped)
            for name, view in views.items()
        }
        return Several(
            pipeline, instance, settings.data_location(instance) / stored_names.SOURCE_BATCHES_MANIFEST, each
        )
    if isinstance(pipeline.source, Kafka):
        if max_files:
            raise Refused(
                f"{pipeline.name} reads a topic: it has no files to count",
                hint="Kafka(max_offsets_a_batch=…) in the declaration says how much one batch takes",
            )
        return topic_of(pipeline, pipeline.source, instance, bounds, readings)
    return _Files(pipeline, source_files.inbox_of(pipeline, instance, max_files, skipped), readings)


@dataclass(frozen=True)
class _Files:
    pipeline: Pipeline
    inbox: Inbox
    readings: Readings | None = None

    @property
    def manifest(self) -> str:
        return manifest.name(self.inbox.table)

    def register(self, spark: SparkSession, driver: Driver, now: datetime, corrected: Corrections = NOTHING) -> int:
        return source_files.register(spark, self.inbox, driver, now, self._reading(), corrected)

    def waits(self) -> bool:
        source = self.pipeline.source
        # Only Spark's catalog knows where a table of a name is now.
        if not commit.exists(self.inbox.table) or (isinstance(source, DeltaSource) and source.table):
            return True
        inbox = (
            replace(self.inbox, folder=delta_log.log_location(source))
            if isinstance(source, DeltaSource)
            else self.inbox
        )
        return discovery.any_new(inbox, self._reading().look())

    def _reading(self) -> Reading[Registered]:
        return manifest.reading_of(
            self.readings, self.inbox.table, lambda: discovery.reading(self.inbox.table, self.pipeline)
        )

    def last_batch(self) -> int | None:
        if not commit.exists(self.inbox.table):
            return None
        there = self._reading().look()
        return None if there.empty else there.batches - 1

    def vouched(self, batch_no: int | None) -> Iterator[Vouched]:
        yield manifest.vouched(self.inbox.table, batch_no)

    def records_after(self, batch_no: int | None) -> int:
        return sum(records for _, records, _ in self.batches_after(batch_no))

    def behind(self, batch_no: int | None) -> Collection[str]:
        return ()

    def batches_after(self, batch_no: int | None) -> list[tuple[int, int, datetime]]:
        """Return (number, records, ingestion time) of each later batch, in order."""
        files = manifest.after(self.inbox.table, batch_no, [BATCH_NO, "lines", "refusal", SEEN_AT])
        # As `listing.records` counts: a file that can't be read is one invalid record.
        counted = pc.if_else(pc.is_valid(files["refusal"]), pa.scalar(1, files["lines"].type), files["lines"])
        return manifest.batches(files.append_column("records", counted), "records")

    def stream(self, spark: SparkSession, start: int) -> DataFrame:
        return source_files.stream(spark, self.inbox, start)

    def listed(self, spark: SparkSession, batch: DataFrame) -> Cut:
        return _Listed(self.pipeline, spark, source_files.listed(batch, self.inbox.moved))

    def batch(self, spark: SparkSession, batch_no: int) -> Cut:
        return self.listed(spark, manifest.batch(spark, self.inbox.table, batch_no))


@dataclass(frozen=True)
class _Listed:
    pipeline: Pipeline
    spark: SparkSession
    found: source_files.Listed

    @property
    def batch_no(self) -> int:
        return self.found.batch_no

    @property
    def seen_at(self) -> datetime:
        return self.found.seen_at

    @property
    def empty(self) -> bool:
        return not self.found.files

    def size(self) -> int:
        return self.found.size()

    def summary(self) -> dict[str, Any]:
        said = self.found.summary()
        return said | delta_log.read_versions(self.found.files) if self.pipeline.source.is_table else said

    def committed(self) -> None:
        """Do nothing: files have no consumers to inform."""

    def unreadable(self) -> dict[str, Any]:
        return source_files.unreadable(self.pipeline, self.found.files)

    def lines(self, facts: dict[str, Any]) -> tuple[Lines, Callable[[int], int]]:
        lines, read = source_files.lines(self.spark, self.pipeline, self.found.files, facts)
        return lines, lambda _: read
