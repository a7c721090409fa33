"""The feed of a topic, on a real broker and without Spark: what it writes is what the files would hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from onlyonce.api.messages import Kafka
from onlyonce.core.errors import Refused
from onlyonce.local import feed, feed_messages
from tests.support.broker import Broker


def test_a_topic_gets_what_the_files_would_hold(broker: Broker) -> None:
    """The same lines as often, each record's deliveries in one partition, on several partitions; again the same on
    demand."""
    topic = broker.topic("flights", partitions=3)
    source = Kafka(topic=topic, servers=broker.servers)
    asked: dict[str, Any] = {"duplicates": 0.2, "seed": 3, "files": None, "records": 500}

    fed = feed_messages.feed_kafka("user_counts", source, **asked)

    arrivals, parts = feed.delivered("user_counts", **asked)
    lines = feed.json_lines(arrivals)
    wanted = Counter(lines[one] for part in parts for one in part)
    there = broker.read(topic, 3)
    assert Counter(message.value().decode() for message in there) == wanted
    assert (fed.messages, fed.distinct, fed.duplicates) == (len(there), 500, len(there) - 500)
    places: dict[bytes, set[int]] = {}
    for message in there:
        places.setdefault(message.key(), set()).add(message.partition())
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len(set.union(*places.values())) == 3


def test_a_missing_topic_is_refused(broker: Broker) -> None:
    """With its name, and nothing is made in passing."""
    with pytest.raises(Refused, match="no topic 'nowhere'"):
        feed_messages.feed_kafka(
            "user_counts",
            Kafka(topic="nowhere", servers=broker.servers),
            duplicates=0,
            seed=1,
            files=None,
            records=5,
        )
    assert "nowhere" not in broker.admin.list_topics(timeout=30).topics
