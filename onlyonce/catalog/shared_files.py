"""Files that the workers of a machine share: each piece is written once, and mapped by whoever asks for it, so that
memory has it once for all of them.

A name says what is in the file, so its content never changes. It is written under another name and renamed: a kill
leaves it whole or not there. A machine that loses its power may still tear it. So a file counts only if its size and
its checksum, over name and content, fit; that is looked at once for each mapping.

Only a folder that no other user can enter is used (mode 700, and ours). It is bounded: what was not used for the
longest time goes first, also what a killed worker has not renamed. A file that was removed stays readable for those who
have mapped it.

Who calls it: `worker_cache`. Errors: none: what can't be written or read is told once, and the caller keeps what it has
in its own memory. Not promised: that a piece which was kept is there the next time.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import structlog
import xxhash

log = structlog.get_logger()

Bytes = bytes | memoryview

MOST = 4 << 30
"""The bytes of the folder: of four workers that map all they may. Never more than half of what the disk would have free
without it."""
LOOK_EACH = 1 << 26
"""A worker looks at the folder's size each time it has written so many bytes. So many workers may pass the bound by so
much each, for as long."""
LEAST = 1 << 16
"""A smaller piece is not worth a file: it costs little to have it twice, and the number of files and of mappings stays
small."""
MINUTE = 60.0

MAGIC, VERSION = b"oosf", 1
_HEADER = struct.Struct(
    "<4sIQ16s32x"
)  # magic, version, bytes of the content, checksum; as long as a line of the processor's cache


class SharedFiles:
    """The pieces in one folder. For one thread, and any number of processes."""

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self.folder, self._most = folder, most
        self._allowed = 0  # so many bytes may be written before the next look
        self._used: set[str] = set()
        self._since = 0.0
        self._told = False

    def find(self, name: str) -> memoryview | None:
        """The content of a piece, mapped; None when it is not there, or not what its name says."""
        return self._tried(lambda folder: _mapped(folder, name))

    def keep(self, name: str, parts: Sequence[Bytes]) -> memoryview | None:
        """Write a piece for all workers; gives it mapped. None when it is small, or there is no room."""
        size = _HEADER.size + sum(map(len, parts))
        return self._tried(lambda folder: self._written(folder, name, parts, size)) if size >= LEAST else None

    def used(self, name: str) -> None:
        """Tell that a mapped piece is in use, so that it is not the next to go; once a minute."""
        now = time.monotonic()
        if now - self._since > MINUTE:
            self._used.clear()
            self._since = now
        if name not in self._used:
            self._used.add(name)
            with suppress(OSError):  # it went: who asks for it next writes it again
                os.utime(self.folder / name, follow_symlinks=False)

    def _tried(self, work: Callable[[int], memoryview | None]) -> memoryview | None:
        try:
            with _opened(self.folder) as folder:
                return work(folder)
        except OSError as problem:
            if not self._told:
                self._told = True
                log.warning(
                    "this worker keeps its part of the catalog in its own memory",
                    folder=str(self.folder),
                    problem=str(problem),
                )
            return None

    def _written(self, folder: int, name: str, parts: Sequence[Bytes], size: int) -> memoryview | None:
        if size > self._allowed:
            self._look(folder, size)
        if size > self._allowed:
            return None
        self._allowed -= size
        _write(folder, name, parts)
        return _mapped(folder, name)

    def _look(self, folder: int, size: int) -> None:
        """Remove what was not used for the longest time until an eighth of the room is free, and at least so much; see
        how much may be written now."""
        files, disk = sorted(_files(folder)), os.fstatvfs(folder)
        held = sum(size for _, size, _ in files)
        most = min(self._most, (held + disk.f_bavail * disk.f_frsize) // 2)
        for _, freed, name in files:
            if held <= min(most * 7 // 8, most - size):
                break
            with suppress(FileNotFoundError):  # another worker was quicker
                os.unlink(name, dir_fd=folder)
            held -= freed
        self._allowed = min(LOOK_EACH, most - held)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The folder, made if need be.

    All that is done in it goes by what was opened and looked at here, whatever becomes of its path.
    """
    with suppress(FileExistsError):
        path.mkdir(0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        there = os.fstat(folder)
        if there.st_uid != os.geteuid() or stat.S_IMODE(there.st_mode) & 0o077:
            raise PermissionError(f"{path} is not this user's alone")
        yield folder
    finally:
        os.close(folder)


def _mapped(folder: int, name: str) -> memoryview | None:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        if os.fstat(file).st_size < _HEADER.size:
            return None
        os.utime(file)
        # By Arrow, since Python's own mmap keeps a file open for each mapping, and a process may have some thousand at
        # most.
        with pa.memory_map(f"/dev/fd/{file}") as mapped:
            held = memoryview(mapped.read_buffer()).cast("B")
    finally:
        os.close(file)
    content = held[_HEADER.size :]
    return content if held[: _HEADER.size] == _header(name, [content]) else None


def _write(folder: int, name: str, parts: Sequence[Bytes]) -> None:
    unfinished = f"{name}.{uuid4().hex}"
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.writelines([_header(name, parts), *parts])
        os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=folder)
        raise


def _files(folder: int) -> Iterator[tuple[float, int, str]]:
    """When each file was used last, its size and its name."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                known = entry.stat(follow_symlinks=False)
                yield known.st_mtime, known.st_size, entry.name


def _header(name: str, parts: Sequence[Any]) -> bytes:
    made = xxhash.xxh3_128(name.encode())
    for part in parts:
        made.update(part)
    return _HEADER.pack(MAGIC, VERSION, sum(map(len, parts)), made.digest())
