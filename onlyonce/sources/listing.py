"""List the files or objects of an inbox, count their records, and check each again when its batch begins.

No Spark and no table: the manifest (`source_files`) decides what is new. The cost is linear in the number of files:
about 0.03 ms of one core and 0.5 KB for each. Comparing the size and time of a known file costs 0.01 ms.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
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

from onlyonce.core import encodings
from onlyonce.core.errors import Retryable
from onlyonce.core.line_values import SHOWN, Invalid, csv_cells, shown
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
"""How many bytes of a file one task reads at most; small files are read together up to this size."""
NEWLINE = ord("\n")
MOST_HEADER = 1 << 20
MOST_SHOWN = 200
"""How many characters of a header a refusal shows."""
BEGINNING = 10
"""The number of a file's first bytes that show its format."""
OTHER_FORMATS = {
    b"PAR1\x15": "a Parquet file: declare a pipeline or input with Files(format='parquet') for it",
    b"Obj\x01": "an Avro file: declare a pipeline or input with Files(format='avro') for it",
    b"PK\x03\x04": "a zip archive, as a workbook of Excel is: save it as CSV, and declare Files(format='csv')",
    b"\x1f\x8b": "compressed by gzip: put it in under a new name that ends in .gz",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard: put it in under a new name that ends in .zst",
    b"BZh91AY&SY": "compressed by bzip2: put it in under a new name that ends in .bz2",
}
"""The first bytes of files that are not text, and what to do with such a file."""
VANISHED = "the file vanished before it was read"
NO_MARK = (0, 0)
"""Replaces size and time of change for an entry that is not a regular file: a pipe's size and time change."""
Counter = Callable[["FileAt"], int]
"""Counts the records of a file without lines, or raises Damaged."""
Content = Callable[[], AbstractContextManager[IO[bytes]]]


class FileAt(NamedTuple):
    """Where a file is opened: its path, or an object's URL with its size and ETag, so that no other content is read."""

    path: str
    bytes: int = 0
    etag: str = ""


class Csv(NamedTuple):
    """How files of CSV are read.

    An open quote is closed within `quoted_within` bytes of its record. `header`: the names that the first record must
    have, if it is a header. `delimiter` separates the values. `encoding`: of the file's bytes. `columns`: the declared
    columns of these names, if a name is another in the source."""

    quoted_within: int
    header: Sequence[str] | None = None
    delimiter: str = ","
    encoding: str = encodings.UTF_8
    columns: Sequence[str] | None = None


Layout = Csv | Counter | None
"""How the records of files are found and counted. None: each line is a record."""


@dataclass(frozen=True)
class InputFile:
    """A file as it was when it was first seen. `refusal` is the reason if its content can't be read.

    For a source that is read in ranges it is [begins, ends) of the file or part with that `identity`. The `mark` of a
    growing file stands for its last bytes before `ends`; the `mark` of an object is its ETag. `root`: the inbox, as in
    `path`.

    For CSV `quoted_within` is the number of bytes of a record within which its quotes are closed, as when it was
    counted. At each of the `cuts` a record begins, so the parts between can be read in parallel.
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
        """Return where the file is, even if its inbox was moved since; `path` is the name that identifies it."""
        return self.moved_to or self.path


def records(lines: Iterable[tuple[str, int]], unreadable: Container[str]) -> int:
    """Return how many records the files (path, lines) of a batch must have; an unreadable file counts as one."""
    return sum(1 if path in unreadable else number for path, number in lines)


def check_inboxes(files: Iterable[InputFile]) -> None:
    """Raise Retryable if a file's inbox is missing: then its files are not lost."""
    for folder in sorted({_inbox_now(file) for file in files}):
        if not folder.is_dir():
            raise Retryable(
                f"the inbox {folder} is no folder any more, and files of it were to be read",
                data="nothing of this batch was read; the files count as they were listed",
                hint="mount it, or put it back; the next attempt reads them",
            )


def not_read_now(path: str, error: OSError) -> Retryable:
    """Return the error for a listed file that can't be read now: it may be readable at the next attempt."""
    return Retryable(
        f"{path} can't be read: {error.strerror}",
        data="nothing of this batch was read; the file counts as it was listed",
        hint="give the run's user permission to read it, or repair its disk or mount; the next attempt reads it. "
        "If the file is lost, delete it: it becomes one invalid record",
    )


def _inbox_now(file: InputFile) -> Path:
    below = Path(file.path).relative_to(file.root).parts if file.root else (file.path,)
    return Path(file.place).parents[len(below) - 1]


@dataclass(frozen=True)
class _Found:
    """An entry of the inbox: where it is opened, its name in the manifest, and the refusal of its name or kind."""

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
    """Yield the files of the inbox that are not `known` with this size and mtime, by path. Called by the manifest.

    `links`: whether links are followed. `folders`: how folders below are treated. An unreadable file raises no error,
    but has a `refusal`; a file that vanishes meanwhile is left out.
    """
    # Small files are counted in this thread: handing them to another one takes longer than reading them.
    with ThreadPoolExecutor(max_workers=4) as pool:
        fresh = [
            pool.submit(_accepted, one, layout) if one.size > PIECE else _accepted(one, layout)
            for one in unlisted(folder, known, links, folders or Folders())
        ]
        yield from (entry if isinstance(entry, InputFile) else entry.result() for entry in fresh)


def unlisted(folder: Path, known: dict[str, tuple[int, int]], links: bool, folders: Folders) -> list[_Found]:
    """Return the entries of the inbox that are not `known` with this size and mtime, by path. No file is opened."""
    found = []
    for entry in folders.entries(str(folder), links=links):
        # It may vanish meanwhile: then there is no file.
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
            if links or known.get(name) == (
                there.st_size,
                there.st_mtime_ns,
            ):  # read by a reprocessing that followed links
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
    """Return a path as a string. A name may be any bytes; Java can neither store nor open one that is not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _accepted(one: _Found, layout: Layout) -> InputFile:
    if one.refusal:
        return InputFile(one.name, one.size, one.modified_ns, 0, one.refusal)
    return accept(one.path, one.name, one.size, one.modified_ns, layout)


def accept(path: str, name: str, size: int, modified_ns: int, layout: Layout = None, etag: str = "") -> InputFile:
    """Return a file with its number of records, or with a refusal. `etag`: of an object, whose `path` is its URL.

    Raise Changed or FileNotFoundError for an object.
    """
    compressed_as = file_bytes.compression_of(name)
    try:
        if callable(layout):
            return InputFile(name, size, modified_ns, layout(FileAt(path, size, etag)), None)
        if compressed_as and not size:
            raise EOFError("it is empty")
        content = partial(opened, FileAt(path, size, etag), compressed_as)
        if layout is None:
            return InputFile(name, size, modified_ns, _count_lines(content), None)
        lines, cuts = _csv_records(content, layout)
        refusal = _other_beginning(content, layout)
        lines = 0 if refusal else lines - (layout.header is not None)
        # No part begins at the end of the file. A compressed file is not cut: its positions count in its uncompressed
        # content.
        parts = () if compressed_as else tuple(cut for cut in cuts if cut < size)
        return InputFile(name, size, modified_ns, lines, refusal, cuts=parts, quoted_within=layout.quoted_within)
    except Damaged as error:
        return InputFile(name, size, modified_ns, 0, str(error))
    except Exception as error:
        if etag and isinstance(error, FileNotFoundError):
            raise
        if compressed_as and file_bytes.is_damage(error):
            reason = f"the {compressed_as} file is cut short or damaged ({error}); put it in again under a new name"
        elif isinstance(error, OSError):
            reason = f"the file can't be read: {error.strerror}; when it can, give it a new name"
        else:
            raise
        return InputFile(name, size, modified_ns, 0, reason)


def listing_refusal(path: str, name: str, *, replaced: bool) -> str | None:
    """Return why a file's name is refused: the name itself, or that it is known already.

    `replaced`: the name is known with another size or time. Such a file is not read again, even if it was refused
    before and is repaired now: it needs a new name.
    """
    if replaced:
        return "the file was replaced under its old name; give new data a new name"
    if name != path:
        return "the file's name is not UTF-8; give it another name"
    if path.lower().endswith(file_bytes.LEFT_ALONE):
        return "the file's name says that it is compressed; put it in decompressed, without that ending"
    return None


def _count_lines(content: Content) -> int:
    """Return the number of lines. Raise Damaged for a file of another format."""
    ends, last, beginning = 0, b"\n", b""
    with content() as file:
        while piece := file.read(PIECE):
            if not beginning and (refusal := other_format(beginning := piece[:BEGINNING])):
                raise Damaged(refusal)
            # This takes a third of the time of `bytes.count`, which restarts its search at each line feed.
            ends += int(np.count_nonzero(np.frombuffer(piece, np.uint8) == NEWLINE))
            last = piece[-1:]
    return ends + (last != b"\n")


def _csv_records(content: Content, layout: Csv) -> tuple[int, list[int]]:
    """Return the number of records, and the places at which a part of the file can begin."""
    lines, cuts = 0, list[int]()
    with content() as file:
        for ends in file_bytes.record_ends_of(file, layout.quoted_within, layout.delimiter):
            lines += len(ends)
            cuts += cuts_at(ends, cuts[-1] if cuts else 0)
    return lines, cuts


def cuts_at(ends: file_bytes.Ends, last: int) -> Iterator[int]:
    """Yield the ends of records at which the parts of a file begin, given where the last part begins."""
    while (at := int(np.searchsorted(ends, last + RANGE))) < len(ends):
        last = int(ends[at])
        yield last


@contextmanager
def opened(at: FileAt, compressed_as: str | None) -> Iterator[IO[bytes]]:
    """Yield the content of a regular file, or of an object.

    `compressed_as` is given apart from the path, since a followed link has another name than its file.
    """
    plain: Any = ObjectFile(*at) if at.etag else open(file_bytes.opened_file(at.path), "rb", buffering=0)  # noqa: PTH123, SIM115 - a descriptor
    with plain as file:
        if compressed_as:
            with file_bytes.decompressed_content(file, compressed_as) as decompressed:
                yield decompressed
        else:
            yield file


def _other_beginning(content: Content, layout: Csv) -> str | None:
    """Return why a file is refused by its first bytes or its header, or None."""
    if layout.header is None and layout.encoding == encodings.UTF_8:
        return None
    with content() as file:
        first = _first_record(file, layout)
    return other_format(first, layout.encoding) or (
        None if layout.header is None else _other_header(first, layout.header, layout)
    )


def other_format(beginning: bytes, encoding: str = encodings.UTF_8) -> str | None:
    """Return why a file of text is refused by its first bytes, or None: another format, or another encoding."""
    found = next((told for first, told in OTHER_FORMATS.items() if beginning.startswith(first)), None)
    return f"the file is {found}" if found else _other_encoding(beginning, encoding)


def _other_encoding(beginning: bytes, encoding: str) -> str | None:
    """Return why a file is refused if its byte order mark says another encoding than the declared one, or None."""
    found = encodings.other_mark(beginning, encoding)
    if found is None:
        return None
    # For UTF-8, iconv takes the mark for a character.
    old = "sed '1s/^\\xEF\\xBB\\xBF//' OLD | iconv" if found == "UTF-8" else "iconv"
    end = "> NEW" if found == "UTF-8" else "OLD > NEW"
    return (
        f"the file is {found} by its first bytes, and {encoding} is declared; put it in under a new name, "
        f"converted by: {old} -f {found} -t {encoding.upper()} {end}"
    )


def _other_header(record: bytes, header: Sequence[str], layout: Csv) -> str | None:
    first = (
        record.decode("utf-8-sig", "backslashreplace")
        if layout.encoding == encodings.UTF_8
        else encodings.decode(record, layout.encoding)
    ).rstrip("\r\n")
    wanted = [name.strip() for name in header]
    found: list[str] = []
    with suppress(Invalid):
        found = [(name or "").strip() for name in csv_cells(first, layout.delimiter)]
    if found == wanted:
        return None
    if not record:
        return f"the file is empty: it lacks the header {layout.delimiter.join(header)!r}"
    columns = dict(zip(wanted, layout.columns or wanted, strict=True))
    return (
        f"the first line of the file is {first[:MOST_SHOWN]!r}, and not the header {layout.delimiter.join(header)!r}"
        f": {_difference(found, columns)}"
    )


def _difference(found: list[str], columns: Mapping[str, str]) -> str:
    """Return how a header differs from the declared columns (by their names in the source), and what to declare."""
    lacking = [name for name in columns if name not in found]
    more = [name for name in found if name not in columns]
    if not lacking and not more:
        return "the order differs; declare the columns in the order of the file"
    if len(lacking) == len(columns):
        return "no column has a declared name; has the file a header, and this delimiter?"
    if len(lacking) == len(more) == 1 and len(more[0]) <= SHOWN:
        return (
            f"it has {more[0]!r} and lacks {lacking[0]!r}; if this is the same column, declare "
            f"aliases={{{columns[lacking[0]]!r}: {more[0]!r}}}"
        )
    told = [
        *([f"it lacks {', '.join(map(shown, lacking))}"] if lacking else []),
        *([f"it has {', '.join(map(shown, more))}, which the declaration has not"] if more else []),
    ]
    return "; ".join(told)


def _first_record(file: IO[bytes], layout: Csv) -> bytes:
    within = min(layout.quoted_within, MOST_HEADER)
    found, begin = file_bytes.record_end_reader(within, 0, layout.delimiter), b""
    while len(begin) <= MOST_HEADER and (data := file.read(MOST_HEADER)):
        begin += data
        if len(ends := found.add(data)):
            return begin[: ends[0]]
    return begin[: int(next(iter(found.finish()), MOST_HEADER))]


def changed(file: InputFile, *, links: bool = False) -> str | None:
    """Return why a file differs from what was listed, or None. Called when its batch begins.

    Raise Retryable if the file can't be looked up now.
    """
    try:
        now = Path(file.place).stat(follow_symlinks=links)
    except OSError as error:
        if not file_bytes.is_gone(error):
            raise not_read_now(file.place, error) from error
        return VANISHED
    inbox = file.place.removesuffix(file.path.removeprefix(file.root))
    if file.root and not links and not file_bytes.is_directly_below(file.place, inbox):
        return "a folder between the inbox and the file is a symbolic link now, which is not followed"
    if (now.st_size, now.st_mtime_ns) != (file.size, file.modified_ns):
        return f"the file changed after it was listed: it had {file.size} bytes, it has {now.st_size}"
    return None


# List objects below a prefix of an object store.
#
# An object is identified by its key and its ETag. A million objects are listed in pages, and one page is in memory. The
# manifest's facts take sixteen bytes for each object, and new objects are registered a few thousand at a time. An
# object that was replaced since its page was listed can't be counted, so the next listing takes it. `folders` decides
# which objects deeper below the prefix are input. A prefix that was lost looks like one without objects.


PAGE = 1000
"""As many objects as one answer of S3 has."""
AT_ONCE = 16
DECODED_AT_ONCE = 4
"""For objects of Parquet or Avro: each has about ten megabytes of rows in memory."""
TOLD = 100_000
EARLIER = -2
"""A batch number before all others."""
log = structlog.get_logger()

Item = TypeVar("Item")

Hashes = NDArray[np.uint64]
NONE: Hashes = np.zeros(0, np.uint64)


@dataclass(frozen=True)
class Known:
    """The objects of the manifest: sorted hashes of their names, and hashes of the last known ETag of each.

    Two names would have one hash in one of four hundred thousand manifests of a hundred million objects. Then the
    second object is refused, and reported.
    """

    names: Hashes = field(default_factory=lambda: NONE)
    marks: Hashes = field(default_factory=lambda: NONE)

    def look(self, names: Hashes) -> tuple[NDArray[np.bool_], Hashes]:
        """Return which of some names are known, and the hash of the last ETag of each."""
        if not len(self.names):
            return np.zeros(len(names), bool), np.zeros(len(names), np.uint64)
        at = np.minimum(np.searchsorted(self.names, names), len(self.names) - 1)
        return self.names[at] == names, self.marks[at]


def known_objects(registered: Iterable[pa.RecordBatch], before: Known = Known()) -> Known:
    """Return the objects known before and the objects in batches of the manifest, in their order.

    `registered`: the columns batch_no, path and mark.
    """
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
    """Yield the objects below a prefix that are not known with this ETag, about `most` at a time, each part by name.

    `named`: the prefix as stored in the manifest.
    """
    with ThreadPoolExecutor(max_workers=DECODED_AT_ONCE if callable(layout) else AT_ONCE) as pool:
        for some in _parts(unlisted_objects(prefix, named, there, folders or Folders()), most):
            accepted = pool.map(
                partial(_accepted_objects, prefix, named, layout), sorted(some, key=lambda one: str(one[0].at))
            )
            if found := [one for one in accepted if one is not None]:
                yield found


def changed_objects(files: Iterable[InputFile]) -> dict[str, str]:
    """Return why objects differ from what was listed, by path. One request for each, when their batch begins."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        asked = list(files)
        return {file.path: why for file, why in zip(asked, pool.map(_changed, asked), strict=True) if why}


def _parts(found: Iterator[Item], most: int) -> Iterator[list[Item]]:
    while part := list(islice(found, most)):
        yield part


def object_pages(prefix: Url, folders: Folders) -> Iterator[list[Entry]]:
    """Yield the objects below a prefix that are input, page by page, and log the progress."""
    listed = 0
    for page in _parts(stores.of(prefix).entries(prefix), PAGE):
        listed += len(page)
        if listed % TOLD == 0:
            log.info("listing", prefix=str(prefix), objects=listed)
        yield [one for one in page if folders.holds(prefix, one)]
    if listed >= TOLD:
        log.info("listed", prefix=str(prefix), objects=listed)


def unlisted_objects(prefix: Url, named: str, there: Known, folders: Folders) -> Iterator[tuple[Entry, bool]]:
    """Yield the new objects, each with whether its name is known. No object is read."""
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
