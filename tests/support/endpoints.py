"""Local HTTP servers that misbehave on order: an endpoint of a webhook, and BigQuery's `insertAll`.

What they do with a request is told by `script(number, request)`: its word says what happens before and after the
effect.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Request:
    """What came in."""

    path: str
    key: str
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """What goes out.

    `effect`: whether the request is carried out. `status` 0: the connection is closed without an answer. `times`: how
    often it is carried out, as by a proxy that sends again."""

    status: int = 200
    effect: bool = True
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    wait: threading.Event | None = None


OK = Reply()
DROPPED = Reply(0)
"""Carried out, and the answer is lost."""
LOST = Reply(0, effect=False)
"""Never carried out, and nobody says so."""
TWICE = Reply(times=2)
Script = Callable[[int, Request], Reply]


class _Server:
    """A server with a script; it counts the requests from 0."""

    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or (lambda _number, _request: OK)
        self.requests: list[Request] = []
        self.came = threading.Event()
        self._turn = threading.Lock()
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()

    def carry_out(self, request: Request) -> Any:
        """The effect of a request; gives the body of its answer."""
        raise NotImplementedError

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        text = handler.rfile.read(int(handler.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = Request(handler.path, headers.get("idempotency-key", ""), json.loads(text), headers)
        with self._turn:
            self.requests.append(request)
            reply = self.script(len(self.requests) - 1, request)
            body = None
            for _ in range(reply.times if reply.effect else 0):
                body = self.carry_out(request)
        self.came.set()
        if reply.wait:
            reply.wait.wait(60)
        if not reply.status:
            handler.close_connection = True
            return
        sent = json.dumps(reply.body if reply.body is not None else body).encode()
        try:
            handler.send_response(reply.status)
            for name, value in (
                reply.headers | {"Content-Type": "application/json", "Content-Length": str(len(sent))}
            ).items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(sent)
        except OSError:
            handler.close_connection = True  # the client was killed meanwhile


class Endpoint(_Server):
    """A webhook's endpoint.

    One that honours the key carries out each key once; `effects` has the bodies in their order.
    """

    def __init__(self, script: Script | None = None, *, honours: bool = True) -> None:
        super().__init__(script)
        self._honours, self._known = honours, set[str]()
        self.effects: list[Any] = []

    def carry_out(self, request: Request) -> Any:
        """A mail goes out, money moves."""
        if not (self._honours and request.key in self._known):
            self.effects.append(request.body)
        self._known.add(request.key)
        return {"ok": True}

    def ids(self) -> Counter[str]:
        """The ids that it has carried out, as often as it did."""
        return Counter(body["id"] for body in self.effects)


class EventsEndpoint(Endpoint):
    """The endpoint of a webhook with a `batch`: a request is a list of events, and each is carried out by its own
    id."""

    def carry_out(self, request: Request) -> Any:
        """Some mails go out."""
        for event in request.body:
            super().carry_out(Request(request.path, event["id"], event["data"], request.headers))
        return {"ok": True}


class BigQueryServer(_Server):
    """Speaks `insertAll`: drops the insert ids that it remembers, and rejects rows without a whole number `n`."""

    def __init__(self, script: Script | None = None) -> None:
        super().__init__(script)
        self.rows: list[dict[str, Any]] = []
        self._remembered: set[str] = set()

    def forget(self) -> None:
        """A minute has passed."""
        self._remembered.clear()

    def carry_out(self, request: Request) -> Any:
        """Insert the good rows, say what is wrong with the others."""
        assert request.path.split("?")[0] == "/bigquery/v2/projects/p/datasets/d/tables/t/insertAll"
        assert request.body["skipInvalidRows"] is True
        rejected = []
        for number, row in enumerate(request.body["rows"]):
            if not isinstance(row["json"]["n"], int):
                told = {"reason": "invalid", "location": "n", "message": "Cannot convert value to integer"}
                rejected.append({"index": number, "errors": [told]})
            elif row["insertId"] not in self._remembered:
                self._remembered.add(row["insertId"])
                self.rows.append(row["json"])
        return {"kind": "bigquery#tableDataInsertAllResponse"} | ({"insertErrors": rejected} if rejected else {})

    def ids(self) -> Counter[str]:
        """The ids of the rows that the table holds."""
        return Counter(row["id"] for row in self.rows)


def quota(status: int = 403, reason: str = "rateLimitExceeded", **headers: str) -> Reply:
    """BigQuery's answer to too many requests."""
    told = {"code": status, "message": "Exceeded rate limits", "errors": [{"reason": reason, "message": "slow down"}]}
    return Reply(status, effect=False, body={"error": told}, headers=headers)
