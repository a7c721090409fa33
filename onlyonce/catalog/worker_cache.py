"""A worker's cache of the id catalog: least recently used values are removed first. For one thread."""

from __future__ import annotations

import os
import stat
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import structlog
import xxhash

from onlyonce.catalog import filters
from onlyonce.catalog.chunks import Chunk
from onlyonce.catalog.filters import Half, Ids
from onlyonce.catalog.range_filters import RangeFilter
from onlyonce.database.connect import Database


class Cache:
    """Values by name, as many as fit into a budget in bytes.

    Spare values are removed first: values that each batch uses must not make room for a look-up through many others.
    The last value that is not spare stays, whatever its size.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._spare: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, name: Hashable) -> Any:
        """Return the value, now the most recently used one; None if it is not cached."""
        for shelf in (self._held, self._spare):
            if name in shelf:
                shelf.move_to_end(name)
                return shelf[name][0]
        return None

    def put(self, name: Hashable, value: Any, size: int, *, spare: bool = False) -> None:
        """Keep a value of this size, and remove others until the budget is kept."""
        for shelf in (self._held, self._spare):
            self._bytes -= shelf.pop(name, (None, 0))[1]
        (self._spare if spare else self._held)[name] = (value, size)
        self._bytes += size
        while self._bytes > self._budget and (self._spare or len(self._held) > 1):
            self._bytes -= (self._spare or self._held).popitem(last=False)[1][1]

    def clear(self) -> None:
        """Remove all values."""
        self._held.clear()
        self._spare.clear()
        self._bytes = 0


# Files that the workers of a machine share. Each piece is written once and memory-mapped by its readers, so that memory
# has it once for all of them.
#
# A name identifies the content, which never changes. A file is written under another name and renamed: after a kill it
# is complete or does not exist. A power cut may still tear it. So a file counts only if its size and its checksum, over
# name and content, fit; that is checked once for each mapping.
#
# Only a folder that no other user can enter is used (mode 700, and ours). Its size is bounded: the least recently used
# files are removed first, even files that a killed worker has not renamed. A removed file stays readable where it is
# mapped.
#
# If a piece can't be written or read, that is logged once, and the caller keeps it in its own memory.


log = structlog.get_logger()

Bytes = bytes | memoryview

MOST = 4 << 30
"""The most bytes of the folder: as much as four workers may map. It never takes more than half of the bytes that the
disk would have free without it.
"""
LOOK_EACH = 1 << 26
"""A worker checks the folder's size each time that it has written so many bytes, or before one larger piece. Until the
next check of any of them, each worker may have taken the folder beyond its bound by so much.
"""
LEAST = 1 << 16
"""A smaller piece is not worth a file: two copies cost little, and the number of files and of mappings stays small."""
MINUTE = 60.0

MAGIC, VERSION = b"oosf", 1
_HEADER = struct.Struct(
    "<4sIQ16s32x"
)  # magic, version, bytes of the content, checksum; as long as a line of the processor's cache


class SharedFiles:
    """The pieces in one folder. For one thread, and any number of processes."""

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self.folder, self._most = folder, most
        self._allowed = 0  # so many bytes may be written before the next check
        self._used: set[str] = set()
        self._since = 0.0
        self._told = False

    def find(self, name: str) -> memoryview | None:
        """Return the content of a piece, mapped; None if it is missing or does not fit its name."""
        return self._tried(lambda folder: _mapped(folder, name))

    def keep(self, name: str, parts: Sequence[Bytes]) -> memoryview | None:
        """Write a piece for all workers and return it mapped. Return None if it is small or there is no room."""
        size = _HEADER.size + sum(map(len, parts))
        return self._tried(lambda folder: self._written(folder, name, parts, size)) if size >= LEAST else None

    def used(self, name: str) -> None:
        """Mark a mapped piece as used, so that it is not removed next. Does this at most once a minute."""
        now = time.monotonic()
        if now - self._since > MINUTE:
            self._used.clear()
            self._since = now
        if name not in self._used:
            self._used.add(name)
            with suppress(OSError):  # it was removed: the next worker that needs it writes it again
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
        """Remove the least recently used files until an eighth of the room and the size are free. Set how much may be
        written.
        """
        files, disk = sorted(_files(folder)), os.fstatvfs(folder)
        held = sum(size for _, size, _ in files)
        most = min(self._most, (held + disk.f_bavail * disk.f_frsize) // 2)
        if size > most:
            return
        for _, freed, name in files:
            if held <= min(most * 7 // 8, most - size):
                break
            with suppress(FileNotFoundError):  # another worker was quicker
                os.unlink(name, dir_fd=folder)
            held -= freed
        self._allowed = min(max(LOOK_EACH, size), most - held)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield the open folder, made if it does not exist.

    All work uses the folder that was opened and checked here, whatever becomes of its path.
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
        # By Arrow, since Python's own mmap keeps a file open for each mapping, and a process may have a few thousand at
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
    """Yield when each file was used last, its size and its name."""
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


# What a worker keeps of the id catalog: filters, which each batch probes, and exact ids if there is room.
#
# A piece is in a shared file. It is in the worker's own memory if nothing is shared, if it is small, or if its chunk
# has no hash (earlier versions). Files and memory each have a budget. A file is named by the hash of its ids. So a
# chunk that was merged, dropped, or made again with other ids leaves a file that is never read.


CACHE_BYTES = 256 * 1024 * 1024
"""How much of the id catalog a worker keeps in its own memory."""
MAPPED_BYTES = 1024 * 1024 * 1024
"""How much it maps besides. The system takes that memory back when other processes need it."""
FOLDER = "onlyonce-catalog"
_SMALL = 100
"""Bytes of a small entry, approximately."""


class _Name(NamedTuple):
    """The name of a piece, by database, instance and content. A worker may serve several platforms in succession."""

    kind: str
    url: str
    instance: str
    of: Chunk | RangeFilter

    @property
    def file(self) -> str | None:
        """Return the file's name, by the ids in the piece; None if their hash is not known."""
        hashes = self.of.hashes if isinstance(self.of, RangeFilter) else (self.of.ids_hash,)
        held = repr((self.instance, self.of.id_count, hashes))
        return None if None in hashes else f"{self.kind}-{xxhash.xxh3_128_hexdigest(held.encode())}"


class _Held(NamedTuple):
    value: Any
    file: str | None = None


class WorkerCache:
    """The cache of one worker, for one thread."""

    def __init__(self, budget: int = CACHE_BYTES, mapped: int = MAPPED_BYTES) -> None:
        self._budget, self._mapped_budget = budget, mapped
        self._memory, self._mapped = Cache(budget), Cache(mapped)
        self._shared: SharedFiles | None = None

    def has_room(self, size: int) -> bool:
        """Return whether pieces of this total size would stay cached."""
        return size <= (self._mapped_budget if self._shared else self._budget)

    def share_below(self, folder: Path | None) -> None:
        """Share what is kept from now on with all processes that name this folder; None: with none."""
        if folder is None:
            self._shared = None
        elif self._shared is None or self._shared.folder != folder / FOLDER:
            self._shared = SharedFiles(folder / FOLDER)

    def forget(self) -> None:
        """Clear the cache, as after a restart of the worker. Shared files stay."""
        self._memory.clear()
        self._mapped.clear()

    def filter_of(
        self, database: Database, instance: str, of: Chunk | RangeFilter, *, spare: bool = False
    ) -> filters.Filter | None:
        """Return the filter of a chunk, or over several chunks; None if it is not cached."""
        found: filters.Filter | None = self._find(_Name("filter", database.url, instance, of), spare=spare)
        return found

    def keep_filter(
        self, database: Database, instance: str, of: Chunk | RangeFilter, known: filters.Filter, *, spare: bool = False
    ) -> filters.Filter:
        """Keep a filter, and return it as it is kept."""
        kept: filters.Filter = self._keep(
            _Name("filter", database.url, instance, of), known, [known.stored], spare=spare
        )
        return kept

    def ids_of(self, database: Database, instance: str, chunk: Chunk) -> Ids | None:
        """Return all ids of a chunk; None if they are not cached."""
        found: Ids | None = self._find(_Name("ids", database.url, instance, chunk), spare=True)
        if found is not None and self.fences_of(database, instance, chunk) is None:
            self._keep_fences(database, instance, chunk, found)
        return found

    def keep_ids(self, database: Database, instance: str, chunk: Chunk, ids: Ids) -> Ids:
        """Keep the ids of a chunk, and its fences for longer. Return the ids as they are kept."""
        self._keep_fences(database, instance, chunk, ids)
        parts = [half.view(np.uint8).data for half in ids]
        kept: Ids = self._keep(_Name("ids", database.url, instance, chunk), ids, parts, spare=True)
        return kept

    def fences_of(self, database: Database, instance: str, chunk: Chunk) -> Half | None:
        """Return the fences of a chunk that was cached whole."""
        held: Half | None = self._memory.get(_Name("fences", database.url, instance, chunk))
        return held

    def paid_of(self, database: Database, instance: str, chunk: Chunk) -> int:
        """Return how many ids of a chunk were fetched in slices."""
        paid: int | None = self._memory.get(_Name("slices", database.url, instance, chunk))
        return paid or 0

    def pay(self, database: Database, instance: str, chunk: Chunk, paid: int) -> None:
        """Note how many ids of a chunk were fetched in slices."""
        self._memory.put(_Name("slices", database.url, instance, chunk), paid, _SMALL)

    def _keep_fences(self, database: Database, instance: str, chunk: Chunk, ids: Ids) -> None:
        known = filters.fences(ids)
        self._memory.put(_Name("fences", database.url, instance, chunk), known, known.nbytes)

    def _find(self, name: _Name, *, spare: bool) -> Any:
        held: _Held | None = self._memory.get(name) or self._mapped.get(name)
        if held:
            if self._shared and held.file:
                self._shared.used(held.file)
            return held.value
        if self._shared and (file := name.file) and (content := self._shared.find(file)):
            value = _read(name, content)
            self._mapped.put(name, _Held(value, file), len(content), spare=spare)
            return value
        return None

    def _keep(self, name: _Name, value: Any, parts: Sequence[Bytes], *, spare: bool) -> Any:
        if self._shared and (file := name.file) and (content := self._shared.keep(file, parts)):
            kept = _read(name, content)
            self._mapped.put(name, _Held(kept, file), len(content), spare=spare)
            return kept
        self._memory.put(name, _Held(value), sum(map(len, parts)), spare=spare)
        return value


def _read(name: _Name, content: memoryview) -> filters.Filter | Ids:
    """Return the content of a file, without a copy. Its name and checksum fit, so it was written under this name."""
    if name.kind == "filter":
        return filters.view(content)
    halves = np.frombuffer(content, np.uint64)
    return halves[: name.of.id_count], halves[name.of.id_count :]
