"""Servers of S3 on this machine, each in a process of its own: versitygw, built once by Go, and moto. Buckets are made here."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx

from onlyonce import environment
from onlyonce.local.processes import wait_until
from tests.support import go_programs
from tests.support.platform import ROOT, free_port

SOURCE = ROOT / "tests" / "s3_server"
PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
WHY = "the tests of object stores run against versitygw, a server of S3 that is Go"
KEY, SECRET = "onlyonce-tests", "a-secret-that-is-nowhere-else"


@dataclass(frozen=True)
class S3:
    """A running server. `buckets`: the folder whose folders are its buckets; None for moto, which makes them by request."""

    url: str
    buckets: Path | None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead the clients of the ecosystem to it."""
        return {
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url, "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip

    def bucket(self) -> str:
        """A new bucket; gives its URL."""
        name = f"b{uuid4().hex[:12]}"
        if self.buckets:
            (self.buckets / name).mkdir()
        else:
            httpx.put(f"{self.url}/{name}").raise_for_status()
        return f"s3://{name}"


@contextmanager
def versitygw(folder: Path) -> Iterator[S3]:
    """A real server, whose objects are files below a folder. Skips without Go."""
    program = go_programs.built(SOURCE, WHY, PACKAGE)
    port, buckets, meta = free_port(), folder / "buckets", folder / "meta"
    buckets.mkdir(parents=True)
    meta.mkdir()
    command = [str(program), "--quiet", "--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(meta), str(buckets)]
    given = {**environment.inherited(), "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with _served(command, port, given):
        yield S3(f"http://127.0.0.1:{port}", buckets)


@contextmanager
def moto() -> Iterator[S3]:
    """The server of the moto project. It lets anybody in."""
    port = free_port()
    with _served([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port, environment.inherited()):
        yield S3(f"http://127.0.0.1:{port}", None)


@contextmanager
def _served(command: list[str], port: int, given: dict[str, str]) -> Iterator[None]:
    server = subprocess.Popen(command, env=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(port), 120, "the server of S3")
        yield
    finally:
        server.terminate()
        server.wait(30)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class _Deaf(BaseHTTPRequestHandler):
    """Hands each request on, without its condition."""

    protocol_version = "HTTP/1.1"
    behind = ""

    def _pass_on(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("if-none-match", "host")}
        answer = httpx.request(self.command, self.behind + self.path, headers=headers, content=sent)
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", answer.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(answer.content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def without_condition(server: S3) -> Iterator[str]:
    """The address of a store that overwrites what it was told to leave: moto behind a proxy that drops If-None-Match."""
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), type("Deaf", (_Deaf,), {"behind": server.url}))
    thread = Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
