"""Sends rows by POST: one as JSON with its Idempotency-Key, or several as a list of CloudEvents, each with its key as
its id.

A list has no key of its own: rows that are sent again may be in another one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import httpx

from onlyonce import environment
from onlyonce.declare.outputs.sent import in_clear_text
from onlyonce.declare.pipeline import Webhook
from onlyonce.model.errors import Refused
from onlyonce.model.sinks.delivery import Answer, Row, Unsent, judge, of_each, told
from onlyonce.model.sinks.parcels import Room
from onlyonce.sinks.outbox import deadline

AHEAD = 1000
WAVES = 4
"""Rows begun for each request under way, at least: fewer statements, more rows that a crash leaves unanswered."""
REQUEST_BYTES = 1_000_000
ANSWER_BYTES = 65_536
"""So much of an answer is read at most; the log keeps less."""
EVENT_BYTES = 300
"""What an event has beside its row, about."""
EVENT = {"specversion": "1.0", "type": "onlyonce.row", "datacontenttype": "application/json"}


class WebhookSender:
    """Sends rows to one endpoint."""

    ordered = True

    def __init__(self, sink: Webhook, output: str, url: str, client: httpx.Client, secret: bytes | None = None) -> None:
        self._url, self._client, self._output, self._secret = httpx.URL(url), client, output, secret
        self._seconds = sink.timeout.total_seconds()
        self.under_way = sink.at_once * -(-WAVES // sink.batch)
        self.ahead = max(AHEAD, WAVES * self.under_way * sink.batch)
        self.room = Room(sink.batch, REQUEST_BYTES)

    def size(self, row: Row) -> int:
        """With what is about it in an event."""
        return len(row.payload.encode()) + EVENT_BYTES

    def send(self, rows: Sequence[Row]) -> list[Answer]:
        """POST the rows. Raises Unsent where no connection was made."""
        headers, body = of_one(rows[0]) if self.room.rows == 1 else of_several(rows, self._output)
        if self._secret:
            headers |= signed(self._secret, of_request(rows), datetime.now(UTC), body)
        try:
            with (
                deadline.within(self._seconds),
                self._client.stream("POST", self._url, content=body, headers=headers) as got,
            ):
                answer = _beginning(got)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Unsent(f"{type(error).__name__}: {told(str(error))}") from error
        except httpx.HTTPError as error:
            return of_each(Answer("unknown", told(f"no answer: {type(error).__name__} {error}")), len(rows))
        return of_each(judge(got.status_code, answer, got.headers, datetime.now(UTC)), len(rows))


def _beginning(got: httpx.Response) -> str:
    """Return how an answer begins. A compressed answer is not decompressed: a few bytes may be gigabytes."""
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
    """Return the headers by which an endpoint knows that a request is ours and not an old one (Standard Webhooks
    1.0)."""
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
            data="nothing was sent; its rows wait in the outbox",
            hint="write it as whsec_ and Base64, of 24 to 64 bytes",
        ) from None


def of_one(row: Row) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request that is a row."""
    return {"Content-Type": "application/json", "Idempotency-Key": row.idempotency_key}, row.payload.encode()


def of_several(rows: Sequence[Row], source: str) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request that is a list of events (CloudEvents 1.0, JSON batch format).

    A row is JSON already.
    """
    rest = json.dumps(EVENT | {"source": source})[1:-1]
    events = [f'{{"id": {json.dumps(row.idempotency_key)}, {rest}, "data": {row.payload}}}' for row in rows]
    return {"Content-Type": "application/cloudevents-batch+json"}, f"[{','.join(events)}]".encode()


@contextmanager
def opened(sink: Webhook, output: str) -> Iterator[WebhookSender]:
    """A sender with its connections. Raises Refused."""
    url = sink.url or variable(str(sink.connection))
    if not _is_address(url):
        raise Refused(
            f"the environment variable {sink.connection} of a Webhook holds no http:// or https:// address",
            data="nothing was sent; its rows wait in the outbox",
            hint="write it as https://host/path",
        )
    headers = {"Accept-Encoding": "identity"}
    if sink.authorization:
        if in_clear_text(url):
            raise Refused(
                f"a Webhook with a token ({sink.authorization}) has an address without encryption",
                data="nothing was sent; its rows wait in the outbox",
                hint="write the address as https://; http:// with a token is for this machine (localhost) alone",
            )
        headers["Authorization"] = variable(sink.authorization)
    secret = _secret(sink.secret) if sink.secret else None
    limits = httpx.Limits(max_connections=sink.at_once, max_keepalive_connections=sink.at_once)
    client = deadline.hold(httpx.Client(headers=headers, timeout=sink.timeout.total_seconds(), limits=limits))
    with client:
        yield WebhookSender(sink, output, url, client, secret)


def _is_address(text: str) -> bool:
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, UnicodeError):
        return False
    return url.scheme in ("http", "https") and bool(url.host)


def variable(name: str) -> str:
    """The value of an environment variable that a declaration names; raises Refused."""
    value = environment.variable(name)
    if value is None:
        raise Refused(
            f"the environment variable {name} of a Webhook is not set",
            data="nothing was sent; its rows wait in the outbox",
            hint=f"set {name} where `onlyonce deliver` runs",
        )
    return value.strip()
