"""Publishes a data set to the topic of a pipeline's subscription: messages in arrival order, with re-deliveries mixed
in.

Which records, in which order and how often is fixed by the arguments, as for files (`deliver`). A re-delivery is what a
publisher does that sends twice: a new message with the same attribute. A pipeline that goes by the message id takes it
for another record.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from onlyonce.declare.sources.sources import PubSub
from onlyonce.local.feed import deliver
from onlyonce.sources import pubsub

AT_ONCE = 500
"""Messages of one request; Pub/Sub takes 1000, and 10 MB."""
TICKS = 20
"""With a rate: so many requests a second at most."""
ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Published:
    """What a feed has sent."""

    topic: str
    messages: int
    distinct: int
    duplicates: int


def feed(
    pipeline: str, source: PubSub, *, duplicates: float, seed: int, files: int | None, records: int | None,
    rate: float | None = None,
) -> Published:  # fmt: skip
    """Publish the pipeline's data set, `rate` messages a second if that is given. Called by the command line and tests.

    Raises Refused for an unknown data set or an argument out of range, and when the subscription is not there, with
    nothing published: what is published before it exists is not delivered to it. Not promised: that the same call again
    adds nothing; one that was killed has published a part.
    """
    arrivals, parts = deliver.delivered(pipeline, duplicates=duplicates, seed=seed, files=files, records=records)
    with pubsub.Subscription(source) as subscription:
        topic = subscription.facts().topic
    order = np.concatenate(parts)
    payloads = deliver.json_lines(arrivals)[order]
    ids = record_ids(arrivals, deliver.DATA_SETS[pipeline].record_id)[order]
    named = source.record_id_attribute
    messages = [
        {"data": payload.encode(), "attributes": {named: one} if named else {}}
        for payload, one in zip(payloads, ids, strict=True)
    ]
    with pubsub.publishing() as client:
        for part in paced(messages, rate):
            client.publish(topic=topic, messages=part, timeout=ANSWER_SECONDS)
    return Published(topic, len(messages), len(arrivals), len(messages) - len(arrivals))


def record_ids(arrivals: pd.DataFrame, columns: tuple[str, ...]) -> np.ndarray:
    """The value of the attribute for each record: its id columns, joined by a bar."""
    return np.array(arrivals[list(columns)].astype(str).agg("|".join, axis=1), dtype=object)


def paced(messages: list[dict[str, object]], rate: float | None) -> Iterator[list[dict[str, object]]]:
    """Parts of the messages, each no sooner than its first message is due."""
    size = AT_ONCE if rate is None else max(1, min(AT_ONCE, round(rate / TICKS)))
    begun = time.monotonic()
    for start in range(0, len(messages), size):
        if rate is not None:
            time.sleep(max(0.0, begun + start / rate - time.monotonic()))
        yield messages[start : start + size]
