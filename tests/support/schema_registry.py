"""A schema registry for the tests: over HTTP, with the paths, ids, versions and errors of Confluent's, and able to
misbehave."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from onlyonce.sources.schema_registry import Schema


@dataclass
class Registry:
    """What it holds, and how it behaves.

    subjects   the ids of each subject's versions; `schemas`: what an id has, as a request gives it
    answers    a status and body that it gives to everything, in the place of its own
    login      the value of Authorization that it wants
    asked      the paths that it was asked for
    """

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    answers: list[tuple[int, str]] = field(default_factory=list)
    always: tuple[int, str] | None = None
    login: str | None = None
    asked: list[str] = field(default_factory=list)

    def put(
        self,
        subject: str,
        schema: dict[str, Any] | str,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Give a schema an id, as a producer does; the same schema has the same id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self._put(subject, {"schema": text, "schemaType": kind, "references": references or []})

    def _put(self, subject: str, given: dict[str, Any]) -> int:
        known = {json.dumps(one, sort_keys=True): number for number, one in self.schemas.items()}
        number = known.get(json.dumps(given, sort_keys=True)) or max(self.schemas, default=0) + 1
        self.schemas[number] = given
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def has(self) -> dict[int, Schema]:
        """All its schemas, as the platform has them."""
        return {number: Schema(one["schemaType"], one["schema"]) for number, one in self.schemas.items()}

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """What it says to a request."""
        plain = path.partition("?")[0]
        if found := re.fullmatch(r"/schemas/ids/(\d+)", plain):
            one = self.schemas.get(int(found[1]))
            return (200, _without_default(one)) if one else (404, {"error_code": 40403, "message": "Schema not found"})
        if found := re.fullmatch(r"/subjects/([^/]+)/versions", plain):
            if method == "POST":
                given = {
                    "schema": body["schema"],
                    "schemaType": body.get("schemaType", "AVRO"),
                    "references": body.get("references", []),
                }
                return 200, {"id": self._put(found[1], given)}
            return 200, {str(at + 1): number for at, number in enumerate(self.subjects.get(found[1], []))}
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\w+)", plain):
            versions = self.subjects.get(found[1], [])
            at = len(versions) if found[2] == "latest" else int(found[2])
            if not 1 <= at <= len(versions):
                return 404, {"error_code": 40402, "message": "Version not found"}
            number = versions[at - 1]
            return 200, {"subject": found[1], "version": at, "id": number, **_without_default(self.schemas[number])}
        if found := re.fullmatch(r"/subjects/([^/]+)", plain):
            given = {
                "schema": body["schema"],
                "schemaType": body.get("schemaType", "AVRO"),
                "references": body.get("references", []),
            }
            known = next((n for n in self.subjects.get(found[1], []) if self.schemas[n] == given), None)
            if known is None:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, {
                "subject": found[1],
                "version": self.subjects[found[1]].index(known) + 1,
                "id": known,
                **_without_default(given),
            }
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


def _without_default(one: dict[str, Any]) -> dict[str, Any]:
    # As the real one: Avro is not said, and no references are not said.
    return {name: value for name, value in one.items() if value and (name, value) != ("schemaType", "AVRO")}


@contextmanager
def running() -> Iterator[Registry]:
    """A registry at a port of its own, which ends with the block."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            registry.asked.append(self.path)
            if registry.login and self.headers.get("Authorization") != registry.login:
                status, said = 401, json.dumps({"error_code": 40101, "message": "Unauthorized"})
            elif registry.answers or registry.always:
                status, said = registry.answers.pop(0) if registry.answers else registry.always  # type: ignore[misc]
            else:
                status, told = registry.answer(self.command, self.path, body)
                said = json.dumps(told)
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(said.encode())))
            self.end_headers()
            self.wfile.write(said.encode())

        do_GET = do_POST = _answer

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
