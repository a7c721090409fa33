"""Sends each row as one POST of JSON, with its Idempotency-Key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import httpx

from onlyonce import environment
from onlyonce.declare.pipeline import Webhook
from onlyonce.model.errors import Refused
from onlyonce.model.sinks.delivery import Answer, Row, Unsent, judge, told

AHEAD = 1000
WAVES = 4
"""Requests begun for each one under way: fewer statements, more rows that a crash leaves unanswered."""


class WebhookSender:
    """Sends rows to one endpoint."""

    ordered = True
    ahead = AHEAD

    def __init__(self, sink: Webhook, url: str, client: httpx.Client) -> None:
        self._url, self._client = url, client
        self.under_way = WAVES * sink.at_once

    def fits(self, rows: Sequence[Row]) -> int:
        """A request has one row."""
        return 1

    def send(self, rows: Sequence[Row]) -> list[Answer]:
        """POST the row. Raises Unsent where no connection was made."""
        [row] = rows
        headers = {"Content-Type": "application/json", "Idempotency-Key": row.idempotency_key}
        try:
            got = self._client.post(self._url, content=row.payload.encode(), headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Unsent(f"{type(error).__name__}: {told(str(error))}") from error
        except httpx.HTTPError as error:
            return [Answer("unknown", told(f"no answer: {type(error).__name__} {error}"))]
        return [judge(got.status_code, got.text, got.headers, datetime.now(UTC))]


@contextmanager
def opened(sink: Webhook) -> Iterator[WebhookSender]:
    """A sender with its connections. Raises Refused."""
    url = sink.url or variable(str(sink.connection))
    if not _is_address(url):
        raise Refused(
            f"the environment variable {sink.connection} of a Webhook holds no http:// or https:// address",
            data="nothing was sent; its rows wait in the outbox",
            hint="write it as https://host/path",
        )
    headers = {"Authorization": variable(sink.authorization)} if sink.authorization else {}
    limits = httpx.Limits(max_connections=sink.at_once, max_keepalive_connections=sink.at_once)
    client = httpx.Client(headers=headers, timeout=sink.timeout.total_seconds(), limits=limits)
    with client:
        yield WebhookSender(sink, url, client)


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
