"""An endpoint that answers at once, as a process of its own: `python -m tests.benchmarks.quick_endpoint FILE` tells its
port, and keeps each body as a line until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
LENGTH = b"content-length:"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: BinaryIO) -> None:
    """The requests of one connection, one after the other."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            at = head.index(LENGTH) + len(LENGTH)
            kept.write(await reader.readexactly(int(head[at : head.index(b"\r", at)])) + b"\n")
            writer.write(ANSWER)


async def serve(path: Path) -> None:
    """Until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    with path.open("wb") as kept:
        server = await asyncio.start_server(lambda reader, writer: answer(reader, writer, kept), "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
