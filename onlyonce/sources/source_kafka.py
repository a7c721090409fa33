"""A topic of Kafka as a source: its manifest of offsets, its batches, and the changes in Debezium's envelopes.

Envelopes are taken apart by a Python expression over a column of lines (`onlyonce/core/line_values.py`), not by a
parser of the JVM. An envelope in Avro comes as JSON (`message_formats`), so a change does not depend on how
it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from onlyonce.api import ddl
from onlyonce.api.messages import Debezium, Kafka
from onlyonce.api.pipeline import Pipeline
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core import backlog, batch, line_values, stored_names
from onlyonce.core.batch import EPOCH, NOTHING, Corrections
from onlyonce.core.errors import Refused, Superseded
from onlyonce.core.line_values import Change
from onlyonce.core.locations import Location
from onlyonce.core.records import RecordPlaces
from onlyonce.core.stored_names import BATCH_NO, SEEN_AT
from onlyonce.engine import session
from onlyonce.sources import kafka_admin, kafka_client, kafka_messages, record_id
from onlyonce.sources import manifest as readings
from onlyonce.sources.kafka_offsets import (
    Known,
    Range,
    Seen,
    cut,
    ends_early,
    lost_since,
    new_ranges,
    readable,
    refuse_lost,
)
from onlyonce.sources.lines import LINE_COLUMN, Lines
from onlyonce.sources.manifest import Vouched
from onlyonce.sources.values.parse import BESIDE, NOT_UTF8
from onlyonce.tables import commit, opening

log = structlog.get_logger()
READ = "oo_change"
INSTANT = pa.timestamp("us", "UTC")
KINDS = {
    "reason": StringType(),
    "row": StringType(),
    "op": StringType(),
    "position": StringType(),
    "time": TimestampType(),
}


def rows_of_changes(messages: DataFrame, declared: Debezium, columns: Collection[str], *, keyed: bool) -> DataFrame:
    """Return lines with the row of each envelope, and the envelope's columns next to them.

    A refused message keeps its whole line.

    `columns`: the declared ones. `keyed`: columns come from the message's key, so a delete needs no row before it.
    """
    of_envelope = {declared.op: "op", declared.position: "position", declared.time: "time"}
    of_row = [name for name in columns if name not in of_envelope]
    read = messages.withColumn(READ, _reader(of_row, declared.unavailable, keyed)(F.col("oo_line")))
    refused = F.coalesce("oo_refused", F.col(f"{READ}.reason"))
    line = F.when(refused.isNotNull(), F.col("oo_line")).otherwise(F.col(f"{READ}.row"))
    return read.select(
        line.alias("oo_line"),
        refused.alias("oo_refused"),
        *[name for name in messages.columns if name not in ("oo_line", "oo_refused")],
        *[F.col(f"{READ}.{part}").alias(f"{BESIDE}{name}") for name, part in of_envelope.items()],
    )


def _reader(columns: Collection[str], placeholder: str, keyed: bool) -> Callable[[Column], Column]:
    def read(lines: pa.Array) -> pa.Array:
        of_line = line_values.envelope_reader(columns, placeholder, keyed=keyed)
        changes = [_change(line, of_line) for line in lines.cast(pa.binary()).to_pylist()]
        kinds = [INSTANT if name == "time" else pa.string() for name in KINDS]
        parts = (
            [pa.array(part, kind) for part, kind in zip(zip(*changes, strict=True), kinds, strict=True)]
            if changes
            else [pa.nulls(0, kind) for kind in kinds]
        )
        return pa.StructArray.from_arrays(parts, names=list(KINDS))

    return arrow_udf(read, StructType([StructField(name, kind) for name, kind in KINDS.items()]))


def _change(line: bytes | None, read: Callable[[str], Change]) -> Change:
    if line is None:
        return Change(None)
    try:
        return read(line.decode())
    except UnicodeDecodeError:
        return Change(NOT_UTF8)


# One batch of a topic.


@dataclass(frozen=True)
class Ranges:
    """The ranges of one batch, the batch's number in the manifest, and its ingestion time."""

    pipeline: Pipeline
    source: Kafka
    spark: SparkSession
    ranges: list[Range]
    batch_no: int
    seen_at: datetime
    group: str | None = None
    _named: dict[tuple[Range, ...], kafka_messages.Ids] = field(default_factory=dict, repr=False, compare=False)
    _gone: list[dict[str, Any]] = field(default_factory=list, repr=False, compare=False)

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to read: such a batch only stores where the source began."""
        return not any(one.offsets or one.refusal for one in self.ranges)

    def size(self) -> int:
        """Return about how many bytes the messages have, by the number of offsets."""
        return batch.A_RECORD * sum(one.offsets for one in self.ranges)

    def summary(self) -> dict[str, Any]:
        """Return what the batch row keeps of the ranges."""
        offsets = {one.place: [one.first, one.until] for one in self.ranges if one.refusal is None}
        said = {
            BATCH_NO: self.batch_no,
            stored_names.LINES: sum(one.offsets for one in self.ranges),
            stored_names.OFFSETS: offsets,
        }
        lost = sum(one.refusal is not None for one in self.ranges)
        said |= {stored_names.LOST: lost} if lost else {}
        named = self._schemas_now()
        return {**said, "schemas": named} if named else said

    def unreadable(self) -> dict[str, Any]:
        """Return what is lost when the batch begins, and which schemas the schema registry does not have.

        The batch row keeps this, so that a replay decides the same."""
        return self._lost_now() | kafka_messages.unknown_schemas(self.source, self._schemas_now())

    def _lost_now(self) -> dict[str, Any]:
        if not self._gone:
            self._gone.append(lost_since(self.ranges, kafka_admin.find(self.spark, self.source)))
        return self._gone[0]

    def _schemas_now(self) -> kafka_messages.Ids:
        # If messages are lost and the declaration says to stop, nothing is read.
        if not self.source.registered or (self._lost_now() and self.source.on_loss == "stop"):
            return {}
        return self._schemas(readable(self.ranges, self._lost_now()))

    def committed(self) -> None:
        """Write the end of the batch to the declared consumer group. Not for a bounded run, which reads again."""
        if self.group is None:
            return
        ends: dict[int, int] = {}
        for one in self.ranges:
            ends[one.part] = max(one.until, ends.get(one.part, 0))
        if ends and (why := kafka_admin.commit_to_group(self.spark, self.source, self.group, ends)):
            log.warning("consumer group not written", group=self.group, problem=why)

    def lines(self, facts: dict[str, Any]) -> tuple[Lines, Callable[[int], int]]:
        """Return the messages as (oo_line, oo_refused, oo_file, oo_position) with key and headers, and a function.

        The function maps the number of judged records to the number expected. If each offset has a message, that is the
        number of offsets. If transactions or compaction leave gaps, the ranges are read again and counted without
        parsing. This is another way than by the fates, so conservation is a real check. A compacted topic may have
        fewer messages by then; then each remaining message has a fate. Raise Refused for lost messages, unless the
        source skips them.
        """
        refuse_lost(self.source, facts)
        left, lost = readable(self.ranges, facts), self._lost(facts)
        frame = self.spark.createDataFrame([("", *one) for one in lost], session.schema_of(LINE_COLUMN))
        if left:
            messages = self._messages(left, facts)
            frame = frame.unionByName(messages, allowMissingColumns=True) if lost else messages
        else:
            frame = frame.unionByName(self.spark.createDataFrame([], self._gives()), allowMissingColumns=True)

        def must(fated: int) -> int:
            offsets = sum(one.offsets for one in left) + len(lost)
            if fated == offsets:
                return offsets
            now = len(lost) + (kafka_admin.read_records(self.spark, self.source, left).count() if left else 0)
            return fated if now < fated < offsets and self._compacted() else now

        return Lines([], frame, shrinks=self._compacted, places=self._places()), must

    def _compacted(self) -> bool:
        return kafka_admin.may_be_compacted(self.spark, self.source)

    def _messages(self, left: list[Range], facts: dict[str, Any]) -> DataFrame:
        source = self.source
        messages = kafka_admin.read_values(self.spark, source, left)
        if source.registered:
            messages = kafka_messages.rows_of_messages(messages, self.pipeline, source, self._schemas(left), facts)
        if not isinstance(source.value, Debezium):
            return messages
        return rows_of_changes(messages, source.value, self.pipeline.named().values(), keyed="key" in source.registered)

    def _schemas(self, left: list[Range]) -> kafka_messages.Ids:
        # A batch that begins needs them twice: for its row and for its messages.
        if tuple(left) not in self._named:
            self._named[tuple(left)] = kafka_messages.named_schema(self.spark, self.source, left)
        return self._named[tuple(left)]

    def _gives(self) -> StructType:
        source = self.source
        if source.registered:
            return session.schema_of(kafka_messages.gives(self.pipeline, source))
        kinds = dict.fromkeys(source.beside, "string") | source.of_envelope
        return session.schema_of(", ".join([LINE_COLUMN, *(f"{BESIDE}{name} {kind}" for name, kind in kinds.items())]))

    def _places(self) -> RecordPlaces:
        return RecordPlaces({record_id.of_file(one.place): one.place for one in self.ranges}, "offset")

    def _lost(self, facts: dict[str, Any]) -> list[tuple[str, int, int]]:
        # A negative position belongs to no message.
        found = [(str(one.refusal), one.place, one.first) for one in self.ranges if one.refusal is not None]
        found += [
            (facts[one.place]["reason"], one.place, one.first)
            for one in self.ranges
            if one.place in facts and one.offsets
        ]
        return [(reason, record_id.of_file(place), -1 - first) for reason, place, first in found]


# The topic and its manifest.
#
# The driver appends new ranges of offsets, in batches, to the Delta table `ranges`. Receive streams that table, and
# Spark's connector reads each batch's ranges as a bounded read. The connector's own stream does not notice that a topic
# was created again or that a range was lost. It also does not know where a new incarnation continues.


SCHEMA = stored_names.RANGES_COLUMNS
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

    `readings`: what the run has read of its manifests.
    """

    pipeline: Pipeline
    source: Kafka
    instance: str
    table: Location
    bounds: Bounds | None = None
    readings: readings.Readings | None = None

    def register(self, spark: SparkSession, driver: Driver, now: datetime, corrected: Corrections = NOTHING) -> int:
        """Append new ranges of the topic to the manifest, and return their number.

        A bounded run reads what existed when it began, so that a retry reads the same. Raise Refused for lost messages,
        and if the bounds differ from the unfinished bounded run's bounds.
        """
        commit.make(self.table, session.schema_of(SCHEMA), spark, [], commit.KEEP_ALL)
        reading = _reading(self)
        for _ in range(LOOKS):
            # Both values come from one read of the manifest. If another driver adds ranges after it, the transaction's
            # number is taken.
            app_id = stored_names.transaction(self.instance, stored_names.RANGES_BY)
            there = reading.look()
            number = (reading.table.transaction_version(app_id) or 0) + 1
            if self.bounds is not None and there.known is not None:
                _refuse_other(self.instance, self.bounds, there.asked)
                return 0
            found = self._new(spark, there.known)
            if not found:
                return 0
            arrival = corrected.following(now, self.manifest, there.last, there.seen_at)
            rows = _rows(there.last, cut(found, self.source.max_offsets_a_batch), str(self.bounds or ""), arrival)
            if readings.append(reading.table, SCHEMA, rows, driver, number, app_id):
                return len(rows)
        raise Superseded(
            f"{self.table}: another driver registers the same topic, {LOOKS} times in a row",
            data="each range is registered once, by whichever driver was first",
            hint="nothing to do while the other one runs",
        )

    def waits(self) -> bool:
        """Return whether `register` would add anything, by a broker that is asked without Spark."""
        known = self._registered().known
        if known is None:
            return True
        with kafka_client.asking(self.source, backlog.ANSWER_SECONDS) as asked:
            seen = asked.seen()
            if ends_early(known, seen):
                seen = replace(seen, written=asked.written(seen))
            return bool(new_ranges(self.source, known, seen, {}))

    def read_up_to(self, batch_no: int | None) -> Known | None:
        """Return where the batches up to `batch_no` end; of a partition without any, where its first batch begins.

        Return None if nothing is registered.
        """
        there = self._registered()
        if (known := there.known) is None or there.last is None:
            return None
        if batch_no is not None and batch_no >= there.last:
            return known
        # The ranges of a partition join, so its unread ones begin where the read ones end.
        later = readings.after(self.table, batch_no, ["topic_id", "part", "first"])
        unread = _by_part(later.filter(pc.equal(later["topic_id"], known.topic_id)), "first", "min")
        return replace(known, next={**known.next, **unread})

    def _registered(self) -> _Registered:
        return _reading(self).look() if commit.exists(self.table) else _Registered()

    @property
    def manifest(self) -> str:
        """Return the log's name for the table `ranges`."""
        return readings.name(self.table)

    def last_batch(self) -> int | None:
        """Return the number of the last registered batch; None before the first."""
        return readings.last_batch(self.table)

    def vouched(self, batch_no: int | None) -> Iterator[Vouched]:
        """Yield the manifest, with the batch up to which it must reach if receive has committed up to `batch_no`."""
        yield readings.vouched(self.table, batch_no)

    def records_after(self, batch_no: int | None) -> int:
        """Return about how many messages the later batches have."""
        found = readings.after(self.table, batch_no, ["first", "until"]).to_pylist()
        return sum(one["until"] - one["first"] for one in found)

    def behind(self, batch_no: int | None) -> Collection[str]:
        """Return nothing: the topic is the only source."""
        return ()

    def batches_after(self, batch_no: int | None) -> list[tuple[int, int, datetime]]:
        """Return (number, messages, ingestion time) of each later batch, in order."""
        entries = readings.after(self.table, batch_no, [BATCH_NO, "first", "until", SEEN_AT])
        return readings.batches(
            entries.append_column("messages", pc.subtract(entries["until"], entries["first"])), "messages"
        )

    def stream(self, spark: SparkSession, start: int) -> DataFrame:
        """Return the manifest as a stream, a batch at a time."""
        return readings.stream(spark, self.table, start)

    def listed(self, spark: SparkSession, batch: DataFrame) -> Ranges:
        """Return the ranges of a batch of that stream."""
        # Times leave Spark as numbers: collected as datetimes they would be in the driver's own time zone.
        rows = sorted(batch.withColumn(SEEN_AT, F.unix_micros(SEEN_AT)).collect(), key=lambda r: (r.place, r.first))
        ranges = [Range(r.place, r.topic_id, r.part, r.first, r.until, r.refusal) for r in rows]
        if not rows:
            return Ranges(self.pipeline, self.source, spark, [], NO_BATCH, datetime.now(UTC))
        seen_at = EPOCH + timedelta(microseconds=rows[0].seen_at)
        group = self.source.consumer_group if self.instance == self.pipeline.name else None
        return Ranges(self.pipeline, self.source, spark, ranges, rows[0].batch_no, seen_at, group)

    def batch(self, spark: SparkSession, batch_no: int) -> Ranges:
        """Return a registered batch by its number."""
        return self.listed(spark, readings.batch(spark, self.table, batch_no))

    def waiting(self, spark: SparkSession) -> list[Range]:
        """Return what a run would register now; nothing is written."""
        return self._new(spark, self._registered().known)

    def _new(self, spark: SparkSession, known: Known | None) -> list[Range]:
        seen = kafka_admin.look(spark, self.source)
        if known is None:
            return new_ranges(self.source, None, self._bounded(spark, seen), self._started(spark, seen))
        if ends_early(known, seen):
            seen = replace(seen, written=kafka_admin.written(spark, self.source, seen))
        return new_ranges(self.source, known, seen, {})

    def _started(self, spark: SparkSession, seen: Seen) -> dict[int, int]:
        start = self.bounds.start if self.bounds and self.bounds.start else self.source.start
        if isinstance(start, datetime):
            return kafka_admin.at(spark, self.source, start, seen)
        # A bounded run without a start reads all input, not only what comes from now on.
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
    """Return the topic of a pipeline, with the manifest of an instance. `found`: the run's readings of manifests."""
    return Topic(
        pipeline, source, instance, readings.folder(pipeline, instance) / stored_names.RANGES_MANIFEST, bounds, found
    )


@dataclass(frozen=True)
class _Registered:
    """The state that a run keeps of the manifest: where the topic continues, and the last batch with its arrival.

    It does not grow with the number of ranges. `asked`: what the first batch was asked for.
    """

    known: Known | None = None
    last: int | None = None
    seen_at: datetime | None = None
    asked: str = ""


def _reading(topic: Topic) -> readings.Reading[_Registered]:
    columns = [*ddl.types(SCHEMA)]  # without Spark: `onlyonce lag` asks too
    return readings.reading_of(
        topic.readings,
        topic.table,
        lambda: readings.Reading(topic.table, lambda table: _more(_Registered(), _entries(table)), columns, _more),
    )


def _entries(table: Location) -> pa.Table:
    return pa.table(opening.table(table).to_pyarrow_table(columns=[*ddl.types(SCHEMA)]))


def _more(there: _Registered, entries: pa.Table) -> _Registered:
    """Return the state after further entries."""
    if not entries.num_rows:
        return there
    entries = entries.sort_by([(BATCH_NO, "ascending"), ("first", "ascending")])
    topic_id = entries["topic_id"][-1].as_py()
    ends = _by_part(entries.filter(pc.equal(entries["topic_id"], topic_id)), "until", "max")
    last, seen_at = readings.last_entry(entries)
    if (before := there.known) is None:
        known = Known(entries["topic_id"][0].as_py(), topic_id, ends)
        return _Registered(known, last, seen_at, str(entries["asked"][0]))
    ends_before = before.next if before.topic_id == topic_id else {}
    return replace(there, known=Known(before.first_id, topic_id, {**ends_before, **ends}), last=last, seen_at=seen_at)


def _by_part(entries: pa.Table, column: str, how: str) -> dict[int, int]:
    found = entries.group_by("part").aggregate([(column, how)])
    return dict(zip(found["part"].to_pylist(), found[f"{column}_{how}"].to_pylist(), strict=True))


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
