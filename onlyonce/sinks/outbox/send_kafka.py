"""Send units to Kafka: a unit is one transaction, which also writes the unit's name to a compacted topic.

A deliverer reads that topic at its start, and so knows what is committed. The transactional id belongs to the output.
So opening the producer fences an older deliverer's, and ends its transaction, before the topic is read. A key of the
compacted topic is incarnation, sink and partition, and its value is the last unit. The units of a partition come in
order, so one record for each partition is enough.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from uuid import uuid4

from onlyonce import environment
from onlyonce.api.declaration import declared_at
from onlyonce.api.pipeline import KafkaSink
from onlyonce.core import conversions, stored_names
from onlyonce.core.delivery import IN_OUTBOX, Guarantee, Row, Unsent, told
from onlyonce.core.durations import in_words
from onlyonce.core.errors import CommitStateUnknown, InvariantBroken, Refused, Superseded
from onlyonce.unexpected import not_installed

TRANSACTION = "transaction.timeout.ms"
ANSWER_SECONDS = 30.0


def settings_of(text: str) -> dict[str, Any]:
    """Parse librdkafka's settings: JSON, or the brokers alone. Raise Refused."""
    if not text.lstrip().startswith("{"):
        return {"bootstrap.servers": text.strip()}
    try:
        return dict(json.loads(text))
    except ValueError as error:
        raise Refused(
            "the settings of a Kafka sink are not JSON", data="nothing was sent", hint="host:port,…"
        ) from error


def too_large(connection: str, unit: str, rows: int, seconds: float) -> Refused:
    """Return the error for a unit whose transaction brokers would end before it is complete, at each attempt."""
    return Refused(
        f"unit {unit} is too large for one transaction of Kafka: after {seconds:.0f} s {rows} of its rows were sent, "
        "and the brokers end a transaction that takes longer",
        data="the transaction was undone; its rows wait in the outbox, and all after them",
        hint=f"allow more: {TRANSACTION} in the JSON of {connection} (brokers bound it by "
        "transaction.max.timeout.ms), then: onlyonce deliver. For later units: smaller batches, or more partitions",
    )


def read_back(settings: dict[str, Any], topic: str, units: str, patience: float) -> dict[str, dict[str, Any]]:
    """Return the last unit of each partition of each incarnation.

    The caller's producer has ended its own old transaction. Transactions of other producers in the same topic are
    awaited. Raise Refused for a topic that is missing or not compacted, and Unsent if the topic can't be read in time.
    """
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(settings)
    known = admin.list_topics(timeout=patience).topics
    if topic not in known:
        raise Refused(
            f"Kafka has no topic {topic}",
            data="nothing was sent; the rows wait in the outbox",
            hint="make it, with as many partitions as its readers need; then: onlyonce deliver",
        )
    if units not in known:
        _make(admin, units, patience)
    _check(admin, units, patience)
    partitions = list(admin.list_topics(units, timeout=patience).topics[units].partitions)
    return _read(settings, units, partitions, patience)


def _make(admin: Any, units: str, patience: float) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewTopic

    new = NewTopic(units, num_partitions=1, replication_factor=-1, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([new], operation_timeout=patience)[units].result(patience)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise
    end = time.monotonic() + patience
    while units not in admin.list_topics(timeout=patience).topics:
        if time.monotonic() > end:
            raise Unsent(f"topic {units} was made and can't be seen", data="nothing was sent", hint="onlyonce deliver")
        time.sleep(0.05)


def configuration(settings: dict[str, Any], topic: str) -> dict[str, str] | None:
    """Return the settings of a topic; None if the broker does not report them."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return _configuration(AdminClient(settings), topic, ANSWER_SECONDS)
    except KafkaException:
        return None


def _configuration(admin: Any, topic: str, patience: float) -> dict[str, str]:
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return {name: one.value for name, one in admin.describe_configs([asked])[asked].result(patience).items()}


def _check(admin: Any, units: str, patience: float) -> None:
    policy = _configuration(admin, units, patience)["cleanup.policy"]
    if policy != "compact":
        raise Refused(
            f"topic {units} has cleanup.policy={policy}, so it would forget which units are committed",
            data="nothing was sent; the rows wait in the outbox",
            hint="set cleanup.policy=compact, or name another units_topic",
        )


def _read(settings: dict[str, Any], units: str, partitions: list[int], patience: float) -> dict[str, dict[str, Any]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
    from confluent_kafka.cimpl import KafkaError

    plain = {"group.id": f"onlyonce-{uuid4()}", "enable.auto.commit": False}
    # The present end, open transactions of others included: a reader of committed messages would stop before them.
    looking: Any = Consumer(settings | plain | {"isolation.level": "read_uncommitted"})
    try:
        places = [TopicPartition(units, partition) for partition in partitions]
        ends = {p.partition: looking.get_watermark_offsets(p, timeout=patience) for p in places}
    finally:
        looking.close()
    left = {partition: high for partition, (low, high) in ends.items() if high > low}
    there: dict[str, dict[str, Any]] = {}
    reader: Any = Consumer(settings | plain | {"isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        reader.assign([TopicPartition(units, partition, OFFSET_BEGINNING) for partition in left])
        end = time.monotonic() + patience
        while left:
            if time.monotonic() > end:
                raise Unsent(
                    f"topic {units} could not be read to its end in {patience:.0f} s",
                    data="nothing was sent; the rows wait in the outbox",
                    hint="another output's transaction is open there, until it ends; then: onlyonce deliver",
                )
            message = reader.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                there[message.key().decode()] = json.loads(message.value())
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(message.error())
            position = reader.position([TopicPartition(units, message.partition())])[0].offset
            if max(position, message.offset()) >= left.get(message.partition(), 0):
                left.pop(message.partition(), None)
    finally:
        reader.close()
    return there


LOG = logging.getLogger("onlyonce.kafka")
FLUSH_EVERY = 10_000
LEAST_TRANSACTION_SECONDS = 300.0
"""The shortest time for which a transaction may stay open.

It holds a whole unit, and brokers end a transaction that takes longer. They allow 15 minutes.
"""
FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
WRONG = {
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "TOPIC_AUTHORIZATION_FAILED",
    "MSG_SIZE_TOO_LARGE",
    "_AUTHENTICATION",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "INVALID_TRANSACTION_TIMEOUT",
    "POLICY_VIOLATION",
}


class KafkaTarget:
    """One topic, for one deliverer."""

    guarantee: Guarantee = "exactly_once"

    def __init__(
        self,
        sink: KafkaSink,
        producer: Any,
        there: dict[str, dict[str, Any]],
        seconds: float = LEAST_TRANSACTION_SECONDS,
    ) -> None:
        self._sink, self._producer, self._there, self._seconds = sink, producer, there, seconds

    def committed(self, unit: str) -> bool:
        """Return whether the compacted topic had the unit when this deliverer began, or it has written the unit since.

        Raise InvariantBroken if the topic has a later batch.
        """
        place, batch = place_of(unit)
        last = self._there.get(place)
        if last is None or last["batch"] < batch:
            return False
        if last["batch"] > batch:
            raise InvariantBroken(
                f"topic {self._sink.topic} has batch {last['batch']} of {place}, and the log would send batch {batch}",
                data="nothing was sent; the topic has more than the log knows of",
                hint="was the log restored from an older backup? Then compare the topic with onlyonce.outbox by hand",
            )
        return True

    def write(self, unit: str, rows: Iterator[Row]) -> None:
        """Write the unit in one transaction.

        Raise Unsent if it was undone, Superseded if another deliverer has taken over, or Refused. Raise
        CommitStateUnknown if the answer to the commit was lost: the next deliverer reads the topic.
        """
        from confluent_kafka import KafkaException

        try:
            with _errors_of_the_client():
                self._producer.begin_transaction()
                self._produce(unit, rows)
        except (KafkaException, BufferError) as error:
            self._undo(error)
        except BaseException:
            self._abort()
            raise
        try:
            with _errors_of_the_client():
                self._producer.commit_transaction(self._sink.timeout.total_seconds())
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._undo(error)
            raise_if_final(error, self._sink)
            raise CommitStateUnknown(
                f"Kafka's answer to the commit of unit {unit} was lost: {told(str(error))}",
                data="the transaction is whole in the topic, or it never will be",
                hint="onlyonce deliver reads the topic and decides",
            ) from error
        place, batch = place_of(unit)
        self._there[place] = {"batch": batch}

    def _produce(self, unit: str, rows: Iterator[Row]) -> None:
        failed: list[Any] = []

        def came(error: Any, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        number, digest, begun = 0, hashlib.sha256(), time.monotonic()
        for number, row in enumerate(rows, 1):
            if time.monotonic() - begun > self._seconds:
                raise too_large(self._sink.connection, unit, number, self._seconds)
            digest.update(row.payload.encode())
            self._put(self._sink.topic, message_key(row, self._sink), row.payload, headers(unit, row, self._sink), came)
            if number % FLUSH_EVERY == 0:
                self._flush(failed)
        place, batch = place_of(unit)
        note = {"unit": unit, "batch": batch, "rows": number, "sha256": digest.hexdigest()}
        self._put(self._sink.units, place, json.dumps(note), [], came)
        self._flush(failed)

    def _put(self, topic: str, key: str | None, value: str, of_row: list[tuple[str, bytes | None]], came: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value.encode(), key, headers=of_row, on_delivery=came)
            except BufferError:  # the queue is full: wait until some messages are sent
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _flush(self, failed: list[Any]) -> None:
        from confluent_kafka import KafkaException

        left = self._producer.flush(self._sink.timeout.total_seconds())
        if failed:
            raise KafkaException(failed[0])
        if left:
            raise BufferError(f"{left} message(s) were not taken in {in_words(self._sink.timeout)}")

    def _undo(self, error: Exception) -> None:
        """Abort the transaction, and raise the reason."""
        self._abort()
        raise_if_final(error, self._sink)
        raise Unsent(
            f"Kafka did not take the rows: {told(str(error))}",
            data="the transaction was undone; they wait in the outbox",
            hint="is the broker up? Then: onlyonce deliver",
        ) from error

    def _abort(self) -> None:
        from confluent_kafka import KafkaException

        # If that fails, the next deliverer ends the transaction by opening the producer, or the broker does by its
        # timeout.
        with suppress(KafkaException), _errors_of_the_client():
            self._producer.abort_transaction(self._sink.timeout.total_seconds())

    def close(self) -> None:
        """Close the producer: messages that are not committed by now never will be."""
        from confluent_kafka import KafkaException

        with suppress(KafkaException), _errors_of_the_client():  # a fenced producer raises its error again
            self._producer.purge()
            self._producer.flush(1.0)


@contextmanager
def _errors_of_the_client() -> Iterator[None]:
    """Run the block, and raise a fatal error of the client itself.

    If the client also reports a message in the same call, the error arrives as the cause of a SystemError.
    """
    try:
        yield
    except SystemError as error:
        raise error.__cause__ or error from None


@contextmanager
def opened_producer(sink: KafkaSink, deliverer: str) -> Iterator[KafkaTarget]:
    """Open the topic with a producer that has fenced the earlier ones. Raise Refused or Unsent."""
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError as error:
        raise not_installed(sink.package, declared_at(sink), IN_OUTBOX, " where `onlyonce deliver` runs") from error
    connection = environment.variable(sink.connection)
    if connection is None:
        raise Refused(
            f"the environment variable {sink.connection} of a Kafka sink {environment.why_missing(sink.connection)}",
            data=IN_OUTBOX,
            hint=f"set {sink.connection} to the brokers, host:port,…, where `onlyonce deliver` runs",
        )
    settings, patience = settings_of(connection), sink.timeout.total_seconds()
    allowed = {TRANSACTION: int(max(patience, LEAST_TRANSACTION_SECONDS) * 1000)}
    own = {"transactional.id": stored_names.transactional_id(sink.prefix, deliverer), "partitioner": "murmur2_random"}
    own["message.timeout.ms"] = str(int(patience * 1000))
    seconds = float((allowed | settings)[TRANSACTION]) / 1000
    try:
        producer = Producer({"message.max.bytes": 100_000_000, "linger.ms": 5} | allowed | settings | own, logger=LOG)
        producer.init_transactions(patience)
        there = read_back(settings, sink.topic, sink.units, patience)
    except KafkaException as error:
        raise_if_final(error, sink)
        raise Unsent(
            f"Kafka does not answer: {told(str(error))}",
            data="nothing was sent; the rows wait in the outbox",
            hint=f"is the broker up, and {sink.connection} right? Then: onlyonce deliver",
        ) from error
    with closing(KafkaTarget(sink, producer, there, seconds)) as target:
        yield target


def raise_if_final(error: Exception, sink: KafkaSink) -> None:
    """Raise Superseded or Refused if another try would not help."""
    name = error.args[0].name() if error.args and hasattr(error.args[0], "name") else ""
    if name in FENCED:
        raise Superseded(
            f"another deliverer writes to topic {sink.topic} under the same transactional id",
            data="the transaction of this one was undone; its rows wait in the outbox",
            hint="nothing to do; if it is another platform's, give each a prefix of its own",
        ) from error
    if name in WRONG:
        raise Refused(
            f"Kafka refuses what is sent to topic {sink.topic}: {told(str(error))}",
            data="the transaction was undone; its rows wait in the outbox, and all after them",
            hint="fix the topic (is it there? may it be written? max.message.bytes?), then: onlyonce deliver",
        ) from error


def place_of(unit: str) -> tuple[str, int]:
    """Split a unit's name into its place (incarnation, sink, partition and the incarnation's own id) and its batch
    number.
    """
    path, _, checkpoint_id = unit.rpartition("@")  # an incarnation of a backfill contains an @, too
    incarnation, batch, sink, partition = path.rsplit("/", 3)
    return stored_names.unit_sequence(incarnation, sink, partition, checkpoint_id), int(batch)


def message_key(row: Row, sink: KafkaSink) -> str | None:
    """Return the message's key: the string of one key column, JSON of several; None without a key."""
    if not sink.keys or row.key is None:
        return None
    if len(sink.keys) > 1:
        return row.key
    return _string(next(iter(conversions.parsed(row.key).values())))


def headers(unit: str, row: Row, sink: KafkaSink) -> list[tuple[str, bytes | None]]:
    """Return the declared headers, and unit and row number for readers that are not read_committed."""
    found = [("onlyonce-unit", unit.encode()), ("onlyonce-seq", str(row.seq).encode())]
    values = conversions.parsed(row.payload) if sink.headers else {}
    declared = [(name, _string(values.get(name))) for name in sink.headers]
    return [*found, *((name, None if value is None else value.encode()) for name, value in declared)]


def _string(value: Any) -> str | None:
    """Return a value as stored in the row: a decimal that passes through a float could become another key."""
    return None if value is None else conversions.text(value)
