"""What a worker keeps of the catalog: filters, which each batch asks, and where there is room for them exact ids.

A piece lies in a file that the workers of the machine share (`shared_files`), or in the worker's own memory where
nothing is shared, the piece is small, or its chunk is of an earlier version and has no hash. Each of the two has its
budget. A file is named by the hash of the ids that are in it. So a chunk that was merged, dropped, or made again of
other ids leaves a file that nobody asks for.

Who calls it: `catalog_lookup`. Errors: none. Not promised: that anything is remembered; an empty cache only costs time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from onlyonce.catalog import bloom, packed
from onlyonce.catalog.chunks import Chunk
from onlyonce.catalog.lru import Cache
from onlyonce.catalog.packed import Half, Ids
from onlyonce.catalog.range_filters import RangeFilter
from onlyonce.catalog.shared_files import Bytes, SharedFiles
from onlyonce.database.connect import Database

CACHE_BYTES = 256 * 1024 * 1024
"""How much of the catalog a worker keeps in its own memory."""
MAPPED_BYTES = 1024 * 1024 * 1024
"""And how much it maps: the system takes that memory back when others need it."""
FOLDER = "onlyonce-catalog"
_SMALL = 100
"""What a remark takes: bytes, about."""


class _Name(NamedTuple):
    """A piece, by database, instance and what it holds: a worker may serve several platforms, one after the other."""

    kind: str
    url: str
    instance: str
    of: Chunk | RangeFilter

    @property
    def file(self) -> str | None:
        """By the ids that are in it; None where these are not known."""
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
        """Whether pieces of so many bytes in all would stay here."""
        return size <= (self._mapped_budget if self._shared else self._budget)

    def share_below(self, folder: Path | None) -> None:
        """Share what is kept from now on with all processes that name this folder; None: with none."""
        if folder is None:
            self._shared = None
        elif self._shared is None or self._shared.folder != folder / FOLDER:
            self._shared = SharedFiles(folder / FOLDER)

    def forget(self) -> None:
        """Forget all, as a worker that starts again has. What is shared stays."""
        self._memory.clear()
        self._mapped.clear()

    def filter_of(
        self, database: Database, instance: str, of: Chunk | RangeFilter, *, spare: bool = False
    ) -> bloom.Filter | None:
        """The filter of a chunk, or over several."""
        found: bloom.Filter | None = self._find(_Name("filter", database.url, instance, of), spare=spare)
        return found

    def keep_filter(
        self, database: Database, instance: str, of: Chunk | RangeFilter, known: bloom.Filter, *, spare: bool = False
    ) -> bloom.Filter:
        """Keep it; gives it as it is kept."""
        kept: bloom.Filter = self._keep(_Name("filter", database.url, instance, of), known, [known.stored], spare=spare)
        return kept

    def ids_of(self, database: Database, instance: str, chunk: Chunk) -> Ids | None:
        """All ids of a chunk."""
        found: Ids | None = self._find(_Name("ids", database.url, instance, chunk), spare=True)
        if found is not None and self.fences_of(database, instance, chunk) is None:
            self._keep_fences(database, instance, chunk, found)
        return found

    def keep_ids(self, database: Database, instance: str, chunk: Chunk, ids: Ids) -> Ids:
        """Keep them, and their fences for longer; gives them as they are kept."""
        self._keep_fences(database, instance, chunk, ids)
        parts = [half.view(np.uint8).data for half in ids]
        kept: Ids = self._keep(_Name("ids", database.url, instance, chunk), ids, parts, spare=True)
        return kept

    def fences_of(self, database: Database, instance: str, chunk: Chunk) -> Half | None:
        """The fences of a chunk that was here as a whole."""
        held: Half | None = self._memory.get(_Name("fences", database.url, instance, chunk))
        return held

    def paid_of(self, database: Database, instance: str, chunk: Chunk) -> int:
        """How many ids of a chunk were fetched in slices."""
        paid: int | None = self._memory.get(_Name("slices", database.url, instance, chunk))
        return paid or 0

    def pay(self, database: Database, instance: str, chunk: Chunk, paid: int) -> None:
        """Remember that."""
        self._memory.put(_Name("slices", database.url, instance, chunk), paid, _SMALL)

    def _keep_fences(self, database: Database, instance: str, chunk: Chunk, ids: Ids) -> None:
        known = packed.fences(ids)
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


def _read(name: _Name, content: memoryview) -> bloom.Filter | Ids:
    """What lies in a file, without a copy. Its name and its checksum fit, so it is what was written under this name."""
    if name.kind == "filter":
        return bloom.view(content)
    halves = np.frombuffer(content, np.uint64)
    return halves[: name.of.id_count], halves[name.of.id_count :]
