"""What a target outside keeps of the rows that were sent to it, and until when. It is not searched."""

from __future__ import annotations

from dataclasses import dataclass

from onlyonce import environment
from onlyonce.declare.outputs.sent import Sent
from onlyonce.declare.pipeline import BigQuery, BigQueryStream, KafkaSink
from onlyonce.model.operate import lasting
from onlyonce.sinks.outbox import kafka_units
from onlyonce.sinks.stored import Stored


@dataclass(frozen=True)
class StoredOutside(Stored):
    """A target that an output has sent rows to."""

    sink: Sent

    def stays(self) -> str:
        """Return when what was sent is gone."""
        return f"what was sent there stays: {self._until()}"

    def _until(self) -> str:
        if isinstance(self.sink, KafkaSink):
            settings = kafka_units.settings_of(environment.variable(self.sink.connection) or "")
            return (
                f"messages of the topic {self.sink.topic}, also those of transactions that were undone, are gone "
                f"{lasting.of_topic(kafka_units.configuration(settings, self.sink.topic))}"
            )
        if isinstance(self.sink, BigQuery | BigQueryStream):
            return (
                "delete these rows in the table; BigQuery's time travel and fail-safe keep them for at most 14 "
                "days more"
            )
        return "ask the owner of the target to delete it"
