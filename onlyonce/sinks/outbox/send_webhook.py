"""Send rows by POST: one as JSON with its Idempotency-Key, or several as CloudEvents with their keys as ids.

A list has no key of its own, since rows that are sent again may be in another list. A whole request has a deadline:
httpx's own time limit begins again with each byte, so an endpoint could hold a request forever.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import httpcore
import httpx

from onlyonce import environment
from onlyonce.api.pipeline import Webhook
from onlyonce.api.sinks import in_clear_text
from onlyonce.core.delivery import IN_OUTBOX, Answer, Room, Row, Unsent, judge, of_each, told
from onlyonce.core.errors import Refused

PIECE = 16_384
"""Bytes that are written at once: between two pieces the deadline is checked."""
_of_thread = threading.local()


@contextmanager
def within_deadline(seconds: float) -> Iterator[None]:
    """Run the block, in which this thread's requests raise httpx.TimeoutException once the time is over."""
    _of_thread.end = time.monotonic() + seconds
    try:
        yield
    finally:
        del _of_thread.end


def hold_deadline(client: httpx.Client) -> httpx.Client:
    """Make a client keep the deadlines of `within_deadline`, even through a proxy."""
    # httpx has no public way to give its transport another network backend and to keep its proxies.
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            transport._pool._network_backend = _Backend(transport._pool._network_backend)
    return client


def _left(timeout: float | None, error: type[Exception]) -> float | None:
    end = getattr(_of_thread, "end", None)
    if end is None:
        return timeout
    left: float = end - time.monotonic()
    if left <= 0:
        raise error("the time for the whole request is over")
    return left if timeout is None else min(left, timeout)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *given: Any, **named: Any
    ) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_tcp(host, port, _left(timeout, httpcore.ConnectTimeout), *given, **named))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_unix_socket(path, _left(timeout, httpcore.ConnectTimeout), socket_options))


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # httpcore's time limit begins again with each part that the endpoint takes.
        for at in range(0, len(buffer), PIECE):
            self._stream.write(buffer[at : at + PIECE], _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _left(timeout, httpcore.ConnectTimeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


AHEAD = 1000
"""The least number of rows that are read from the outbox at once."""
WAVES = 4
"""For each open request at least this many rows are begun.

More rows save statements, but a crash leaves more unanswered.
"""
REQUEST_BYTES = 1_000_000
ANSWER_BYTES = 65_536
"""The most bytes of an answer that are read; the log keeps less."""
EVENT_BYTES = 300
"""The approximate bytes of an event without its row."""
EVENT = {"specversion": "1.0", "type": "onlyonce.row", "datacontenttype": "application/json"}


class WebhookSender:
    """Sends rows to one endpoint."""

    ordered = True

    def __init__(self, sink: Webhook, output: str, url: str, client: httpx.Client, secret: bytes | None = None) -> None:
        self._url, self._client, self._output, self._secret = httpx.URL(url), client, output, secret
        self._seconds = sink.timeout.total_seconds()
        # How many requests may be begun whose answers are not in the log yet.
        self.under_way = sink.at_once * -(-WAVES // sink.batch)
        self.ahead = max(AHEAD, WAVES * self.under_way * sink.batch)
        self.room = Room(sink.batch, REQUEST_BYTES)

    def size(self, row: Row) -> int:
        """Return the size of a row with its event."""
        return len(row.payload.encode()) + EVENT_BYTES

    def send(self, rows: Sequence[Row]) -> list[Answer]:
        """POST the rows. Raise Unsent if no connection was made, or if a proxy refused it."""
        headers, body = of_one(rows[0]) if self.room.rows == 1 else of_several(rows, self._output)
        if self._secret:
            headers |= signed(self._secret, of_request(rows), datetime.now(UTC), body)
        try:
            with (
                within_deadline(self._seconds),
                self._client.stream("POST", self._url, content=body, headers=headers) as got,
            ):
                answer = _beginning(got)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
            raise Unsent(f"{type(error).__name__}: {told(str(error))}") from error
        except httpx.HTTPError as error:
            return of_each(Answer("unknown", told(f"no answer: {type(error).__name__} {error}")), len(rows))
        return of_each(judge(got.status_code, answer, got.headers, datetime.now(UTC)), len(rows))


def _beginning(got: httpx.Response) -> str:
    """Return the beginning of an answer. A compressed answer is not decompressed: a few bytes may be gigabytes."""
    read = bytearray()
    for piece in got.iter_raw():
        read += piece
        if len(read) >= ANSWER_BYTES:
            break
    if got.headers.get("content-encoding", "identity") != "identity":
        return "(a compressed answer)"
    return bytes(read[:ANSWER_BYTES]).decode("utf-8", "replace")


def of_request(rows: Sequence[Row]) -> str:
    """Return the id of a request: the same whenever the same rows are sent again."""
    keys = [row.idempotency_key for row in rows]
    return keys[0] if len(keys) == 1 else hashlib.sha256("\n".join(keys).encode()).hexdigest()


def signed(secret: bytes, id: str, now: datetime, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks 1.0, which prove that a request is authentic and not an old one."""
    at = str(int(now.timestamp()))
    signature = hmac.digest(secret, f"{id}.{at}.".encode() + body, "sha256")
    return {
        "webhook-id": id,
        "webhook-timestamp": at,
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def _secret(name: str) -> bytes:
    try:
        return base64.b64decode(variable(name).removeprefix("whsec_"), validate=True)
    except ValueError:
        raise Refused(
            f"the environment variable {name} of a Webhook holds no secret of Standard Webhooks",
            data=IN_OUTBOX,
            hint="write it as whsec_ and Base64, of 24 to 64 bytes",
        ) from None


def of_one(row: Row) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a request with one row."""
    return {"Content-Type": "application/json", "Idempotency-Key": row.idempotency_key}, row.payload.encode()


def of_several(rows: Sequence[Row], source: str) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a request with a list of events (CloudEvents 1.0, JSON batch format).

    A row is JSON already.
    """
    rest = json.dumps(EVENT | {"source": source})[1:-1]
    events = [f'{{"id": {json.dumps(row.idempotency_key)}, {rest}, "data": {row.payload}}}' for row in rows]
    return {"Content-Type": "application/cloudevents-batch+json"}, f"[{','.join(events)}]".encode()


@contextmanager
def opened_webhook(sink: Webhook, output: str) -> Iterator[WebhookSender]:
    """Open a sender with its connections. Raise Refused."""
    url = sink.url or variable(str(sink.connection))
    if not _is_address(url):
        raise Refused(
            f"the environment variable {sink.connection} of a Webhook holds no http:// or https:// address",
            data=IN_OUTBOX,
            hint="write it as https://host/path",
        )
    headers = {"Accept-Encoding": "identity"}
    if sink.authorization:
        if in_clear_text(url):
            raise Refused(
                f"a Webhook with a token ({sink.authorization}) has an address without encryption",
                data=IN_OUTBOX,
                hint="write the address as https://; http:// with a token is for this machine (localhost) alone",
            )
        headers["Authorization"] = variable(sink.authorization)
    secret = _secret(sink.secret) if sink.secret else None
    limits = httpx.Limits(max_connections=sink.at_once, max_keepalive_connections=sink.at_once)
    client = hold_deadline(httpx.Client(headers=headers, timeout=sink.timeout.total_seconds(), limits=limits))
    with client:
        yield WebhookSender(sink, output, url, client, secret)


def _is_address(text: str) -> bool:
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, UnicodeError):
        return False
    return url.scheme in ("http", "https") and bool(url.host)


def variable(name: str) -> str:
    """Return the value of an environment variable that a declaration names. Raise Refused."""
    value = environment.variable(name)
    if value is None:
        raise Refused(
            f"the environment variable {name} of a Webhook {environment.why_missing(name)}",
            data=IN_OUTBOX,
            hint=f"set {name} where `onlyonce deliver` runs",
        )
    if not value.strip().isprintable():
        raise Refused(
            f"the environment variable {name} of a Webhook has a line break or another control character inside",
            data=IN_OUTBOX,
            hint=f"set {name} to one line of text",
        )
    return value.strip()
