"""Lists the objects below a prefix, counts their records, and looks at each again when its batch begins.

The side of an object store of `listing`.

An object is known by its key and its ETag. A million objects are listed in pages, of which one is in memory: what the
registry knows is sixteen bytes for each, and what is new is registered some thousand at a time. Whoever can't be
counted because it was replaced since the page was listed is left to the next look. `folders` decides what becomes of
objects deeper below the prefix.

Who calls it: `discovery`, `source_files`, and `erase`. Errors: those of the store. Not promised: that a prefix without
an object is told from one that was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import structlog
import xxhash
from numpy.typing import NDArray

from onlyonce.model.storage.location import Url, location
from onlyonce.model.stored_names import BATCH_NO
from onlyonce.sources.files import listing
from onlyonce.sources.files.folders import Folders
from onlyonce.sources.files.listing import InputFile, Layout
from onlyonce.storage import stores
from onlyonce.storage.stores import Changed, Entry

PAGE = 1000
"""As many as one answer of S3 has."""
AT_ONCE = 16
DECODED_AT_ONCE = 4
"""Objects of Parquet or Avro: each has some ten megabytes of rows in memory."""
TOLD = 100_000
EARLIER = -2
"""In the place of a number of the registry, before all of them."""
log = structlog.get_logger()

Item = TypeVar("Item")

Hashes = NDArray[np.uint64]
NONE: Hashes = np.zeros(0, np.uint64)


@dataclass(frozen=True)
class Known:
    """The objects of the registry: hashes of their names, in order, and of the ETag that each was last seen with.

    Two names with one hash would be one in four hundred thousand registries of a hundred million objects; then the
    second is refused, and told.
    """

    names: Hashes = field(default_factory=lambda: NONE)
    marks: Hashes = field(default_factory=lambda: NONE)

    def look(self, names: Hashes) -> tuple[NDArray[np.bool_], Hashes]:
        """Which of some names are known, and with what they were last seen."""
        if not len(self.names):
            return np.zeros(len(names), bool), np.zeros(len(names), np.uint64)
        at = np.minimum(np.searchsorted(self.names, names), len(self.names) - 1)
        return self.names[at] == names, self.marks[at]


def known(registered: Iterable[pa.RecordBatch], before: Known = Known()) -> Known:
    """What batches of the registry (batch_no, path, mark) say, in the order in which they were registered, and all
    before them."""
    parts: list[tuple[Any, Hashes, Hashes]] = [(np.full(len(before.names), EARLIER), before.names, before.marks)]
    for batch in registered:
        numbers = batch.column(BATCH_NO).to_numpy()
        parts.append((numbers, _hashes(batch.column("path").to_pylist()), _hashes(batch.column("mark").to_pylist())))
    numbers, names, marks = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not len(names):
        return before
    order = np.lexsort((numbers, names))
    names, marks = names[order], marks[order]
    last = np.append(names[1:] != names[:-1], True)
    return Known(names[last], marks[last])


def new_objects(
    prefix: Url, named: str, there: Known, layout: Layout, most: int, folders: Folders | None = None
) -> Iterator[list[InputFile]]:
    """What is below a prefix and not known with this ETag, some `most` at a time, each part by name.

    `named`: the prefix as the registry has it.
    """
    with ThreadPoolExecutor(max_workers=DECODED_AT_ONCE if callable(layout) else AT_ONCE) as pool:
        for some in _parts(_fresh(prefix, named, there, folders or Folders()), most):
            accepted = pool.map(partial(_accepted, prefix, named, layout), sorted(some, key=lambda one: str(one[0].at)))
            if found := [one for one in accepted if one is not None]:
                yield found


def changed(files: Iterable[InputFile]) -> dict[str, str]:
    """Why objects are no longer what was listed, by path. Called when their batch begins: a request for each."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        asked = list(files)
        return {file.path: why for file, why in zip(asked, pool.map(_changed, asked), strict=True) if why}


def _parts(found: Iterator[Item], most: int) -> Iterator[list[Item]]:
    while part := list(islice(found, most)):
        yield part


def pages(prefix: Url, folders: Folders) -> Iterator[list[Entry]]:
    """Yield the objects below a prefix that are input, page by page; the log is told how far it is."""
    listed = 0
    for page in _parts(stores.of(prefix).entries(prefix), PAGE):
        listed += len(page)
        if listed % TOLD == 0:
            log.info("listing", prefix=str(prefix), objects=listed)
        yield [one for one in page if folders.holds(prefix, one)]
    if listed >= TOLD:
        log.info("listed", prefix=str(prefix), objects=listed)


def _fresh(prefix: Url, named: str, there: Known, folders: Folders) -> Iterator[tuple[Entry, bool]]:
    """What is new, with whether its name is known."""
    for entries in pages(prefix, folders):
        names = _hashes([_name(prefix, named, one) for one in entries])
        is_known, marks = there.look(names)
        same = is_known & (marks == _hashes([one.etag for one in entries]))
        yield from (
            (one, bool(replaced)) for one, replaced, old in zip(entries, is_known, same, strict=True) if not old
        )


def _name(prefix: Url, named: str, entry: Entry) -> str:
    return named + str(entry.at).removeprefix(str(prefix))


def _accepted(prefix: Url, named: str, layout: Layout, found: tuple[Entry, bool]) -> InputFile | None:
    entry, replaced = found
    name, path = _name(prefix, named, entry), str(entry.at)
    at = (entry.bytes, round(entry.modified * 1_000_000_000))
    refusal = listing.refusal(path, path, replaced=replaced)
    try:
        one = InputFile(name, *at, 0, refusal) if refusal else listing.accept(path, name, *at, layout, entry.etag)
    except (Changed, FileNotFoundError):
        return None
    return replace(one, mark=entry.etag, root=named)


def _changed(file: InputFile) -> str | None:
    at = location(file.place)
    now = stores.of(at).look(at)
    if now is None:
        return "the object vanished before it was read"
    if now.etag != file.mark:
        return f"the object changed after it was listed: its ETag was {file.mark}, it is {now.etag}"
    return None


def _hashes(texts: list[str]) -> Hashes:
    return np.fromiter((xxhash.xxh64_intdigest(text.encode()) for text in texts), np.uint64, len(texts))
