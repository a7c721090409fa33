"""A health check says well only where the service itself says so. On a real cluster: tests/cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from onlyonce.local import health

WELL: dict[str, Any] = {
    "metadatabase": {"status": "healthy"},
    "scheduler": {"status": "healthy"},
    "dag_processor": {"status": "healthy"},
    "triggerer": {"status": "healthy"},
}


@pytest.fixture
def answer() -> Iterator[dict[str, Any]]:
    """What a server on the loopback address answers; its URL is in `url`."""
    said: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(said.get("code", 200))
            self.end_headers()
            self.wfile.write(json.dumps(said["body"]).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    said["url"] = f"http://127.0.0.1:{server.server_port}/"
    Thread(target=server.serve_forever, daemon=True).start()
    yield said
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "service, well, ill",
    [
        ("api-server", WELL, {**WELL, "metadatabase": {"status": "unhealthy"}}),
        ("scheduler", WELL, {**WELL, "scheduler": {"status": "unhealthy"}}),
        ("dag-processor", WELL, {**WELL, "dag_processor": {"status": None}}),
        ("triggerer", WELL, {**WELL, "triggerer": None}),
        ("spark-master", {"status": "ALIVE"}, {"status": "RECOVERING"}),
        ("spark-worker", {"masterurl": "spark://spark-master:7077"}, {"masterurl": ""}),
    ],
)
def test_well_is_what_the_service_says(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], service: str, well: Any, ill: Any
) -> None:
    """Each check takes a good answer, and no other: one that is ill, and one that says nothing of the service."""
    monkeypatch.setitem(health.CHECKS, service, (answer["url"], health.CHECKS[service][1]))
    # A proxy that is set must not be asked.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    answer["body"] = well
    assert health.main(service) == 0
    nothing: dict[str, Any] = {}
    for bad in (ill, nothing):
        answer["body"] = bad
        assert health.main(service) == 1


def test_an_error_is_no_good_answer(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    """A good body with an error's status is ill: the check raises, and so its process fails."""
    monkeypatch.setitem(health.CHECKS, "scheduler", (answer["url"], health.CHECKS["scheduler"][1]))
    answer |= {"body": WELL, "code": 503}
    with pytest.raises(OSError, match="503"):
        health.main("scheduler")
