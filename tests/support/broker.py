"""A real Kafka broker (KRaft, one process) for the tests, from the jars of `.venv/broker`."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from tests.support.needed import missing
from tests.support.platform import ROOT

JARS = ROOT / ".venv" / "broker"
PATIENCE = 60.0
"""Seconds that a broker may take to answer. It takes about four."""
MEMORY = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Nothing goes by its time, since tests write messages of any time; what is to go they delete.
# The session is short, since a killed broker is let in again when that of its old incarnation has run out.
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
log.retention.ms=-1
auto.create.topics.enable=false
num.partitions=1
num.network.threads=2
num.io.threads=2
background.threads=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=2097152
log.cleaner.backoff.ms=100
"""
CLEANABLE: dict[str, Any] = {"segment_ms": "1", "min_cleanable_dirty_ratio": "0.001"}
"""Options of a topic of which each message that is sent by itself begins a segment: the cleaner takes all but the
last."""
GUARDED = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},GUARDED://127.0.0.1:{guarded}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},GUARDED://127.0.0.1:{guarded}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_SSL
inter.broker.listener.name=PLAINTEXT
listener.name.guarded.ssl.keystore.type=PKCS12
listener.name.guarded.ssl.keystore.location={keystore}
listener.name.guarded.ssl.keystore.password={password}
listener.name.guarded.sasl.enabled.mechanisms=PLAIN
listener.name.guarded.plain.sasl.jaas.config={login} user_onlyonce="{password}";
"""
"""A second door, by TLS, for those who have the password; the tests' own clients take the first. A line takes the place
of an earlier one."""
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Broker:
    """A broker with a folder and a port of its own, which both stay when it is killed and started again.

    With a password it has a second port, `guarded`, by TLS, where user `onlyonce` must say it. Who connects there
    trusts `certificate`.
    """

    def __init__(self, folder: Path, password: str = "") -> None:
        required()
        self.folder = folder
        self.port, controller, guarded = _free_ports()
        self.servers = f"127.0.0.1:{self.port}"
        self.guarded = f"127.0.0.1:{guarded}"
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = folder / "server.properties"
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / "data"
        text = SETTINGS.format(port=self.port, controller=controller, data=data)
        self.certificate = folder / "certificate.pem"
        if password:
            text += GUARDED.format(
                port=self.port, controller=controller, guarded=guarded, login=LOGIN, password=password,
                keystore=_certified(self.certificate, password),
            )  # fmt: skip
        self._settings.write_text(text)
        identity = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        # An id that begins with a dash would be taken for an option.
        _run(
            folder,
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            f"--cluster-id={identity}",
            "-c",
            str(self._settings),
        )

    def start(self) -> None:
        """Start it, and wait until it answers; again on the same data after a stop or a kill."""
        with (self.folder / "broker.log").open("ab") as out:
            self._process = subprocess.Popen(
                _java("kafka.Kafka", str(self._settings)),
                cwd=self.folder,
                env=_environment(),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        waits = Retrying(
            wait=wait_fixed(0.1), stop=stop_after_delay(PATIENCE), retry=retry_if_result(lambda up: not up)
        )
        try:
            waits(self._answers)
        except RetryError as error:
            raise AssertionError(f"the broker does not answer: {self.log()}") from error

    def stop(self) -> None:
        """End it as an operator does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def log(self) -> str:
        """The end of what it has said."""
        return (self.folder / "broker.log").read_text(errors="replace")[-3000:]

    @cached_property
    def admin(self) -> Any:
        """A client for administration, of confluent-kafka. It outlives the broker's kills."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "reconnect.backoff.max.ms": 200}, logger=_silent())

    def topic(self, name: str = "topic", partitions: int = 1, **config: str) -> str:
        """Make a topic; its name begins with `name` and is unique. Options have `_` for a dot: `cleanup_policy`."""
        unique = f"{name}-{uuid4().hex[:12]}"
        self.make_topic(unique, partitions, **config)
        return unique

    def make_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Make a topic of exactly this name, and wait until its leaders are known."""
        from confluent_kafka.cimpl import NewTopic

        options = {option.replace("_", "."): value for option, value in config.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=options)
        self.admin.create_topics([new])[name].result(PATIENCE)
        self._await_partitions(name, partitions)

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions."""
        from confluent_kafka.cimpl import NewPartitions

        self.admin.create_partitions([NewPartitions(name, total)])[name].result(PATIENCE)
        self._await_partitions(name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin.delete_topics([name])[name].result(PATIENCE)
        waits = Retrying(wait=wait_fixed(0.05), stop=stop_after_delay(PATIENCE), retry=retry_if_result(bool))
        waits(lambda: name in self.admin.list_topics(timeout=10).topics)

    def delete_before(self, name: str, partition: int, offset: int) -> None:
        """Delete the records below `offset`, as retention does."""
        from confluent_kafka import TopicPartition

        place = TopicPartition(name, partition, offset)
        self.admin.delete_records([place])[place].result(PATIENCE)

    def compact(self, name: str) -> None:
        """Make a topic of one partition compacted, and wait until the broker has removed a message.

        Such a topic is made with CLEANABLE.
        """
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        before = len(self.read(name, 1))
        policy = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[policy])
        self.admin.incremental_alter_configs([changed])[changed].result(PATIENCE)
        waits = Retrying(
            wait=wait_fixed(0.1), stop=stop_after_delay(PATIENCE), retry=retry_if_result(lambda there: there >= before)
        )
        waits(lambda: len(self.read(name, 1)))

    def producer(self, **config: Any) -> Any:
        """A producer of confluent-kafka; an option has `_` for a dot: `transactional_id='one'`."""
        from confluent_kafka import Producer

        options = {option.replace("_", "."): value for option, value in config.items()}
        return Producer({"bootstrap.servers": self.servers, **options}, logger=_silent())

    def produce(self, topic: str, *values: bytes | str | None, partition: int = 0, **more: Any) -> list[int]:
        """Send the values to one partition, in their order, and wait until all are written; gives their offsets.

        `more`: key, headers, timestamp.
        """
        producer = self.producer(linger_ms=5, enable_idempotence=True)
        failed: list[Any] = []
        offsets: list[int] = []

        def told(error: Any, message: Any) -> None:
            if error:
                failed.append(error)
            else:
                offsets.append(message.offset())

        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=told, **more)
        assert producer.flush(PATIENCE) == 0, self.log()
        assert not failed, failed
        return offsets

    def read(self, topic: str, partitions: int) -> list[Any]:
        """All messages that a reader of committed ones sees now, one partition after the other in turn."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        reader: Any = Consumer(
            {
                "bootstrap.servers": self.servers, "group.id": "reader", "enable.partition.eof": True,
                "enable.auto.commit": False,
            },
            logger=_silent(),
        )  # fmt: skip
        reader.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in range(partitions)])
        found: list[Any] = []
        ended: set[int] = set()
        while len(ended) < partitions:
            message = reader.poll(PATIENCE)
            assert message is not None, self.log()
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        reader.close()
        return found

    def _await_partitions(self, name: str, partitions: int) -> None:
        def led() -> bool:
            found = self.admin.list_topics(name, timeout=10).topics[name].partitions
            return len(found) == partitions and all(one.leader >= 0 and one.error is None for one in found.values())

        waits = Retrying(
            wait=wait_fixed(0.05), stop=stop_after_delay(PATIENCE), retry=retry_if_result(lambda up: not up)
        )
        waits(led)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        assert self._process is not None
        assert self._process.poll() is None, f"the broker has ended: {self.log()}"
        try:
            return bool(self.admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None


def required() -> None:
    """Skip a test where the broker's jars are missing; in continuous integration that is a failure."""
    if not any(JARS.glob("kafka_*.jar")):
        missing(f"no Kafka broker in {JARS}: `make .venv/broker` gets its jars (so does `make test`)")


@contextmanager
def running(folder: Path, password: str = "") -> Iterator[Broker]:
    """A broker of one's own, which ends with the block, with its data."""
    broker = Broker(folder, password)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports() -> list[int]:
    # All held at once, so that they differ.
    with ExitStack() as held:
        found = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        return [one.getsockname()[1] for one in found]


def _certified(certificate: Path, password: str) -> Path:
    """Make a key for this machine's own address and its certificate, which nobody else has signed; gives the file of
    both."""
    keystore = certificate.with_suffix(".p12")
    store = ["-keystore", str(keystore), "-storetype", "PKCS12", "-storepass", password, "-alias", "broker"]
    make = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=broker", "-ext", "SAN=IP:127.0.0.1", "-validity", "2"]
    _done(certificate.parent, [_of_java("keytool"), *make, *store])
    _done(certificate.parent, [_of_java("keytool"), "-exportcert", "-rfc", "-file", str(certificate), *store])
    return keystore


def _of_java(program: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / program) if home else program


def _java(*command: str) -> list[str]:
    return [_of_java("java"), *MEMORY, "-cp", f"{JARS}/*", *command]


def _environment() -> dict[str, str]:
    """Without the options of Spark's JVM, which may name another collector."""
    return {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}


def _run(folder: Path, *command: str) -> None:
    _done(folder, _java(*command))


def _done(folder: Path, command: list[str]) -> None:
    done = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")[-2000:]


def _silent() -> Any:
    # librdkafka tells each lost connection on stderr, and brokers are killed here.
    import logging

    logger = logging.getLogger("tests.broker")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
