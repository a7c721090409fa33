"""A TCP proxy before PostgreSQL that cuts the connection at a COMMIT: the answer is lost, or the COMMIT itself."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from types import TracebackType

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
"""The message by which psycopg2 commits: type, length, text."""

ANSWER_LOST, COMMIT_LOST, PASSED = "answer lost", "commit lost", "passed"
PIECE = 1 << 16


class Proxy:
    """Passes everything on, until `cut_next` has armed it. `cuts` counts how often it struck, `commits` what it saw.

    `answer lost`: the server got the COMMIT and has answered; the client never hears it. `commit lost`: the
    client has sent it; the server never gets it and rolls back. `freeze` stops all traffic and closes nothing: a
    partition, or a connection of which one half is gone.
    """

    def __init__(self, url: str) -> None:
        self._there = re.search(r"@([\w.]+):(\d+)/", url)
        assert self._there, "a URL with host and port"
        self._server = (self._there[1], int(self._there[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(f":{self._server[1]}/", f":{self._listener.getsockname()[1]}/")
        self.cuts = self.commits = 0
        self._flows = threading.Event()
        self._flows.set()
        self._armed: list[str] = []
        self._refusing = False
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.refuse()
        self._listener.close()

    def cut_next(self, *how: str) -> None:
        """Cut the next commits, one after the other, like this; `PASSED` lets one through."""
        self._armed = list(how)

    def freeze(self) -> None:
        """From now on no byte passes in either direction, on connections that are open and on new ones."""
        self._flows.clear()

    def thaw(self) -> None:
        """Let all that was held up pass."""
        self._flows.set()

    def refuse(self) -> None:
        """From now on nobody gets through, and who is through is cut off."""
        self._refusing = True
        for one in self._open:
            _close(one)
        self._flows.set()

    def allow(self) -> None:
        """Let new connections through again."""
        self._refusing = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._flows.wait()
            if self._refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(self._server)
            except OSError:  # the server is away
                client.close()
                continue
            self._open += [client, server]
            lost = threading.Event()
            threading.Thread(target=self._up, args=(client, server, lost), daemon=True).start()
            threading.Thread(target=self._down, args=(server, client, lost), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        while data := _read(client):
            self._flows.wait()
            self.commits += data.endswith(COMMIT)
            if self._armed and data.endswith(COMMIT) and (how := self._armed.pop(0)) != PASSED:
                self.cuts += 1
                if how == COMMIT_LOST:
                    break
                lost.set()
            with contextlib.suppress(OSError):
                server.sendall(data)
        if not lost.is_set():
            _close(client, server)

    def _down(self, server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        while data := _read(server):
            self._flows.wait()
            if lost.is_set():
                break  # the server has answered the COMMIT
            with contextlib.suppress(OSError):
                client.sendall(data)
        _close(client, server)


def _read(one: socket.socket) -> bytes:
    try:
        return one.recv(PIECE)
    except OSError:
        return b""


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
