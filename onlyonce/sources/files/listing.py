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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from onlyonce.model.record_size import Damaged
from onlyonce.model.values.line_values import Invalid, csv_cells
from onlyonce.sources.files import packing, record_ends, regular_file
from onlyonce.sources.files.folders import Folders
from onlyonce.sources.files.object_file import ObjectFile

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
                now, path = there, regular_file.place(path, links=True)
    if stat.S_ISDIR(now.st_mode):
        return None
    kind = regular_file.kind(now.st_mode)
    size, modified_ns = (now.st_size, now.st_mtime_ns) if kind is None else NO_MARK
    if known.get(name) == (size, modified_ns):
        return None
    refused = f"it is no file, but {kind}" if kind else refusal(entry.path, name, replaced=name in known)
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
    packed_as = packing.of(name)
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
        if packed_as and packing.is_damage(error):
            reason = f"the {packed_as} file is cut short or damaged ({error}); put it in again under a new name"
        elif isinstance(error, OSError):
            reason = f"the file can't be read: {error.strerror}; when it can, give it a new name"
        else:
            raise
        return InputFile(name, size, modified_ns, 0, reason)


def refusal(path: str, name: str, *, replaced: bool) -> str | None:
    """Why a file can't be read, if its name says so, or that the name is known."""
    if replaced:
        return "the file was replaced under its old name; give new data a new name"
    if name != path:
        return "the file's name is not UTF-8; give it another name"
    if path.lower().endswith(packing.LEFT_ALONE):
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
        for ends in record_ends.of_content(file, quoted_within):
            lines += len(ends)
            cuts += cuts_at(ends, cuts[-1] if cuts else 0)
    return lines, cuts


def cuts_at(ends: record_ends.Ends, last: int) -> Iterator[int]:
    """Yield the ends of records at which the parts of a file begin, given where the last part begins."""
    while (at := int(np.searchsorted(ends, last + RANGE))) < len(ends):
        last = int(ends[at])
        yield last


@contextmanager
def opened(at: FileAt, packed_as: str | None) -> Iterator[IO[bytes]]:
    """The content of a regular file, or of an object.

    Its name tells nothing here: where links are allowed it is another one.
    """
    plain: Any = ObjectFile(*at) if at.etag else open(regular_file.opened(at.path), "rb", buffering=0)  # noqa: PTH123, SIM115 - a descriptor
    with plain as file:
        if packed_as:
            with packing.content(file, packed_as) as unpacked:
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
    found, begin = record_ends.reader(quoted_within), b""
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
    if file.root and not links and not regular_file.is_directly_below(file.place, inbox):
        return "a folder between the inbox and the file is a symbolic link now, which is not followed"
    if (now.st_size, now.st_mtime_ns) != (file.size, file.modified_ns):
        return f"the file changed after it was listed: it had {file.size} bytes, it has {now.st_size}"
    return None
