"""Lists the files of an inbox, counts their records, and checks each file again when its batch begins.

No Spark and no table: the registry (`source_files`) decides what is new. The cost is linear in the number of
files: about 0.03 ms of one core and 0.5 KB for each. A known file costs a look at its size and time, 0.01 ms.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import structlog
import xxhash
from numpy.typing import NDArray

from onlyonce.core.line_values import Invalid, csv_cells
from onlyonce.core.locations import Url, location
from onlyonce.core.records import Damaged
from onlyonce.core.stored_names import BATCH_NO
from onlyonce.sources import file_bytes
from onlyonce.sources.file_bytes import ObjectFile
from onlyonce.sources.folders import Folders
from onlyonce.tables import stores
from onlyonce.tables.stores import Changed, Entry

PIECE = 1 << 22
RANGE = 1 << 25
"""How much of a file one task reads at most; small files are read together up to it."""
NEWLINE = ord("\n")
MOST_HEADER = 1 << 20
NO_MARK = (0, 0)
"""In the place of size and time of change of what is no file: those of a pipe change."""
Counter = Callable[["FileAt"], int]
"""Counts the records of a file that has no lines, and raises Damaged."""
Content = Callable[[], AbstractContextManager[IO[bytes]]]


class FileAt(NamedTuple):
    """Where a file is opened: its path; or an object's URL, with its size and ETag, so that no other content is
    read."""

    path: str
    bytes: int = 0
    etag: str = ""


class Csv(NamedTuple):
    """How files of CSV are read: an open quote is closed within so many bytes of its record; and the names that the
    first record must have, if it is a header."""

    quoted_within: int
    header: Sequence[str] | None = None


Layout = Csv | Counter | None
"""How the records of files are found and counted. None: each is a line."""


@dataclass(frozen=True)
class InputFile:
    """A file as it was when it was first seen. `refusal` says why its content can't be read, if so.

    Of a source that is read in ranges: [begins, ends) of the file or part with that `identity`; the `mark` of a growing
    file stands for its last bytes before `ends`. Of an object the `mark` is its ETag. `root`: the inbox, as `path`
    names it.

    Of CSV `quoted_within` is the number of bytes of a record within which its quotes are closed, as when it was
    counted, and at each of the `cuts` a record begins, so its parts can be read in parallel.
    """

    path: str
    size: int
    modified_ns: int
    lines: int
    refusal: str | None
    identity: str = ""
    begins: int = 0
    ends: int = 0
    mark: str = ""
    root: str = ""
    cuts: tuple[int, ...] = ()
    quoted_within: int | None = None
    moved_to: str = ""

    @property
    def place(self) -> str:
        """Where it is, if its inbox was moved since (`moved_inboxes`); `path` is the name by which it is known."""
        return self.moved_to or self.path


def records(lines: Iterable[tuple[str, int]], unreadable: Container[str]) -> int:
    """How many records the files (path, lines) of a batch must give: one that can't be read is one, whatever it
    held."""
    return sum(1 if path in unreadable else number for path, number in lines)


@dataclass(frozen=True)
class _Found:
    """What is in the inbox: where it is opened, its name in the registry, and why it can't be read, if its name or kind
    says so."""

    path: str
    name: str
    size: int
    modified_ns: int
    refusal: str | None


def new_files(
    folder: Path,
    known: dict[str, tuple[int, int]],
    layout: Layout = None,
    *,
    links: bool = False,
    folders: Folders | None = None,
) -> Iterator[InputFile]:
    """What is in the inbox and not known with this size and mtime, by path. Called by the registry.

    `links`: whether links are followed. `folders`: what becomes of those below.
    No error for a single file: one that can't be read has a `refusal`, one that vanishes was never there.
    """
    # Small files are counted at once: handing them to another thread takes longer than to read them.
    with ThreadPoolExecutor(max_workers=4) as pool:
        fresh = [
            pool.submit(_accepted, one, layout) if one.size > PIECE else _accepted(one, layout)
            for one in _fresh(folder, known, links, folders or Folders())
        ]
        yield from (entry if isinstance(entry, InputFile) else entry.result() for entry in fresh)


def _fresh(folder: Path, known: dict[str, tuple[int, int]], links: bool, folders: Folders) -> list[_Found]:
    found = []
    for entry in folders.entries(str(folder), links=links):
        # It may vanish while we look: then there is no file.
        with suppress(OSError):
            if one := _looked_at(entry, known, links=links):
                found.append(one)
    return sorted(found, key=lambda one: one.path)


def _looked_at(entry: os.DirEntry[str], known: dict[str, tuple[int, int]], *, links: bool) -> _Found | None:
    name, path = printable(entry.path), entry.path
    now = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(now.st_mode):
        with suppress(OSError):  # it may lead to nowhere
            there = entry.stat()
            if links or known.get(name) == (there.st_size, there.st_mtime_ns):  # read by a release that followed links
                now, path = there, file_bytes.place_of_file(path, links=True)
    if stat.S_ISDIR(now.st_mode):
        return None
    kind = file_bytes.kind_of_file(now.st_mode)
    size, modified_ns = (now.st_size, now.st_mtime_ns) if kind is None else NO_MARK
    if known.get(name) == (size, modified_ns):
        return None
    refused = f"it is no file, but {kind}" if kind else listing_refusal(entry.path, name, replaced=name in known)
    return _Found(path, name, size, modified_ns, refused)


def printable(path: str) -> str:
    """A path as text. A name is any bytes; what is no UTF-8 of it could be neither stored nor opened by Java."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _accepted(one: _Found, layout: Layout) -> InputFile:
    if one.refusal:
        return InputFile(one.name, one.size, one.modified_ns, 0, one.refusal)
    return accept(one.path, one.name, one.size, one.modified_ns, layout)


def accept(path: str, name: str, size: int, modified_ns: int, layout: Layout = None, etag: str = "") -> InputFile:
    """A file with its number of records, or why it can't be read; `etag`: of an object, whose `path` is its URL.

    Raises Changed and FileNotFoundError of an object.
    """
    packed_as = file_bytes.packing_of(name)
    try:
        if callable(layout):
            return InputFile(name, size, modified_ns, layout(FileAt(path, size, etag)), None)
        if packed_as and not size:
            raise EOFError("it is empty")
        content = partial(opened, FileAt(path, size, etag), packed_as)
        if layout is None:
            return InputFile(name, size, modified_ns, _count_lines(content), None)
        lines, cuts = _csv_records(content, layout.quoted_within)
        refusal = None if layout.header is None else _other_header(content, layout.header, layout.quoted_within)
        lines = 0 if refusal else lines - (layout.header is not None)
        # At the end of the file no part begins, and the places in a packed one are those of its content.
        parts = () if packed_as else tuple(cut for cut in cuts if cut < size)
        return InputFile(name, size, modified_ns, lines, refusal, cuts=parts, quoted_within=layout.quoted_within)
    except Damaged as error:
        return InputFile(name, size, modified_ns, 0, str(error))
    except Exception as error:
        if etag and isinstance(error, FileNotFoundError):
            raise
        if packed_as and file_bytes.is_damage(error):
            reason = f"the {packed_as} file is cut short or damaged ({error}); put it in again under a new name"
        elif isinstance(error, OSError):
            reason = f"the file can't be read: {error.strerror}; when it can, give it a new name"
        else:
            raise
        return InputFile(name, size, modified_ns, 0, reason)


def listing_refusal(path: str, name: str, *, replaced: bool) -> str | None:
    """Why a file can't be read, if its name says so, or that the name is known."""
    if replaced:
        return "the file was replaced under its old name; give new data a new name"
    if name != path:
        return "the file's name is not UTF-8; give it another name"
    if path.lower().endswith(file_bytes.LEFT_ALONE):
        return "the file's name says that it is compressed; put it in unpacked, without that ending"
    return None


def _count_lines(content: Content) -> int:
    ends, last = 0, b"\n"
    with content() as file:
        while piece := file.read(PIECE):
            # A third of the time of `count`, which looks for the next one again and again.
            ends += int(np.count_nonzero(np.frombuffer(piece, np.uint8) == NEWLINE))
            last = piece[-1:]
    return ends + (last != b"\n")


def _csv_records(content: Content, quoted_within: int) -> tuple[int, list[int]]:
    """Return how many records there are, and where a part of the file can begin."""
    lines, cuts = 0, list[int]()
    with content() as file:
        for ends in file_bytes.record_ends_of(file, quoted_within):
            lines += len(ends)
            cuts += cuts_at(ends, cuts[-1] if cuts else 0)
    return lines, cuts


def cuts_at(ends: file_bytes.Ends, last: int) -> Iterator[int]:
    """Yield the ends of records at which the parts of a file begin, given where the last part begins."""
    while (at := int(np.searchsorted(ends, last + RANGE))) < len(ends):
        last = int(ends[at])
        yield last


@contextmanager
def opened(at: FileAt, packed_as: str | None) -> Iterator[IO[bytes]]:
    """The content of a regular file, or of an object.

    Its name tells nothing here: where links are allowed it is another one.
    """
    plain: Any = ObjectFile(*at) if at.etag else open(file_bytes.opened_file(at.path), "rb", buffering=0)  # noqa: PTH123, SIM115 - a descriptor
    with plain as file:
        if packed_as:
            with file_bytes.unpacked_content(file, packed_as) as unpacked:
                yield unpacked
        else:
            yield file


def _other_header(content: Content, header: Sequence[str], quoted_within: int) -> str | None:
    with content() as file:
        first = (
            _first_record(file, min(quoted_within, MOST_HEADER)).decode("utf-8-sig", "backslashreplace").rstrip("\r\n")
        )
    with suppress(Invalid):
        if [(name or "").strip() for name in csv_cells(first)] == [name.strip() for name in header]:
            return None
    return f"the first line of the file is {first[:200]!r}, and not the header {','.join(header)!r}"


def _first_record(file: IO[bytes], quoted_within: int) -> bytes:
    found, begin = file_bytes.record_end_reader(quoted_within), b""
    while len(begin) <= MOST_HEADER and (data := file.read(MOST_HEADER)):
        begin += data
        if len(ends := found.add(data)):
            return begin[: ends[0]]
    return begin[: int(next(iter(found.finish()), MOST_HEADER))]


def changed(file: InputFile, *, links: bool = False) -> str | None:
    """Why a file is no longer what was listed; None while it is. Called when its batch begins."""
    try:
        now = Path(file.place).stat(follow_symlinks=links)
    except FileNotFoundError:
        return "the file vanished before it was read"
    except OSError as error:
        return f"the file can't be read: {error.strerror}"
    inbox = file.place.removesuffix(file.path.removeprefix(file.root))
    if file.root and not links and not file_bytes.is_directly_below(file.place, inbox):
        return "a folder between the inbox and the file is a symbolic link now, which is not followed"
    if (now.st_size, now.st_mtime_ns) != (file.size, file.modified_ns):
        return f"the file changed after it was listed: it had {file.size} bytes, it has {now.st_size}"
    return None


# Lists the objects below a prefix, counts their records, and looks at each again when its batch begins.
#
# The side of an object store of `listing`.
#
# An object is known by its key and its ETag. A million objects are listed in pages, of which one is in memory: what the
# registry knows is sixteen bytes for each, and what is new is registered some thousand at a time. Whoever can't be
# counted because it was replaced since the page was listed is left to the next look. `folders` decides what becomes of
# objects deeper below the prefix.
#
# Who calls it: `discovery`, `source_files`, and `erase`. Errors: those of the store. Not promised: that a prefix
# without an object is told from one that was lost.


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


def known_objects(registered: Iterable[pa.RecordBatch], before: Known = Known()) -> Known:
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
        for some in _parts(_fresh_objects(prefix, named, there, folders or Folders()), most):
            accepted = pool.map(
                partial(_accepted_objects, prefix, named, layout), sorted(some, key=lambda one: str(one[0].at))
            )
            if found := [one for one in accepted if one is not None]:
                yield found


def changed_objects(files: Iterable[InputFile]) -> dict[str, str]:
    """Why objects are no longer what was listed, by path. Called when their batch begins: a request for each."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        asked = list(files)
        return {file.path: why for file, why in zip(asked, pool.map(_changed, asked), strict=True) if why}


def _parts(found: Iterator[Item], most: int) -> Iterator[list[Item]]:
    while part := list(islice(found, most)):
        yield part


def object_pages(prefix: Url, folders: Folders) -> Iterator[list[Entry]]:
    """Yield the objects below a prefix that are input, page by page; the log is told how far it is."""
    listed = 0
    for page in _parts(stores.of(prefix).entries(prefix), PAGE):
        listed += len(page)
        if listed % TOLD == 0:
            log.info("listing", prefix=str(prefix), objects=listed)
        yield [one for one in page if folders.holds(prefix, one)]
    if listed >= TOLD:
        log.info("listed", prefix=str(prefix), objects=listed)


def _fresh_objects(prefix: Url, named: str, there: Known, folders: Folders) -> Iterator[tuple[Entry, bool]]:
    """What is new, with whether its name is known."""
    for entries in object_pages(prefix, folders):
        names = _hashes([_name(prefix, named, one) for one in entries])
        is_known, marks = there.look(names)
        same = is_known & (marks == _hashes([one.etag for one in entries]))
        yield from (
            (one, bool(replaced)) for one, replaced, old in zip(entries, is_known, same, strict=True) if not old
        )


def _name(prefix: Url, named: str, entry: Entry) -> str:
    return named + str(entry.at).removeprefix(str(prefix))


def _accepted_objects(prefix: Url, named: str, layout: Layout, found: tuple[Entry, bool]) -> InputFile | None:
    entry, replaced = found
    name, path = _name(prefix, named, entry), str(entry.at)
    at = (entry.bytes, round(entry.modified * 1_000_000_000))
    refusal = listing_refusal(path, path, replaced=replaced)
    try:
        one = InputFile(name, *at, 0, refusal) if refusal else accept(path, name, *at, layout, entry.etag)
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
