"""Publish a data set to Pub/Sub or Kafka: messages in arrival order, mixed with re-deliveries.

The arguments determine which records are sent, in which order and how often, as for files (`onlyonce.local.feed`). A
re-delivery in Pub/Sub is a new message with the same attribute, as from a publisher that sends twice. A pipeline that
identifies records by the message id takes it for another record.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from onlyonce.api.messages import Kafka
from onlyonce.api.sources import PubSub
from onlyonce.core.errors import Refused, Retryable
from onlyonce.local import feed as local_feed
from onlyonce.sources import pubsub
from onlyonce.unexpected import not_installed

AT_ONCE = 500
"""Messages of one request; Pub/Sub takes 1000, and 10 MB."""
TICKS = 20
"""Requests a second, at most, if a rate is given."""
ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class SentMessages:
    """The messages that a feed has sent: `messages`, of them `distinct` records, and `duplicates` re-deliveries."""

    topic: str
    messages: int
    distinct: int
    duplicates: int


@dataclass(frozen=True)
class _Deliveries:
    """The records of a data set in the order in which they are sent, re-deliveries included.

    payloads  each record as a line of JSON
    ids       the record id of each
    distinct  how many of the records are not re-deliveries
    """

    payloads: np.ndarray
    ids: np.ndarray
    distinct: int

    def sent_to(self, topic: str) -> SentMessages:
        """Return what a feed that has sent them all reports."""
        return SentMessages(topic, len(self.payloads), self.distinct, len(self.payloads) - self.distinct)


def _deliveries(pipeline: str, *, duplicates: float, seed: int, files: int | None, records: int | None) -> _Deliveries:
    """Return the deliveries of a pipeline's data set. Raise Refused as `local.feed.delivered`."""
    arrivals, positions_by_file = local_feed.delivered(
        pipeline, duplicates=duplicates, seed=seed, files=files, records=records
    )
    order = np.concatenate(positions_by_file)
    ids = record_ids(arrivals, local_feed.DATA_SETS[pipeline].record_id)
    return _Deliveries(local_feed.json_lines(arrivals)[order], ids[order], len(arrivals))


def feed_pubsub(
    pipeline: str, source: PubSub, *, duplicates: float, seed: int, files: int | None, records: int | None,
    rate: float | None = None,
) -> SentMessages:  # fmt: skip
    """Publish the pipeline's data set, `rate` messages a second if that is given.

    Raise Refused, with nothing published, for an unknown data set, an argument out of range, or a missing subscription:
    a subscription does not receive messages that were published before it existed. A repeated call publishes everything
    again; a killed call has published a part.
    """
    deliveries = _deliveries(pipeline, duplicates=duplicates, seed=seed, files=files, records=records)
    with pubsub.Subscription(source) as subscription:
        topic = subscription.facts().topic
    attribute = source.record_id_attribute
    messages: list[dict[str, object]] = [
        {"data": payload.encode(), "attributes": {attribute: record_id} if attribute else {}}
        for payload, record_id in zip(deliveries.payloads, deliveries.ids, strict=True)
    ]
    with pubsub.publishing() as client:
        for part in paced(messages, rate):
            client.publish(topic=topic, messages=part, timeout=ANSWER_SECONDS)
    return deliveries.sent_to(topic)


def record_ids(arrivals: pd.DataFrame, columns: tuple[str, ...]) -> np.ndarray:
    """Return the value of the attribute for each record: its id columns, joined by a bar."""
    return np.array(arrivals[list(columns)].astype(str).agg("|".join, axis=1), dtype=object)


def paced(messages: list[dict[str, object]], rate: float | None) -> Iterator[list[dict[str, object]]]:
    """Yield parts of the messages, each no sooner than its first message is due.

    messages   the keywords with which the client sends each of them
    rate       messages a second; None: as fast as possible
    """
    size = AT_ONCE if rate is None else max(1, min(AT_ONCE, round(rate / TICKS)))
    begun = time.monotonic()
    for start in range(0, len(messages), size):
        if rate is not None:
            time.sleep(max(0.0, begun + start / rate - time.monotonic()))
        yield messages[start : start + size]


# Kafka: the key of a message is its record id. So all deliveries of a record are in one partition, in their order; the
# reader decides the order over partitions.


MILLION = 1_000_000

# The client logs each lost connection on stderr; the error that is raised has the consequence.
_quiet = logging.getLogger("onlyonce.local.feed_messages")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def feed_kafka(
    pipeline: str, source: Kafka, *, duplicates: float, seed: int, files: int | None, records: int | None,
    rate: float | None = None,
) -> SentMessages:  # fmt: skip
    """Write the pipeline's data set to its topic, `rate` messages a second if that is given.

    Raise Refused for an unknown data set, an argument out of range, a missing topic, or brokers that need options.
    Raise Retryable while the brokers don't answer. A repeated call writes everything again; a killed call has written a
    part.
    """
    deliveries = _deliveries(pipeline, duplicates=duplicates, seed=seed, files=files, records=records)
    client = _producer(source)
    failed: list[str] = []

    def note_failure(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    pairs = zip(deliveries.ids, deliveries.payloads, strict=True)
    for part in paced([{"key": record_id, "value": payload} for record_id, payload in pairs], rate):
        for message in part:
            client.produce(source.topic, on_delivery=note_failure, **message)
        client.poll(0)
    if client.flush(ANSWER_SECONDS) or failed:
        raise Retryable(
            f"Kafka at {source.servers} has not taken all messages: {failed[0] if failed else 'no answer'}",
            data="a part of the data set is in the topic; the same feed again writes all of it again, as re-deliveries",
            hint="run the same command again when the brokers are up",
        )
    return deliveries.sent_to(source.topic)


def _producer(source: Kafka) -> Any:
    """Return a client that writes to the topic. Raise as `feed_kafka`, with nothing written."""
    if source.schema_ids or source.of_envelope:
        raise Refused(
            f"the feed writes JSON and keys of text, and topic {source.topic} is declared as {source.layout()}",
            hint="write to such a topic with a producer of your own, and the serializer of its format",
        )
    if source.options:
        raise Refused(
            f"the feed writes to plain brokers only, and topic {source.topic} is declared with "
            f"{', '.join(source.options)}",
            hint="its client has other names for these options; write to such a topic with a producer of your own",
        )
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError as error:
        raise not_installed("confluent_kafka") from error
    client = Producer(
        {
            "bootstrap.servers": source.servers, "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 50,
            "queue.buffering.max.messages": 10 * MILLION,
        },
        logger=_quiet,
    )  # fmt: skip
    try:
        topic = client.list_topics(source.topic, timeout=ANSWER_SECONDS).topics[source.topic]
    except KafkaException as error:
        raise Retryable(
            f"Kafka at {source.servers} does not answer: {error}",
            data="nothing was written",
            hint="run the same command again when the brokers are up",
        ) from error
    if topic.error is not None:
        raise Refused(f"there is no topic {source.topic!r} at {source.servers}: {topic.error}", hint="make it first")
    return client
