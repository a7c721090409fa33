"""Count the messages of a Kafka topic that no committed batch has read, and their seconds, by partition."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from onlyonce.api.messages import Kafka
from onlyonce.api.pipeline import Pipeline
from onlyonce.core.backlog import Backlog
from onlyonce.sources import kafka_client, manifest, source_kafka
from onlyonce.sources.kafka_client import Asked
from onlyonce.sources.kafka_offsets import Known, Seen

NO_BYTES = "a broker does not say how many bytes wait"


def unread(view: Pipeline, taken_in: int | None, readings: manifest.Readings, patience: float) -> Backlog:
    """Return the unread messages of a topic, by offsets: transactions and compaction leave some without a message.

    Raise Refused or Retryable if the broker can't be asked or does not answer.
    """
    source = view.source
    assert isinstance(source, Kafka)
    known = source_kafka.topic_of(view, source, view.name, None, readings).read_up_to(taken_in)
    with kafka_client.asking(source, patience) as asked:
        seen = asked.seen()
        begins = _begins(source, known, seen, asked)
        waits = {part: end - begins[part] for part, end in sorted(seen.latest.items()) if end > begins[part]}
        times = asked.times({part: begins[part] for part in waits}) if waits else {}
    now = datetime.now(UTC)
    detail = {
        str(part): {
            "records": number,
            "seconds": round(max((now - times[part]).total_seconds(), 0), 1) if part in times else None,
        }
        for part, number in waits.items()
    }
    # Without the time of a partition the oldest message is not known.
    oldest = min(times.values()) if times and len(times) == len(waits) else None
    return Backlog(sum(waits.values()), None if waits else 0, oldest, detail, NO_BYTES if waits else None)


def _begins(source: Kafka, known: Known | None, seen: Seen, asked: Asked) -> Mapping[int, int]:
    """Return by partition the first offset to read that the broker still has."""
    if known is None:
        if isinstance(source.start, datetime):
            return asked.first_since(source.start, seen)
        return seen.latest if source.start == "latest" else seen.earliest
    goes_on = known.next if known.topic_id == seen.topic_id else {}
    return {part: max(goes_on.get(part, 0), earliest) for part, earliest in seen.earliest.items()}
