"""Files that grow: their identity, how far they reach in whole records, and which part of them is new.

A file is identified by its inode, the inode's birth, and its first line. So a rename changes nothing, and a new file
under an old name is another file. If a file system records no birth, a new file with the same inode and first line is
taken for the old one. The last bytes that were read of a file are remembered (`mark`). If the file no longer has them
at that place, it was cut short or rewritten, and it is refused for good. No Spark and no table: the manifest remembers.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xxhash

from onlyonce.api.sources import Start, before_start
from onlyonce.core import encodings
from onlyonce.core.errors import Retryable
from onlyonce.sources import file_bytes
from onlyonce.sources.folders import Folders
from onlyonce.sources.listing import (
    BEGINNING,
    VANISHED,
    Csv,
    InputFile,
    accept,
    cuts_at,
    not_read_now,
    other_format,
    printable,
)
from onlyonce.sources.record_id import inode, of_open, opened

MARK = 1 << 10
PIECE = 1 << 20
THREADS = 4
CUT = (
    "the file was cut short or rewritten in place: it has not got what was read of it, up to byte {ends}. Nothing "
    "more of it is read; rotate by renaming, or put a copy of what it holds in under another name"
)


@dataclass(frozen=True)
class Known:
    """How far a file was read, and the mark of the last bytes read. A refused file is not read any more."""

    ends: int
    mark: str
    refused: bool = False


@dataclass(frozen=True)
class _Asked:
    """After how many bytes a range ends, and how records of CSV are found."""

    most_bytes: int
    csv: Csv | None

    @property
    def quoted_within(self) -> int | None:
        return self.csv and self.csv.quoted_within


def new_ranges(
    folder: Path,
    known: Mapping[str, Known],
    most_bytes: int,
    *,
    with_compressed: bool = False,
    links: bool = False,
    folders: Folders | None = None,
    csv: Csv | None = None,
) -> list[InputFile]:
    """Return the unread part of each file of the folder, in ranges of whole records, by time of last change."""
    asked = _Asked(most_bytes, csv)
    found = sorted(
        _there(folder, with_compressed, links=links, folders=folders or Folders()),
        key=lambda one: (one.modified_ns, one.path),
    )
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        looks = list(pool.map(lambda one: list(_new(one, known, asked)), found))
    return [one for look in _of_each_file(looks) for one in look]


def _of_each_file(looks: Iterable[list[InputFile]]) -> Iterable[list[InputFile]]:
    """Return one look for each file: a file that has two names, or is renamed while we list, is found under both.

    It may grow between the looks, and ranges of two looks need not join. So the one that reaches furthest counts.
    """
    found: dict[tuple[str, bool], list[InputFile]] = {}
    for look in filter(None, looks):
        file = (look[0].identity, look[0].refusal is None)
        found[file] = max(found.get(file, look), look, key=lambda ranges: ranges[-1].ends)
    return found.values()


def at_start(
    folder: Path, start: Start, *, with_compressed: bool = False, links: bool = False, csv: Csv | None = None
) -> list[InputFile]:
    """Return the input before the start: all whole records of each file that existed then."""
    everything = new_ranges(folder, {}, 1 << 62, with_compressed=with_compressed, links=links, csv=csv)
    return [one for one in everything if one.refusal is None and before_start(start, one.modified_ns)]


def unread(
    folder: Path, known: Mapping[str, Known], *, with_compressed: bool, links: bool, folders: Folders
) -> Iterator[tuple[int, int]]:
    """Yield (unread bytes, mtime in ns) of each file that has any, once; the first line of a new file is read.

    Bytes after the last whole record are included: they may be part of a record that has not ended.
    """
    counted: set[str] = set()
    for one in _there(folder, with_compressed, links=links, folders=folders):
        with suppress(OSError):
            if one.kind:
                continue
            with opened(one.place) as file:
                size, who = os.fstat(file).st_size, of_open(file, one.path)
            seen = Known(0, "") if who is None else known.get(who, Known(0, ""))
            file_id = who or str(one.inode)
            if not seen.refused and size > seen.ends and file_id not in counted:
                counted.add(file_id)
                yield size - seen.ends, one.modified_ns


def batched(ranges: Iterable[InputFile], most_bytes: int, most_files: int) -> Iterator[list[InputFile]]:
    """Yield groups of ranges, each of about `most_bytes` (a record may exceed it), and with no file twice."""
    group: list[InputFile] = []
    held = 0
    for one in ranges:
        length, names = one.ends - one.begins, {other.path for other in group}
        if group and (held + length > most_bytes or len(group) == most_files or one.path in names):
            yield group
            group, held = [], 0
        group.append(one)
        held += length
    if group:
        yield group


def located(file: InputFile, *, links: bool = False) -> tuple[str, str | None]:
    """Return where the file of a range is now, and why the range can't be read, or None.

    Called when the batch of the range begins and when it is read. Raise Retryable if a file that may be it can't be
    read now.
    """
    failed: Retryable | None = None
    for path in _places(file, links=links):
        try:
            with opened(path) as now:
                size = os.fstat(now).st_size
                if of_open(now, path) != file.identity:
                    continue
                is_packed = file_bytes.compression_of(file.path) is not None
                same = size == file.size if is_packed else size >= file.ends and _mark(now, file.ends) == file.mark
                return path, None if same else CUT.format(ends=file.ends)
        except OSError as error:
            if not file_bytes.is_gone(error) and _may_be(path, file):
                failed = not_read_now(path, error)
    if failed:
        raise failed
    return file.place, VANISHED


def _may_be(path: str, file: InputFile) -> bool:
    """Return whether a path that can't be opened may be the file: a rotation may have made another one there."""
    try:
        now = Path(path).lstat()
        return stat.S_ISREG(now.st_mode) and now.st_ino == inode(file.identity).number
    except OSError as error:
        return not file_bytes.is_gone(error)


def _places(file: InputFile, *, links: bool) -> Iterator[str]:
    # The folder is searched only if the file was renamed.
    yield file_bytes.place_of_file(file.place, links=links)
    for entry in Folders().entries(str(Path(file.place).parent), links=links):
        if _number(entry, links=links) == inode(file.identity).number:
            yield file_bytes.place_of_file(entry.path, links=links)


def _number(entry: os.DirEntry[str], *, links: bool) -> int:
    """Return the inode of an entry; if it can't be looked up now, as the folder names it."""
    with suppress(OSError):
        return entry.stat(follow_symlinks=links).st_ino
    return entry.inode()


@dataclass(frozen=True)
class _There:
    """An entry of the folder: its name, where it is opened, and its kind if it is not a regular file."""

    path: str
    place: str
    modified_ns: int
    inode: int
    kind: str | None


def _there(folder: Path, with_compressed: bool, *, links: bool, folders: Folders) -> list[_There]:
    found = []
    for entry in folders.entries(str(folder), links=links):
        with suppress(OSError):
            if file_bytes.compression_of(entry.name) and not with_compressed:
                continue
            now = entry.stat(follow_symlinks=links)
            place = file_bytes.place_of_file(entry.path, links=links)
            found.append(_There(entry.path, place, now.st_mtime_ns, now.st_ino, file_bytes.kind_of_file(now.st_mode)))
    return found


def _new(one: _There, known: Mapping[str, Known], asked: _Asked) -> Iterator[InputFile]:
    path, number = one.path, one.inode
    if printable(path) != path:
        yield from _refused(
            printable(path), f"{number}-name", known, "the file's name is not UTF-8; give it another name"
        )
        return
    if one.kind:
        yield from _refused(path, f"{number}-kind", known, f"it is no file, but {one.kind}")
        return
    try:
        with opened(one.place) as file:
            now = os.fstat(file)
            who = of_open(file, path)
            if who is None or (seen := known.get(who, Known(0, ""))).refused:
                return
            made = InputFile(
                path,
                now.st_size,
                now.st_mtime_ns,
                0,
                None,
                who,
                seen.ends,
                seen.ends,
                seen.mark,
                quoted_within=asked.quoted_within,
            )
            yield from (
                _of_packed(made, one, known, asked)
                if file_bytes.compression_of(path)
                else _of_open(file, made, seen, asked)
            )
    except FileNotFoundError:
        return
    except OSError as error:
        # Once the file can be read, it has another identity, and is read.
        yield from _refused(path, f"{number}-closed", known, f"the file can't be read: {error.strerror}")


def _refused(path: str, who: str, known: Mapping[str, Known], reason: str) -> Iterator[InputFile]:
    if who not in known:
        yield InputFile(path, 0, 0, 0, reason, who, mark=who)


def _of_open(file: int, made: InputFile, seen: Known, asked: _Asked) -> Iterator[InputFile]:
    if seen.ends and (made.size < seen.ends or _mark(file, seen.ends) != seen.mark):
        yield replace(made, refusal=CUT.format(ends=seen.ends))
        return
    encoding = asked.csv.encoding if asked.csv else encodings.UTF_8
    if not seen.ends and (refusal := other_format(os.pread(file, BEGINNING, 0), encoding)):
        yield replace(made, refusal=refusal)
        return
    one = made
    for ends in _ends(file, seen.ends, made.size, asked.csv):
        while len(ends):
            # A range ends with the record that reaches `most_bytes`.
            whole = int(np.searchsorted(ends, one.begins + asked.most_bytes))
            mine, ends = ends[: whole + 1], ends[whole + 1 :]
            one = replace(
                one,
                ends=int(mine[-1]),
                lines=one.lines + len(mine),
                cuts=(*one.cuts, *_cuts(one, mine, asked.quoted_within)),
            )
            if one.ends - one.begins >= asked.most_bytes:
                yield _marked(file, one)
                one = replace(made, begins=one.ends, ends=one.ends)
    if one.lines:
        yield _marked(file, one)


def _ends(file: int, start: int, size: int, csv: Csv | None) -> Iterator[file_bytes.Ends]:
    """Yield the ends of the records in [start, size) that certainly end.

    An incomplete line is not included, nor a record with an open quote."""
    found = file_bytes.record_end_reader(csv.quoted_within, start, csv.delimiter) if csv else file_bytes.Lines(start)
    at = start
    while at < size and (data := os.pread(file, min(PIECE, size - at), at)):
        yield found.add(data)
        at += len(data)


def _cuts(one: InputFile, ends: file_bytes.Ends, quoted_within: int | None) -> Iterator[int]:
    return iter(()) if quoted_within is None else cuts_at(ends, one.cuts[-1] if one.cuts else one.begins)


def _marked(file: int, one: InputFile) -> InputFile:
    return replace(one, mark=_mark(file, one.ends), cuts=tuple(cut for cut in one.cuts if cut < one.ends))


def _of_packed(made: InputFile, one: _There, known: Mapping[str, Known], asked: _Asked) -> Iterator[InputFile]:
    if made.identity in known:
        if made.size != made.ends:
            yield replace(made, refusal="the compressed file changed under its name; give new data a new name")
        return
    file = accept(
        one.place,
        made.path,
        made.size,
        made.modified_ns,
        asked.csv,
    )
    yield replace(file, identity=made.identity, begins=0, ends=made.size, mark=f"{made.size}")


def _mark(file: int, end: int) -> str:
    begin = max(0, end - MARK)
    return xxhash.xxh64_hexdigest(os.pread(file, end - begin, begin))
