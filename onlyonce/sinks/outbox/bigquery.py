"""Streaming inserts into BigQuery: up to 500 rows are one `insertAll`, each with the insert id that was stored with the
row.

The server drops a row whose insert id it has just seen, at best effort and for about a minute. The client's own retries
are off, since each attempt is noted in the log before it is made, so that a lost answer is known to be lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import requests
from urllib3.exceptions import NewConnectionError

from onlyonce import environment
from onlyonce.declare.pipeline import BigQuery
from onlyonce.model.errors import Refused
from onlyonce.model.sinks.delivery import Answer, Row, Unsent, asked_pause, of_each, told
from onlyonce.model.sinks.parcels import Room

ROWS = 500
"""Google advises this; the API's limit is 50,000."""
REQUEST_BYTES = 5_000_000
"""A request may have 10 MB, and what the client makes of a row is longer than the row."""
ROW_BYTES = 9_000_000
OVERHEAD = 100
TOO_BUSY = {"rateLimitExceeded", "quotaExceeded", "stopped"}
LOST_INSIDE = {"backendError", "internalError", "timeout"}


class BigQuerySender:
    """Sends rows to one table."""

    ordered = False
    ahead = 10_000

    def __init__(self, sink: BigQuery, client: Any) -> None:
        self._sink, self._client = sink, client
        self.under_way = sink.at_once
        self.room = Room(ROWS, REQUEST_BYTES)

    def size(self, row: Row) -> int:
        """The client writes what is not ASCII as \\uXXXX."""
        return len(row.payload.encode("ascii", "backslashreplace")) + OVERHEAD

    def send(self, rows: Sequence[Row]) -> list[Answer]:
        """One `insertAll`; rows that the server rejects keep no others out. Raises Unsent."""
        if self.size(rows[0]) > ROW_BYTES:
            return [Answer("invalid", f"the row has more than the {ROW_BYTES} bytes that fit into a request")]
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError, TransportError

        try:
            rejected = self._client.insert_rows_json(
                self._sink.table,
                [row_of(row.payload) for row in rows],
                row_ids=[row.insert_id for row in rows],
                skip_invalid_rows=True,
                retry=None,
                timeout=self._sink.timeout.total_seconds(),
            )
        except GoogleAPICallError as error:
            return of_each(_of_request(error), len(rows))
        except TransportError as error:
            raise Unsent(told(f"no access token: {error}")) from error
        except GoogleAuthError as error:
            return [Answer("not now", told(str(error)), held="wrong")] * len(rows)
        except requests.RequestException as error:
            if _no_connection(error):
                raise Unsent(told(str(error))) from error
            return [Answer("unknown", told(f"no answer: {error}"))] * len(rows)
        except ValueError as error:  # an answer that was cut off
            return [Answer("unknown", told(f"no answer: {error}"))] * len(rows)
        by_row = {entry["index"]: entry["errors"] for entry in rejected}
        return [_of_row(by_row.get(number)) for number in range(len(rows))]


def row_of(payload: str) -> Any:
    """Return a row as the client takes it.

    A number that a float would change is a string, which BigQuery reads as a number.
    """
    return json.loads(payload, parse_float=_number)


def _number(written: str) -> float | str:
    nearest = float(written)
    return nearest if Decimal(repr(nearest)) == Decimal(written) else written


@contextmanager
def opened(sink: BigQuery) -> Iterator[BigQuerySender]:
    """A sender with its client, by Google's default credentials; none for an emulator. Raises Refused."""
    try:
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import DefaultCredentialsError
        from google.cloud import bigquery
    except ImportError as error:
        raise Refused(
            "the package google-cloud-bigquery is not installed",
            data="nothing was sent; its rows wait in the outbox",
            hint="install onlyonce-pipelines[bigquery] where `onlyonce deliver` runs",
        ) from error
    # The emulator's variable is Google's own; anonymous credentials are for nobody else.
    credentials = AnonymousCredentials() if environment.variable("BIGQUERY_EMULATOR_HOST") else None  # type: ignore[no-untyped-call]
    try:
        client = bigquery.Client(project=sink.table.rsplit(".", 2)[0], credentials=credentials)
    except DefaultCredentialsError as error:
        raise Refused(
            f"no credentials for BigQuery: {told(str(error))}",
            data="nothing was sent; its rows wait in the outbox",
            hint="set GOOGLE_APPLICATION_CREDENTIALS where `onlyonce deliver` runs",
        ) from error
    try:
        yield BigQuerySender(sink, client)
    finally:
        client.close()


def _of_request(error: Any) -> Answer:
    """The answer to each row of a request that was refused as a whole."""
    code = int(error.code or 0)
    reasons = {str(detail.get("reason")) for detail in error.errors or [] if isinstance(detail, dict)}
    headers = getattr(error.response, "headers", None) or {}
    pause = asked_pause(headers.get("Retry-After", ""), datetime.now(UTC))
    text = told(f"{code} {', '.join(sorted(reasons))} {error.message}")
    if code in (408, 429) or reasons & TOO_BUSY:
        return Answer("not now", text, pause)
    if code in (401, 403, 404):
        return Answer("not now", text, held="wrong")
    return Answer("no", text) if 400 <= code < 500 else Answer("unknown", text, pause)


def _of_row(errors: Sequence[dict[str, Any]] | None) -> Answer:
    if not errors:
        return Answer("delivered", "200")
    reasons = {str(error.get("reason")) for error in errors}
    text = told("; ".join(f"{e.get('reason')}: {e.get('message')} {e.get('location') or ''}".strip() for e in errors))
    if reasons & LOST_INSIDE:
        return Answer("unknown", text)
    return Answer("not now", text) if reasons <= TOO_BUSY else Answer("invalid", text)


def _no_connection(error: requests.RequestException) -> bool:
    """Whether the request never left: nobody took the connection."""
    cause = error.args[0] if error.args else None
    return isinstance(error, requests.ConnectTimeout) or isinstance(getattr(cause, "reason", None), NewConnectionError)
