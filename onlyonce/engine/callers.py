"""Lets only processes of this user call the ports of a driver's Python.

Py4J and Spark open them to every user of the machine.

| port                         | what another user could do without the check                       |
|------------------------------|--------------------------------------------------------------------|
| Py4J's callback server       | call a query's batch function, with a frame and number they choose |
| the server of accumulators   | hold it up with a connection that sends nothing                    |
| the daemon of Python workers | make it fork a process for each connection                         |

Py4J's server accepts a secret, but the JVM forgets it when it learns the server's port. Linux says which user has a
connection; on other systems nothing is refused.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from pathlib import Path
from typing import Any

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The kernel's connections. Their columns: number, local and remote address, state, queues, timer, retransmissions,
uid, timeout, inode.
"""
ESTABLISHED, ORPHANED = "01", "0"
MAPPED = b"\0" * 10 + b"\xff\xff"
"""The prefix of an IPv4 address in an IPv6 socket, which the JVM uses."""


class OwnCallers:
    """Takes the place of Py4J's TLS context, which gets each connection before anything is read from it."""

    def wrap_socket(self, connection: socket.socket, *, server_side: bool) -> socket.socket:
        """Return the connection, or a closed one in place of a connection of another user."""
        if is_ours(connection):
            return connection
        connection.close()
        ended, other = socket.socketpair()
        other.close()
        return ended


def guard(gateway: Any) -> None:
    """Let the callback server of a gateway, which the first query starts, refuse other users."""
    gateway.callback_server_parameters.ssl_context = OwnCallers()


def guard_accumulators() -> None:
    """Let the server of accumulators, which each Spark context starts, refuse other users."""
    from pyspark import accumulators

    accumulators.AccumulatorTCPServer.verify_request = lambda _, request, __: is_ours(request)  # type: ignore[method-assign]


def guard_daemon() -> None:
    """Let the daemon of Python workers, which is this process, refuse other users."""
    accept = socket.socket.accept

    def of_ours(self: socket.socket) -> tuple[socket.socket, Any]:
        connection, address = accept(self)
        if is_ours(connection):
            return connection, address
        connection.close()
        raise InterruptedError(errno.EINTR, "a connection of another user")  # the daemon waits for the next one

    socket.socket.accept = of_ours  # type: ignore[method-assign]


def is_ours(connection: socket.socket) -> bool:
    """Return whether the other end of a connection on this machine is open in a process of this user."""
    if connection.family == socket.AF_UNIX or not TABLES[0].exists():
        return True
    try:
        here, there = _written(connection.getsockname()), _written(connection.getpeername())
    except OSError:
        return False  # the other end has closed
    for table in TABLES:
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, remote, state, _, _, _, uid, _, inode, *_ = line.split()
            if state == ESTABLISHED and inode != ORPHANED and local in there and remote in here:
                return int(uid) == os.geteuid()
    return False


def _written(address: tuple[Any, ...]) -> tuple[str, ...]:
    """Return an address and port as the kernel writes them in its tables: words in the machine's byte order."""
    host, port = address[:2]
    bare = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    forms = [bare] if ":" in host else [bare, MAPPED + bare]
    return tuple(
        f"{''.join(f'{word:08X}' for word in struct.unpack(f'={len(form) // 4}I', form))}:{port:04X}" for form in forms
    )
