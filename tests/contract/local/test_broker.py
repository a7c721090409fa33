"""The broker that the tests of Kafka stand on: real, and it keeps what it has taken when it is killed."""

from __future__ import annotations

from tests.support.broker import Broker


def test_a_killed_broker_has_its_records_when_it_is_up_again(broker: Broker) -> None:
    """What was acknowledged before SIGKILL is read after the next start; an aborted transaction is not."""
    topic = broker.topic("kept", partitions=2)
    producer = broker.producer(transactional_id=f"{topic}-writer")
    producer.init_transactions(30)
    for values, end in (((b"a", b"b"), producer.commit_transaction), ((b"c",), producer.abort_transaction)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        end(30)
    broker.produce(topic, "d", None, partition=1)

    broker.kill()
    broker.start()

    there = sorted((one.partition(), one.offset(), one.value()) for one in broker.read(topic, 2))
    assert there == [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"d"), (1, 1, None)]
