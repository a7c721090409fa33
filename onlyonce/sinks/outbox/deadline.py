"""A deadline for a whole HTTP request. httpx's own time limit begins again with each byte, so an endpoint could hold a
request for ever."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

PIECE = 16_384
"""So many bytes are written at once: an endpoint that takes them slowly is noticed between two pieces."""
_of_thread = threading.local()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let the requests that this thread sends in the block fail with httpx.TimeoutException once the time is over."""
    _of_thread.end = time.monotonic() + seconds
    try:
        yield
    finally:
        del _of_thread.end


def hold(client: httpx.Client) -> httpx.Client:
    """Let a client keep to the deadlines of `within`, also through a proxy."""
    # httpx has no public way to give its transport another network backend and to keep its proxies.
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            transport._pool._network_backend = _Backend(transport._pool._network_backend)
    return client


def _left(timeout: float | None, error: type[Exception]) -> float | None:
    end = getattr(_of_thread, "end", None)
    if end is None:
        return timeout
    left: float = end - time.monotonic()
    if left <= 0:
        raise error("the time for the whole request is over")
    return left if timeout is None else min(left, timeout)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *given: Any, **named: Any
    ) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_tcp(host, port, _left(timeout, httpcore.ConnectTimeout), *given, **named))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_unix_socket(path, _left(timeout, httpcore.ConnectTimeout), socket_options))


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # httpcore's time limit begins again with each part that the endpoint takes.
        for at in range(0, len(buffer), PIECE):
            self._stream.write(buffer[at : at + PIECE], _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _left(timeout, httpcore.ConnectTimeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
