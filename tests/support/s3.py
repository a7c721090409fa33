"""Servers of S3 on this machine, each in a process of its own: versitygw, built once by Go, and moto.

Buckets are made here.

In front of each stands `tests/s3_front`, a program of ours that makes a conditional PUT what it is at Amazon, counts
requests and can be slow or ill.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx

from onlyonce import environment
from onlyonce.local.processes import wait_until
from tests.support import go_programs
from tests.support.platform import ROOT, free_port

SOURCE, FRONT = ROOT / "tests" / "s3_server", ROOT / "tests" / "s3_front"
WHY = "the tests of object stores run against versitygw, a server of S3 that is Go"
KEY, SECRET = "onlyonce-tests", "a-secret-that-is-nowhere-else"


@dataclass(frozen=True)
class S3:
    """A running server.

    `buckets`: the folder whose folders are its buckets; None for moto, which makes them by request.
    """

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

    @property
    def counts(self) -> dict[str, int]:
        """How many requests there were since the last `well`, by method; a LIST is one of its own."""
        return dict(self._told("counts").json())

    @property
    def log(self) -> list[str]:
        """Those requests in their order: method, address, and the client's name of itself."""
        return list(self._told("log").json())

    def well(self) -> None:
        """As a server that just started: no delay, no fault, nothing counted."""
        self._told("reset")

    def slow(self, milliseconds: int) -> None:
        """Each request takes that much longer."""
        self._told("delay", ms=str(milliseconds))

    def ill(self, kind: str, every: int, method: str = "", after: int = 0, since: str = "") -> None:
        """Each so manieth request, of a method or of all, meets a fault, once some have passed; the kinds are told in
        `tests/s3_front`. `since`: from the first request on that has it in its method and address."""
        self._told("fault", kind=kind, every=str(every), method=method, after=str(after), since=since)

    def made(self, objects: int) -> str:
        """From now on there is a bucket of so many objects that nobody has stored; gives the prefix that they are
        below."""
        self._told("made", objects=str(objects))
        return "s3://made/in"

    def _told(self, what: str, **asked: str) -> httpx.Response:
        return httpx.get(f"{self.url}/-/{what}", params=asked).raise_for_status()


@contextmanager
def versitygw(folder: Path) -> Iterator[S3]:
    """A real server, whose objects are files below a folder. Skips without Go."""
    program = go_programs.built(SOURCE, WHY)
    port, buckets, meta = free_port(), folder / "buckets", folder / "meta"
    for made in (buckets, meta):
        made.mkdir(parents=True, exist_ok=True)
    command = [str(program), "--quiet", "--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(meta), str(buckets)]
    given = {**environment.inherited(), "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with served(command, port, given), _front(port) as url:
        yield S3(url, buckets)


@contextmanager
def moto() -> Iterator[S3]:
    """The server of the moto project. It lets anybody in."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with served(command, port, environment.inherited()), _front(port) as url:
        yield S3(url, None)


@contextmanager
def _front(behind: int) -> Iterator[str]:
    """The address of what stands in front of a server. Skips without Go."""
    program, port = go_programs.built(FRONT, WHY), free_port()
    with served(
        [str(program), "--listen", f"127.0.0.1:{port}", "--to", f"http://127.0.0.1:{behind}"],
        port,
        environment.inherited(),
    ):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def served(command: list[str], port: int, given: dict[str, str]) -> Iterator[None]:
    """A server that answers at a port, until the end of the block."""
    server = subprocess.Popen(command, env=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(port), 120, "the server of a store")
        yield
    finally:
        server.terminate()
        server.wait(30)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
