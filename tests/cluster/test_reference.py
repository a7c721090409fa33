"""The real set-up as plain processes: both pipelines that ship, from a Kafka by TLS that asks for a password, on a
master and two workers, with PostgreSQL over TCP by passwords."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from onlyonce.api import load as declarations
from onlyonce.api.messages import Kafka
from onlyonce.local import feed_messages
from tests.cluster.standalone import Cluster, cluster
from tests.cluster.test_standalone import onlyonce
from tests.spark.sources.test_kafka_reference import as_files
from tests.support import broker as brokers
from tests.support.broker import Broker
from tests.support.platform import Platform
from tests.support.reference import compare

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

PASSWORD = uuid4().hex


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that asks who is there."""
    with brokers.running(tmp_path_factory.mktemp("guarded") / "broker", PASSWORD) as made:
        yield made


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers."""
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2) as made:
        yield made


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of somebody else."""
    return brokers.Broker(tmp_path_factory.mktemp("stranger") / "broker", "another").certificate


def login(password: str) -> str:
    """What TOPIC_LOGIN holds: who asks, by Kafka's own words."""
    return f'{brokers.LOGIN} username="onlyonce" password="{password}";'


@pytest.mark.parametrize(
    ("name", "records", "offsets", "wrong"),
    [("user_counts", 4000, 1500, "password"), ("flights", 12_000, 5000, "certificate")],
)
def test_both_pipelines_run_on_the_real_set_up(
    new_platform: Callable[..., Platform], guarded: Broker, spark_cluster: Cluster, stranger: Path,
    monkeypatch: pytest.MonkeyPatch, name: str, records: int, offsets: int, wrong: str,
) -> None:  # fmt: skip
    """With re-deliveries: every output is the batch over the rows in time.

    Without the password, or from a broker that nobody has vouched for, nothing is read, nor is any password told."""
    platform = new_platform("tests/support/topic_pipelines.py")
    platform.give(
        monkeypatch, TOPICS=uuid4().hex[:8], TOPIC_SERVERS=guarded.guarded, TOPIC_OFFSETS=str(offsets),
        TOPIC_LOGIN=login("a guess" if wrong == "password" else PASSWORD),
        TOPIC_TRUST=str(stranger if wrong == "certificate" else guarded.certificate),
    )  # fmt: skip
    source = declarations.load()[name].source
    assert isinstance(source, Kafka)
    guarded.make_topic(source.topic, partitions=4)
    plain = replace(source, servers=guarded.servers, options={})
    feed_messages.feed_kafka(name, plain, duplicates=0.1, seed=1, files=None, records=records)

    refused = onlyonce(platform, "run", name, "--close", "--master", spark_cluster.master)
    assert refused.returncode != 0
    assert {"password": "SaslAuthentication", "certificate": "SslAuthentication"}[
        wrong
    ] in refused.stdout + refused.stderr
    assert platform.sql("SELECT * FROM onlyonce.batches").empty
    assert not any(secret in refused.stdout + refused.stderr for secret in ("a guess", PASSWORD))
    platform.environment.update({"TOPIC_LOGIN": login(PASSWORD), "TOPIC_TRUST": str(guarded.certificate)})
    done = onlyonce(platform, "run", name, "--close", "--master", spark_cluster.master)
    assert done.returncode == 0, done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    compare(platform, name, [[file] for file in as_files(platform, guarded, source, name)])
