"""A webhook's target that means harm, and one that wants to know who calls."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from onlyonce.api.pipeline import Webhook
from onlyonce.core.delivery import Answer, Row
from onlyonce.core.errors import Refused, Retryable
from onlyonce.operate import alerts
from onlyonce.sinks.outbox import send_webhook
from tests.security.statements import states
from tests.support.endpoints import Endpoint

ROW = Row(1, "unit", 0, "incarnation", None, '{"n":1}', "", 0)
HEAD = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(b"0" * 30_000_000, 1)
SLOW = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


@contextmanager
def target(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Yield the address of a target that answers each connection so."""

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.recv(65_536)
                with suppress(OSError):
                    answer(client)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


def sent(url: str, row: Row = ROW, **options: object) -> Answer:
    """Send one row and return the answer to it."""
    with send_webhook.opened_webhook(Webhook(url=url, timeout=timedelta(seconds=1), **options), "mails") as sender:  # type: ignore[arg-type]
        return sender.send([row])[0]


class Slow:
    """An answer of which a byte comes every fifth of a second, so that no time limit for one read passes, but SLOW at
    its beginning comes at once."""

    def __init__(self, content: bytes) -> None:
        self.at_once = SLOW if content.startswith(SLOW) else b""
        self.rest = content.removeprefix(self.at_once)
        self.given = 0

    def __call__(self, client: socket.socket) -> None:
        client.sendall(self.at_once)
        for byte in self.rest:
            client.sendall(bytes([byte]))
            self.given += 1
            threading.Event().wait(0.2)

    @property
    def was_awaited(self) -> bool:
        """Whether the end of the answer was sent: its caller has held on for it."""
        return self.given == len(self.rest)


DRIBBLED = pytest.mark.parametrize("content", [HEAD + b"X: " + b"x" * 100, SLOW + b"x" * 100], ids=["headers", "body"])


@states("A target holds a request for its `timeout` at most, however slowly it answers.")
@DRIBBLED
def test_a_slow_target_holds_a_request_for_its_timeout_only(content: bytes) -> None:
    """However few bytes come, and whenever. The whole answer would take twenty times the timeout."""
    answer = Slow(content)
    with target(answer) as url:
        found = sent(url)
        assert not answer.was_awaited

    assert found.verdict == "unknown"


@states("A target holds a request for its `timeout` at most, however slowly it answers.")
def test_a_target_that_takes_a_request_slowly_holds_it_for_its_timeout_only() -> None:
    """However few bytes it takes at once: it goes once it has taken a part of them, which takes longer than the
    timeout."""
    taken, enough = [0], 10_000_000

    def answer(client: socket.socket) -> None:
        while taken[0] < enough:
            taken[0] += len(client.recv(100_000))
            threading.Event().wait(0.05)

    with target(answer) as url:
        found = sent(url, row=replace(ROW, payload=json.dumps("x" * 20_000_000)))
        assert taken[0] < enough

    assert found.verdict == "unknown"


@states("The target of an alert holds it for ten seconds at most, and none of its answer is read.")
@DRIBBLED
def test_a_slow_target_of_an_alert_does_not_hold_it(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few bytes come: the whole request has one time limit."""
    monkeypatch.setattr(alerts, "PATIENCE_SECONDS", 1.0)
    answer = Slow(content)
    with target(answer) as url:
        hook = alerts.hook(url)
        assert hook is not None
        if content.startswith(SLOW):
            hook({"alert": "x"})
        else:
            with pytest.raises(Retryable, match="did not answer"):
                hook({"alert": "x"})
        assert not answer.was_awaited


@states("At most 64 kB of an answer are read, and a compressed answer is never decompressed.")
@pytest.mark.parametrize("body", [BOMB, b"0" * 30_000_000], ids=["compressed", "long"])
def test_a_large_answer_is_read_in_part(body: bytes) -> None:
    """Neither decompressed nor read to its end: its first 64 kB say enough."""
    encoding = b"Content-Encoding: gzip\r\n" if body is BOMB else b""
    given = []

    def answer(client: socket.socket) -> None:
        client.sendall(HEAD + encoding + b"Content-Length: %d\r\n\r\n" % len(body))
        for at in range(0, len(body), 65_536):
            client.sendall(body[at : at + 65_536])
            given.append(at)

    with target(answer) as url:
        found = sent(url)

    assert found.verdict == "delivered"
    assert len(found.text) <= 500
    assert body is BOMB or len(given) * 65_536 < len(body)
    assert body is not BOMB or found.text == "200 (a compressed answer)"


@states("With `secret` each request is signed by [Standard Webhooks](https://www.standardwebhooks.com/)")
def test_requests_are_signed_by_standard_webhooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target checks the signature over id, time and body; a row that is sent again has the same id."""
    secret = b"0123456789abcdef01234567"
    monkeypatch.setenv("MAIL_SECRET", f"whsec_{base64.b64encode(secret).decode()}")
    with Endpoint() as endpoint:
        for _ in range(2):
            sent(f"{endpoint.url}/mail", secret="MAIL_SECRET")

    for request in endpoint.requests:
        of = {name: request.headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature")}
        expected = hmac.new(secret, f"{of['id']}.{of['timestamp']}.".encode() + b'{"n":1}', hashlib.sha256).digest()
        assert of["signature"] == f"v1,{base64.b64encode(expected).decode()}"
        assert of["id"] == ROW.idempotency_key


@states("A token is never sent to an `http://` address, except on the same machine.")
def test_a_token_is_not_sent_in_clear_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to an address in the declaration nor to one in a variable. Nothing leaves this machine on localhost."""
    monkeypatch.setenv("MAIL_URL", "http://mail.example/send")
    monkeypatch.setenv("MAIL_TOKEN", "Bearer x")
    with pytest.raises(Refused, match="http://"):
        Webhook(url="http://mail.example/send", authorization="MAIL_TOKEN")
    hidden = Webhook(connection="MAIL_URL", authorization="MAIL_TOKEN")
    with pytest.raises(Refused, match="without encryption"), send_webhook.opened_webhook(hidden, "mails"):
        pass
    with Endpoint() as endpoint:
        assert sent(f"{endpoint.url}/mail", authorization="MAIL_TOKEN").verdict == "delivered"
