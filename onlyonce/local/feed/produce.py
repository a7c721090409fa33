"""Writes a data set to the topic of a pipeline: messages in arrival order, with re-deliveries mixed in.

Which records, in which order and how often is fixed by the arguments, as for files (`deliver`). The key of a message is
its record id, so all deliveries of a record are in one partition, in their order; over partitions the order is whatever
the reader makes of it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from onlyonce.declare.sources.kafka import Kafka
from onlyonce.local.feed import deliver, publish
from onlyonce.model.errors import Refused, Retryable

ANSWER_SECONDS = 60.0
MILLION = 1_000_000

# The client tells each lost connection on stderr; what comes of it is in the error.
_quiet = logging.getLogger("onlyonce.local.feed.produce")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


@dataclass(frozen=True)
class Produced:
    """What a feed has written."""

    topic: str
    messages: int
    distinct: int
    duplicates: int


def feed(
    pipeline: str, source: Kafka, *, duplicates: float, seed: int, files: int | None, records: int | None,
    rate: float | None = None,
) -> Produced:  # fmt: skip
    """Write the pipeline's data set to its topic, `rate` messages a second if that is given.

    Called by the command line.

    Raises Refused for an unknown data set, an argument out of range, a topic that is not there, or brokers that want
    options; Retryable while they don't answer. Not promised: that the same call again adds nothing; one that was killed
    has written a part.
    """
    arrivals, parts = deliver.delivered(pipeline, duplicates=duplicates, seed=seed, files=files, records=records)
    order = np.concatenate(parts)
    values = deliver.json_lines(arrivals)[order]
    keys = publish.record_ids(arrivals, deliver.DATA_SETS[pipeline].record_id)[order]
    client = _producer(source)
    failed: list[str] = []

    def told(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    for part in publish.paced([{"key": k, "value": v} for k, v in zip(keys, values, strict=True)], rate):
        for message in part:
            client.produce(source.topic, on_delivery=told, **message)
        client.poll(0)
    if client.flush(ANSWER_SECONDS) or failed:
        raise Retryable(
            f"Kafka at {source.servers} has not taken all messages: {failed[0] if failed else 'no answer'}",
            data="a part of the data set is in the topic; the same feed again writes all of it again, as re-deliveries",
            hint="run the same command again when the brokers are up",
        )
    return Produced(source.topic, len(values), len(arrivals), len(values) - len(arrivals))


def _producer(source: Kafka) -> Any:
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
        raise Refused(
            "the package confluent-kafka is not installed", hint="pip install 'onlyonce-pipelines[kafka]'"
        ) from error
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
