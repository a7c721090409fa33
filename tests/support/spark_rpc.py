"""Speaks Spark's RPC protocol far enough to see whether a port asks for authentication."""

from __future__ import annotations

import socket
import struct

REQUEST, FAILURE = 3, 5


def answer(port: int, body: bytes = b"no Java object") -> str:
    """Send a request without authentication and return the failure that the server answers."""
    message = struct.pack("!bqi", REQUEST, 1, len(body)) + body
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(struct.pack("!q", 8 + len(message)) + message)
        with client.makefile("rb") as answers:
            (length,) = struct.unpack("!q", answers.read(8))
            got = answers.read(length - 8)
    kind, _, size = struct.unpack("!bqi", got[:13])
    assert kind == FAILURE
    return got[13 : 13 + size].decode()
