"""The interface between receive and a source, and the choice of a pipeline's source.

Every source has a registry (`registry`). New input is noted there and cut into batches once. A batch may be read any
number of times, and gives the same input each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from onlyonce import settings
from onlyonce.commitlog.lineages import Driver
from onlyonce.declare.pipeline import DeltaSource, Pipeline
from onlyonce.declare.sources.kafka import Kafka
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.sources.arrivals import NOTHING, Corrections
from onlyonce.model.stored_names import BATCH_NO, SEEN_AT
from onlyonce.sources import discovery, reading, registry
from onlyonce.sources.discovery import Registered
from onlyonce.sources.files import source_files
from onlyonce.sources.files.source_files import Inbox
from onlyonce.sources.kafka.source_kafka import Bounds, topic_of
from onlyonce.sources.lines import Lines
from onlyonce.sources.reading import Reading, Readings
from onlyonce.sources.several import Several
from onlyonce.sources.tables import table_entries
from onlyonce.storage import delta


class Cut(Protocol):
    """One batch of a registry."""

    @property
    def batch_no(self) -> int:
        """Its number in the registry; NO_BATCH where nothing was registered yet."""

    @property
    def seen_at(self) -> datetime:
        """Its system time."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""

    def size(self) -> int:
        """About how many bytes it has; packed ones count by their lines.

        It decides in how many partitions the batch is cut, and nothing else.
        """

    def summary(self) -> dict[str, Any]:
        """What the batch row says of it."""

    def unreadable(self) -> dict[str, Any]:
        """What of it can't be read at the moment when the batch begins."""

    def lines(self, facts: dict[str, Any]) -> tuple[Lines, Callable[[int], int]]:
        """Its lines; and, given how many records have a fate, how many must."""


class Source(Protocol):
    """Where the records of an instance come from."""

    @property
    def registry(self) -> str:
        """What the log calls its registry."""

    def register(self, spark: SparkSession, driver: Driver, now: datetime, corrected: Corrections = NOTHING) -> int:
        """Note what is new; gives how many entries. `corrected`: when the entries of before have arrived."""

    def last_batch(self) -> int | None:
        """The number of the last batch that was registered; None before the first."""

    def records_after(self, batch_no: int | None) -> int:
        """About how many records the batches behind that one have, for whoever waits. Nothing is decided by it."""

    def behind(self, batch_no: int | None) -> Collection[str]:
        """The names of the sources with batches behind that one; none where the pipeline has one source."""

    def stream(self, spark: SparkSession, start: int) -> DataFrame:
        """The registry as a stream, a batch at a time."""

    def listed(self, spark: SparkSession, batch: DataFrame) -> Cut:
        """What a batch of that stream names."""

    def batch(self, spark: SparkSession, batch_no: int) -> Cut:
        """The same of one batch by its number, of those that are registered."""


def of(
    pipeline: Pipeline,
    instance: str,
    max_files: int | None,
    bounds: Bounds | None = None,
    readings: Readings | None = None,
    skipped: set[str] | None = None,
) -> Source:
    """The source of an instance.

    `bounds` are those of a bounded run; `readings` what a run has read of the registries; `skipped` gets the folders
    below an inbox that a listing skips."""
    if pipeline.sources:
        views = {name: pipeline.of_source(name) for name in pipeline.sources}
        each = {
            name: of(view, instance, None if isinstance(view.source, Kafka) else max_files, bounds, readings, skipped)
            for name, view in views.items()
        }
        return Several(pipeline, instance, settings.data_location(instance) / stored_names.TURNS_MANIFEST, each)
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
    def registry(self) -> str:
        return registry.name(self.inbox.table)

    def register(self, spark: SparkSession, driver: Driver, now: datetime, corrected: Corrections = NOTHING) -> int:
        return source_files.register(spark, self.inbox, driver, now, self._reading(), corrected)

    def _reading(self) -> Reading[Registered]:
        return reading.of(self.readings, self.inbox.table, lambda: discovery.reading(self.inbox.table, self.pipeline))

    def last_batch(self) -> int | None:
        if not delta.exists(self.inbox.table):
            return None
        there = self._reading().look()
        return None if there.empty else there.batches - 1

    def records_after(self, batch_no: int | None) -> int:
        return sum(registry.after(self.inbox.table, batch_no, ["lines"])["lines"].to_pylist())

    def behind(self, batch_no: int | None) -> Collection[str]:
        return ()

    def batches_after(self, batch_no: int | None) -> list[tuple[int, int, datetime]]:
        """(number, records, system time) of each batch behind that one, in order."""
        return registry.batches(registry.after(self.inbox.table, batch_no, [BATCH_NO, "lines", SEEN_AT]), "lines")

    def stream(self, spark: SparkSession, start: int) -> DataFrame:
        return source_files.stream(spark, self.inbox, start)

    def listed(self, spark: SparkSession, batch: DataFrame) -> Cut:
        return _Listed(self.pipeline, spark, source_files.listed(batch, self.inbox.moved))

    def batch(self, spark: SparkSession, batch_no: int) -> Cut:
        return self.listed(spark, registry.batch(spark, self.inbox.table, batch_no))


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
        return (
            said | table_entries.versions(self.found.files) if isinstance(self.pipeline.source, DeltaSource) else said
        )

    def unreadable(self) -> dict[str, Any]:
        return source_files.unreadable(self.pipeline, self.found.files)

    def lines(self, facts: dict[str, Any]) -> tuple[Lines, Callable[[int], int]]:
        lines, read = source_files.lines(self.spark, self.pipeline, self.found.files, facts)
        return lines, lambda _: read
