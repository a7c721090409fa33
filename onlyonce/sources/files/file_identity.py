"""Identify a growing file, whatever its name, by its inode, the inode's time of birth, and its first line (of a
compressed file its first bytes).

A file system gives the inode of a deleted file to a new one at once, and logs with a header have one first line. So
only the birth tells the new log from the deleted one. A file system that records no birth (statx returns none) leaves
the inode and the first line. A copy is another file.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from onlyonce.sources.files import packing, regular_file

HEAD = 1 << 10
"""So much of a first line is looked at; of a longer one, its begin."""


STATX_BTIME, AT_EMPTY_PATH, BTIME_AT, SIZE = 0x800, 0x1000, 80, 256
"""Of Linux's statx, which Python's os module lacks."""


class Inode(NamedTuple):
    """An inode and its birth in nanoseconds; 0 if the file system records none."""

    number: int
    born: int

    def holds(self, file: int) -> bool:
        """Return whether an open file is this inode, and not a later file in its place."""
        born = _born(file)
        return os.fstat(file).st_ino == self.number and (not born or not self.born or born == self.born)


def identity(path: Path) -> str | None:
    """Who a file is now; None while its first line is not whole, or when it can't be read."""
    with suppress(OSError), opened(str(path)) as file:
        return of_open(file, str(path))
    return None


def of_open(file: int, path: str) -> str | None:
    """The same of a file that is open."""
    head = os.pread(file, HEAD, 0)
    cut = len(head) if packing.of(path) else head.find(b"\n") + 1
    if not cut and len(head) < HEAD:
        return None
    born = _born(file)
    return f"{os.fstat(file).st_ino}-{xxhash.xxh64_hexdigest(head[: cut or HEAD])}" + (f"-{born}" if born else "")


def inode(who: str) -> Inode:
    """Return the inode of a file with that identity."""
    number, _, *born = who.split("-")
    return Inode(int(number), int(*born))


def first_line(who: str) -> str:
    """Return what stands for the first line in an identity."""
    return who.split("-")[1]


def _born(file: int) -> int:
    found, statx = ctypes.create_string_buffer(SIZE), _statx()
    if statx is None or statx(file, b"", AT_EMPTY_PATH, STATX_BTIME, found) != 0:
        return 0
    (known,) = struct.unpack_from("I", found)
    seconds, nanoseconds = struct.unpack_from("qI", found, BTIME_AT)
    return int(seconds * 1_000_000_000 + nanoseconds) if known & STATX_BTIME else 0


@lru_cache(maxsize=1)
def _statx() -> Any:
    return getattr(ctypes.CDLL(None), "statx", None)


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A file's descriptor: what is read through it stays the same file, also when it is renamed."""
    file = regular_file.opened(path)
    try:
        yield file
    finally:
        os.close(file)
