"""A topic of Kafka, read by a registry of offsets.

The driver appends new ranges of offsets, in batches, to the Delta table `ranges`. Receive streams that table and has
Spark's connector read each batch's ranges as a bounded read. The connector's own stream can't tell that a topic was
made again, that a range was lost, or where a new life goes on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.commitlog.lineages import Driver
from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources.kafka import Kafka
from onlyonce.model import stored_names
from onlyonce.model.batch import EPOCH
from onlyonce.model.errors import Refused, Superseded
from onlyonce.model.sources.arrivals import NOTHING, Corrections
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import BATCH_NO, SEEN_AT
from onlyonce.session import schemas
from onlyonce.sources import reading as readings
from onlyonce.sources import registry
from onlyonce.sources.kafka import kafka_admin
from onlyonce.sources.kafka.offsets import Known, Range, Seen, cut, new_ranges
from onlyonce.sources.kafka.ranges import Ranges as Ranges
from onlyonce.storage import delta, opening

SCHEMA = (
    "batch_no long, place string, topic_id string, part int, first long, until long, refusal string, asked string, "
    "seen_at timestamp"
)
LOOKS = 5
NO_BATCH = -1


@dataclass(frozen=True)
class Bounds:
    """The part of a topic that a bounded run reads, by the times of its messages; None: no bound."""

    start: datetime | None = None
    end: datetime | None = None

    def __str__(self) -> str:
        return "--".join(time.astimezone(UTC).isoformat() if time else "" for time in (self.start, self.end))


@dataclass(frozen=True)
class Topic:
    """A topic as the source of one instance, and the table `ranges` that remembers its offsets.

    `readings`: what the run has read of its registries.
    """

    pipeline: Pipeline
    source: Kafka
    instance: str
    table: Location
    bounds: Bounds | None = None
    readings: readings.Readings | None = None

    def register(self, spark: SparkSession, driver: Driver, now: datetime, corrected: Corrections = NOTHING) -> int:
        """Append what is new in the topic to the registry; gives the number of new ranges.

        A bounded run reads what was there at its first look, so that a retry reads the same. Raises Refused for lost
        messages, and for another range than the one that an unfinished bounded run has.
        """
        delta.make(self.table, schemas.of(SCHEMA), spark, [], delta.KEEP_ALL)
        reading = readings.of(
            self.readings, self.table, lambda: readings.Reading(self.table, _entries, schemas.of(SCHEMA).names, _more)
        )
        for _ in range(LOOKS):
            # As of one look: what another driver adds after it makes the transaction's number taken.
            app_id = stored_names.transaction(self.instance, stored_names.RANGES_BY)
            entries = reading.look()
            number = (reading.table.transaction_version(app_id) or 0) + 1
            if self.bounds is not None and entries.num_rows:
                _refuse_other(self.instance, self.bounds, str(entries["asked"][0]))
                return 0
            found = self._new(spark, _known(entries))
            if not found:
                return 0
            last, seen = registry.last_entry(entries)
            arrival = corrected.following(now, self.registry, last, seen)
            rows = _rows(last, cut(found, self.source.max_offsets_a_batch), str(self.bounds or ""), arrival)
            if registry.append(reading.table, SCHEMA, rows, driver, number, app_id):
                return len(rows)
        raise Superseded(
            f"{self.table}: another driver registers the same topic, {LOOKS} times in a row",
            data="each range is registered once, by whichever driver was first",
            hint="nothing to do while the other one runs",
        )

    @property
    def registry(self) -> str:
        """What the log calls the table `ranges`."""
        return registry.name(self.table)

    def last_batch(self) -> int | None:
        """The number of the last batch that was registered; None before the first."""
        return registry.last_batch(self.table)

    def records_after(self, batch_no: int | None) -> int:
        """About how many messages the batches behind that one have."""
        found = registry.after(self.table, batch_no, ["first", "until"]).to_pylist()
        return sum(one["until"] - one["first"] for one in found)

    def behind(self, batch_no: int | None) -> Collection[str]:
        """One source has no others."""
        return ()

    def batches_after(self, batch_no: int | None) -> list[tuple[int, int, datetime]]:
        """(number, messages, system time) of each batch behind that one, in order."""
        entries = registry.after(self.table, batch_no, [BATCH_NO, "first", "until", SEEN_AT])
        return registry.batches(
            entries.append_column("messages", pc.subtract(entries["until"], entries["first"])), "messages"
        )

    def stream(self, spark: SparkSession, start: int) -> DataFrame:
        """The registry as a stream, a batch at a time."""
        return registry.stream(spark, self.table, start)

    def listed(self, spark: SparkSession, batch: DataFrame) -> Ranges:
        """The ranges of a batch of that stream."""
        # Times leave Spark as numbers: collected as datetimes they would be in the driver's own time zone.
        rows = sorted(batch.withColumn(SEEN_AT, F.unix_micros(SEEN_AT)).collect(), key=lambda r: (r.place, r.first))
        ranges = [Range(r.place, r.topic_id, r.part, r.first, r.until, r.refusal) for r in rows]
        if not rows:
            return Ranges(self.pipeline, self.source, spark, [], NO_BATCH, datetime.now(UTC))
        return Ranges(
            self.pipeline, self.source, spark, ranges, rows[0].batch_no, EPOCH + timedelta(microseconds=rows[0].seen_at)
        )

    def batch(self, spark: SparkSession, batch_no: int) -> Ranges:
        """The same of one batch by its number, of those that are registered."""
        return self.listed(spark, registry.batch(spark, self.table, batch_no))

    def waiting(self, spark: SparkSession) -> list[Range]:
        """What a run would register now; writes nothing."""
        entries = _entries(self.table) if delta.exists(self.table) else None
        return self._new(spark, _known(entries) if entries else None)

    def _new(self, spark: SparkSession, known: Known | None) -> list[Range]:
        seen = kafka_admin.look(spark, self.source)
        if known is None:
            return new_ranges(self.source, None, self._bounded(spark, seen), self._started(spark, seen))
        return new_ranges(self.source, known, seen, {})

    def _started(self, spark: SparkSession, seen: Seen) -> dict[int, int]:
        start = self.bounds.start if self.bounds and self.bounds.start else self.source.start
        if isinstance(start, datetime):
            return kafka_admin.at(spark, self.source, start, seen)
        # "All input" of a bounded run is more than what comes from now on.
        return dict(seen.latest if start == "latest" and self.bounds is None else seen.earliest)

    def _bounded(self, spark: SparkSession, seen: Seen) -> Seen:
        if self.bounds is None or self.bounds.end is None:
            return seen
        return Seen(seen.topic_id, seen.earliest, kafka_admin.at(spark, self.source, self.bounds.end, seen))


def topic_of(
    pipeline: Pipeline,
    source: Kafka,
    instance: str,
    bounds: Bounds | None = None,
    found: readings.Readings | None = None,
) -> Topic:
    """The topic of a pipeline, by the registry of an instance. `found`: what the run has read of its registries."""
    return Topic(
        pipeline, source, instance, registry.folder(pipeline, instance) / stored_names.RANGES_MANIFEST, bounds, found
    )


def _entries(table: Location) -> pa.Table:
    return _in_order(pa.table(opening.table(table).to_pyarrow_table(columns=schemas.of(SCHEMA).names)))


def _more(there: pa.Table, entries: pa.Table) -> pa.Table:
    return pa.concat_tables([there, _in_order(entries).cast(there.schema)])


def _in_order(entries: pa.Table) -> pa.Table:
    return entries.sort_by([(BATCH_NO, "ascending"), ("first", "ascending")])


def _known(entries: pa.Table) -> Known | None:
    if not entries.num_rows:
        return None
    first_id, last_id = entries["topic_id"][0].as_py(), entries["topic_id"][-1].as_py()
    of_last = entries.filter(pc.equal(entries["topic_id"], last_id)).group_by("part").aggregate([("until", "max")])
    goes_on = dict(zip(of_last["part"].to_pylist(), of_last["until_max"].to_pylist(), strict=True))
    return Known(first_id, last_id, goes_on)


def _rows(last: int | None, batches: list[list[Range]], asked: str, now: datetime) -> list[tuple[Any, ...]]:
    begin = 0 if last is None else last + 1
    return [
        (begin + number, one.place, one.topic_id, one.part, one.first, one.until, one.refusal, asked, now)
        for number, batch in enumerate(batches)
        for one in batch
    ]


def _refuse_other(instance: str, bounds: Bounds, asked: str) -> None:
    if str(bounds) != asked:
        raise Refused(
            f"the bounded run {instance} is not finished, and reads {asked}; asked is {bounds}",
            data="nothing was read or written",
            hint="finish it first by the same command; the next bounded run is another one",
        )
