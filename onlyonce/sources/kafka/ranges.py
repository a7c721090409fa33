"""One batch of a topic: its ranges of offsets, what of it can't be read, and its messages as lines or rows.

Who calls it: `source_kafka` makes it, receive reads it. Errors: Refused for lost messages, and those of
`kafka_schemas`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources.debezium import Debezium
from onlyonce.declare.sources.kafka import Kafka
from onlyonce.model import partitions, stored_names
from onlyonce.model.sources.record_places import RecordPlaces
from onlyonce.model.stored_names import BATCH_NO
from onlyonce.session import schemas
from onlyonce.sources.kafka import kafka_admin, kafka_changes, kafka_reader, kafka_schemas
from onlyonce.sources.kafka.offsets import Range, lost_since, readable, refuse_lost
from onlyonce.sources.lines import LINE, Lines
from onlyonce.sources.parse import record_id
from onlyonce.sources.parse.parse import BESIDE


@dataclass(frozen=True)
class Ranges:
    """The ranges of one batch, the batch's number in the registry, and its system time."""

    pipeline: Pipeline
    source: Kafka
    spark: SparkSession
    ranges: list[Range]
    batch_no: int
    seen_at: datetime
    _named: dict[tuple[Range, ...], kafka_schemas.Ids] = field(default_factory=dict, repr=False, compare=False)
    _gone: list[dict[str, Any]] = field(default_factory=list, repr=False, compare=False)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read: such a batch only stores where the source began."""
        return not any(one.offsets or one.refusal for one in self.ranges)

    def size(self) -> int:
        """About how many bytes they have, by the number of offsets."""
        return partitions.A_RECORD * sum(one.offsets for one in self.ranges)

    def summary(self) -> dict[str, Any]:
        """What the batch row says of them."""
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
        """What of it is lost at the moment when the batch begins, and which schemas the registry does not know.

        The batch row keeps it, so that a replay decides the same."""
        return self._lost_now() | kafka_schemas.unknown(self.source, self._schemas_now())

    def _lost_now(self) -> dict[str, Any]:
        if not self._gone:
            self._gone.append(lost_since(self.source, self.ranges, kafka_admin.find(self.spark, self.source)))
        return self._gone[0]

    def _schemas_now(self) -> kafka_schemas.Ids:
        # Where messages are lost and the declaration says to stop, nothing is read.
        if not self.source.registered or (self._lost_now() and self.source.on_loss == "stop"):
            return {}
        return self._schemas(readable(self.ranges, self._lost_now()))

    def lines(self, facts: dict[str, Any]) -> tuple[Lines, Callable[[int], int]]:
        """The messages as (oo_line, oo_refused, oo_file, oo_position) with key and headers; and how many there must be.

        Where each offset has a message that is told by the offsets. Where transactions or compaction leave gaps, the
        ranges are read once more and counted, without parsing: another way than by the fates, so conservation is no
        tautology. A compacted topic may have fewer messages by then; then no message that is there is without a fate.
        Raises Refused for lost messages, unless they are to be skipped.
        """
        refuse_lost(self.source, facts)
        left, lost = readable(self.ranges, facts), self._lost(facts)
        frame = self.spark.createDataFrame([("", *one) for one in lost], schemas.of(LINE))
        if left:
            messages = self._messages(left, facts)
            frame = frame.unionByName(messages, allowMissingColumns=True) if lost else messages
        else:
            frame = frame.unionByName(self.spark.createDataFrame([], self._gives()), allowMissingColumns=True)

        def must(fated: int) -> int:
            offsets = sum(one.offsets for one in left) + len(lost)
            if fated == offsets:
                return offsets
            now = len(lost) + (kafka_reader.records(self.spark, self.source, left).count() if left else 0)
            return fated if now < fated < offsets and self._compacted() else now

        return Lines([], frame, shrinks=self._compacted, places=self._places()), must

    def _compacted(self) -> bool:
        return kafka_admin.may_be_compacted(self.spark, self.source)

    def _messages(self, left: list[Range], facts: dict[str, Any]) -> DataFrame:
        source = self.source
        messages = kafka_reader.values(self.spark, source, left)
        if source.registered:
            messages = kafka_schemas.rows(messages, self.pipeline, source, self._schemas(left), facts)
        if not isinstance(source.value, Debezium):
            return messages
        return kafka_changes.rows(
            messages, source.value, self.pipeline.named().values(), keyed="key" in source.registered
        )

    def _schemas(self, left: list[Range]) -> kafka_schemas.Ids:
        # Of a batch that begins they are asked for twice, before its row and behind it.
        if tuple(left) not in self._named:
            self._named[tuple(left)] = kafka_schemas.named(self.spark, self.source, left)
        return self._named[tuple(left)]

    def _gives(self) -> StructType:
        source = self.source
        if source.registered:
            return schemas.of(kafka_schemas.gives(self.pipeline, source))
        kinds = dict.fromkeys(source.beside, "string") | source.of_envelope
        return schemas.of(", ".join([LINE, *(f"{BESIDE}{name} {kind}" for name, kind in kinds.items())]))

    def _places(self) -> RecordPlaces:
        return RecordPlaces({record_id.of_file(one.place): one.place for one in self.ranges}, "offset")

    def _lost(self, facts: dict[str, Any]) -> list[tuple[str, int, int]]:
        # A place below zero is that of no message.
        found = [(str(one.refusal), one.place, one.first) for one in self.ranges if one.refusal is not None]
        found += [
            (facts[one.place]["reason"], one.place, one.first)
            for one in self.ranges
            if one.place in facts and one.offsets
        ]
        return [(reason, record_id.of_file(place), -1 - first) for reason, place, first in found]
