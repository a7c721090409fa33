"""What the tests of Kafka share: a topic with sales in it, and what each batch of a run had of it, by offsets of the
log."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from onlyonce.sources.record_id import RecordId, of_file, of_place
from tests.support.broker import Broker
from tests.support.platform import Platform


@dataclass
class Shop:
    """A topic of the pipeline `shop`, and by (partition, offset) what has been put into it that has a fate."""

    broker: Broker
    topic: str
    put: dict[tuple[int, int], Any] = field(default_factory=dict)

    def name(self, platform: Platform, patch: pytest.MonkeyPatch, **more: str) -> None:
        """Make it the topic of the platform's declarations. `more`: SHOP_BY and the like."""
        platform.give(patch, SHOP_TOPIC=self.topic, SHOP_SERVERS=self.broker.servers, **more)

    def send(self, partition: int, *values: Any, keep: bool = True, **more: Any) -> dict[tuple[int, int], Any]:
        """Send messages to one partition, as they are or as JSON, and give their places, noted if they are to
        `keep`."""
        messages = [one if one is None or isinstance(one, bytes) else json.dumps(one).encode() for one in values]
        offsets = self.broker.produce(self.topic, *messages, partition=partition, **more)
        noted = {(partition, offset): value for offset, value in zip(offsets, values, strict=True)}
        if keep:
            self.put |= noted
        return noted

    def add(self, producer: Any, partition: int, value: Any) -> dict[tuple[int, int], Any]:
        """Send one message by a producer, in its transaction, and give its place."""
        noted: dict[tuple[int, int], Any] = {}

        def told(error: Any, message: Any) -> None:
            assert error is None, error
            noted[partition, message.offset()] = value

        producer.produce(self.topic, json.dumps(value), partition=partition, on_delivery=told)
        assert producer.flush(60) == 0
        return noted

    def send_sales(self, sales: list[dict[str, Any]], partitions: int) -> None:
        """Send sales, one partition after the other in turn, in their order."""
        for partition in range(partitions):
            self.send(partition, *sales[partition::partitions])

    def batches(self, platform: Platform, instance: str = "shop") -> list[list[Any]]:
        """What each committed batch of receive had to read, in their order, by the offsets in the log."""
        return [[self.put[place] for place in cut if place in self.put] for cut in cuts(platform, instance)]

    def ids(self) -> Counter[str]:
        """The id of each message that has been put, by its place."""
        return Counter(str(of_place(of_file(f"{self.topic}/{part}"), offset)) for part, offset in self.put)


def cuts(platform: Platform, instance: str) -> list[list[tuple[int, int]]]:
    """The places (partition, offset) that each committed batch of receive had to read, in their order, by the log."""
    rows = platform.sql(
        "SELECT end_offset->'offsets' AS offsets FROM onlyonce.batches WHERE query = 'receive' "
        f"AND instance = '{instance}' AND state = 'committed' ORDER BY incarnation, batch"
    )
    ranges = [[(int(place.rsplit("/", 1)[1]), *ends) for place, ends in row.items()] for row in rows["offsets"]]
    return [[(part, n) for part, first, until in one for n in range(first, until)] for one in ranges]


def ids(platform: Platform, instance: str = "shop", kinds: tuple[str, ...] = ("kept", "invalid")) -> Counter[str]:
    """The ids of the rows of `events`."""
    from deltalake import DeltaTable

    # Not by pandas: control rows have no id, and with a null among them it makes floats of 64 bits.
    table = DeltaTable(str(platform.home / "data" / instance / "events"))
    halves = table.to_pyarrow_table(columns=["oo_high", "oo_low"], filters=[("oo_kind", "in", list(kinds))])
    return Counter(str(RecordId(row["oo_high"], row["oo_low"])) for row in halves.to_pylist())
