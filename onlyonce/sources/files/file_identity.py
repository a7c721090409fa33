"""The identity of a growing file, whatever its name: its inode and its first line; of a compressed file its first bytes.

Who calls it: `onlyonce.sources.files.growing`, `onlyonce.sources.parse.record_id`. Errors: OSError. Not promised: that a copy is the same file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import xxhash

from onlyonce.sources.files import packing, regular_file

HEAD = 1 << 10
"""So much of a first line is looked at; of a longer one, its begin."""


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
    return f"{os.fstat(file).st_ino}-{xxhash.xxh64_hexdigest(head[: cut or HEAD])}"


def inode(who: str) -> int:
    """The inode of a file with that identity."""
    return int(who.partition("-")[0])


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A file's descriptor: what is read through it stays the same file, also when it is renamed."""
    file = regular_file.opened(path)
    try:
        yield file
    finally:
        os.close(file)
