"""A broker is asked for unread messages as a driver connects to it: by TLS and with a login. Without an answer the
numbers are not known."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from onlyonce.api.messages import Kafka
from onlyonce.api.pipeline import Pipeline
from onlyonce.core import backlog as model
from onlyonce.core.backlog import Backlog
from onlyonce.sources import backlog
from tests.support import broker as brokers
from tests.support.broker import Broker
from tests.support.shop import SHOP

PASSWORD = uuid4().hex


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a topic `shop` of three messages, which asks for a login by TLS."""
    with brokers.running(tmp_path_factory.mktemp("guarded") / "broker", PASSWORD) as made:
        made.make_topic("shop", partitions=2)
        made.produce("shop", "a", "b")
        made.produce("shop", "c", partition=1)
        yield made


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home in which nothing was read."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))


def asked(pipeline: Pipeline) -> Backlog:
    """Ask as `onlyonce lag` does, by a new asker."""
    [(_, answer)] = backlog.Asker().ask([pipeline], {}).values()
    return answer


def shop(guarded: Broker, monkeypatch: pytest.MonkeyPatch, password: str, certificate: Path) -> Pipeline:
    """The shop fed by the guarded topic, with options for Java's client, which reads it."""
    monkeypatch.setenv("TOPIC_LOGIN", f'{brokers.LOGIN} username="onlyonce" password="{password}";')
    options = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "env:TOPIC_LOGIN",
        "ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificate),
    }  # fmt: skip
    return replace(SHOP, source=Kafka(topic="shop", servers=guarded.guarded, options=options))


def no_number(answer: Backlog) -> bool:
    """Return whether the answer says that no value is known."""
    return answer.failed and (answer.records, answer.bytes, answer.oldest) == (None, None, None)


def test_login_by_tls_is_that_of_the_driver(guarded: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """All messages are unread, by partition."""
    answer = asked(shop(guarded, monkeypatch, PASSWORD, guarded.certificate))

    assert (answer.failed, answer.records) == (False, 3)
    assert {part: one["records"] for part, one in answer.detail.items()} == {"0": 2, "1": 1}


@pytest.mark.parametrize(
    ("fault", "words"), [("password", "Authentication failed"), ("certificate", "certificate verify failed")]
)
def test_refused_login_is_a_failed_answer(
    guarded: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, words: str
) -> None:
    """With the words of the broker or of TLS, and without the password."""
    stranger = tmp_path / "stranger" / "certificate.pem"
    if fault == "certificate":
        stranger = brokers.Broker(tmp_path / "stranger", "another").certificate
    wrong = "a-guess" if fault == "password" else PASSWORD
    trusted = guarded.certificate if fault == "password" else stranger
    answer = asked(shop(guarded, monkeypatch, wrong, trusted))

    assert no_number(answer)
    assert answer.why is not None
    assert words in answer.why
    assert wrong not in answer.why


@pytest.mark.parametrize("fault", ["refuses", "is silent"])
def test_unreachable_broker_is_a_failed_answer(fault: str) -> None:
    """A port on which no server listens, and one that takes the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if fault == "refuses":
            server.close()
        source = Kafka(topic="shop", servers=f"127.0.0.1:{port}")
        answer = asked(replace(SHOP, source=source))

    assert no_number(answer)
    assert answer.why is not None
    in_time = answer.why.startswith(f"Kafka at 127.0.0.1:{port} does not answer")
    assert in_time or answer.why == model.not_in_time().why


def test_sum_with_a_failed_answer_is_not_known() -> None:
    """One of two sources that did not answer makes the whole unknown, and never the other's number."""
    whole = model.together([Backlog(3, 30), model.no_answer("the mount is stale")])

    assert no_number(whole)
    assert whole.why == "the mount is stale"
