"""What is in an inbox: each file as it is found, counted, and compared again when its batch begins.

No Spark and no table: the registry (`source_files`) decides what is new, this looks. Linear in the number of
files, about 0.03 ms of one core and 0.5 KB each; one that is known costs a look at its size and time, 0.01 ms.
"""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PIECE = 1 << 22
MOST_HEADER = 1 << 20
PACKED = ".gz"
COMPRESSED = (".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".passthrough")
"""Names that Spark's reader would unpack, and we don't."""
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
Counter = Callable[[str], int]


class Damaged(ValueError):
    """A file that no reader gets through, or that holds other columns than are declared; the text says what it is."""


@dataclass(frozen=True)
class InputFile:
    """A file as it was when it was first seen. `refusal` says why its content can't be read, if so.

    Of a source that is read in ranges: [begins, ends) of the file or part with that `identity`; the `mark` of a growing
    file stands for its last bytes before `ends`.
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


def records(lines: Iterable[tuple[str, int]], unreadable: Container[str]) -> int:
    """How many records the files (path, lines) of a batch must give: one that can't be read is one, whatever it held."""
    return sum(1 if path in unreadable else number for path, number in lines)


def packed(path: str) -> bool:
    """Whether a file is gzip by its name."""
    return path.lower().endswith(PACKED)


def new_files(
    folder: Path, known: dict[str, tuple[int, int]], header: str | None = None, count: Counter | None = None
) -> Iterator[InputFile]:
    """What is in the inbox and not known with this size and mtime, by path. Called by the registry.

    `header` is what the first line of each must be; it is no record. `count` counts the records of a file that has no
    lines, and raises Damaged.
    No error for a single file: one that can't be read has a `refusal`, one that vanishes was never there.
    """
    # Small files are counted at once: handing them to another thread takes longer than to read them.
    with ThreadPoolExecutor(max_workers=4) as pool:
        fresh = [
            pool.submit(accept, *found, header, count) if found[2] > PIECE else accept(*found, header, count)
            for found in _fresh(folder, known)
        ]
        yield from (entry if isinstance(entry, InputFile) else entry.result() for entry in fresh)


def _fresh(folder: Path, known: dict[str, tuple[int, int]]) -> list[tuple[str, str, int, int, bool]]:
    # (path, its name in the registry, size, mtime, whether it is known otherwise), sorted by path. Names that begin
    # with . or _ are somebody's temporaries, here as in Spark; folders and pipes are no files.
    found = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            # It may vanish while we look, or be a link to nowhere: then there is no file.
            with suppress(OSError):
                if entry.name.startswith((".", "_")) or not entry.is_file():
                    continue
                stat = entry.stat()
                name = printable(entry.path)
                if known.get(name) != (stat.st_size, stat.st_mtime_ns):
                    found.append((entry.path, name, stat.st_size, stat.st_mtime_ns, name in known))
    return sorted(found)


def printable(path: str) -> str:
    """A path as text. A name is any bytes; what is no UTF-8 of it could be neither stored nor opened by Java."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def accept(
    path: str, name: str, size: int, modified_ns: int, replaced: bool, header: str | None = None, count: Counter | None = None
) -> InputFile:  # fmt: skip
    """A file with its number of records, or why it can't be read."""
    if refusal := _refusal(path, name, replaced):
        return InputFile(name, size, modified_ns, 0, refusal)
    try:
        if count is not None:
            return InputFile(name, size, modified_ns, count(path), None)
        if packed(path) and not size:
            raise EOFError("it is empty")
        lines, refusal = _count_lines(path), None
        if header is not None:
            lines, refusal = lines - 1, _other_header(path, header)
        return InputFile(name, size, modified_ns, 0 if refusal else lines, refusal)
    except Damaged as error:
        return InputFile(name, size, modified_ns, 0, str(error))
    except DAMAGED as error:
        reason = f"the gzip file is cut short or damaged ({error}); put it in again under a new name"
        return InputFile(name, size, modified_ns, 0, reason)
    except OSError as error:
        reason = f"the file can't be read: {error.strerror}; when it can, give it a new name"
        return InputFile(name, size, modified_ns, 0, reason)


def _refusal(path: str, name: str, replaced: bool) -> str | None:
    if replaced:
        return "the file was replaced under its old name; give new data a new name"
    if name != path:
        return "the file's name is not UTF-8; give it another name"
    if path.lower().endswith(COMPRESSED):
        return "the file's name says that it is compressed; put it in unpacked, without that ending"
    return None


def _count_lines(path: str) -> int:
    ends, last = 0, b"\n"
    with _opened(path) as file:
        while piece := file.read(PIECE):
            ends += piece.count(b"\n")
            last = piece[-1:]
    return ends + (last != b"\n")


def _opened(path: str) -> IO[bytes] | gzip.GzipFile:
    # A Path takes longer than the whole of a small file.
    return gzip.open(path, "rb") if packed(path) else open(path, "rb", buffering=0)  # noqa: PTH123


def _other_header(path: str, header: str) -> str | None:
    with _opened(path) as file:
        first = file.readline(MOST_HEADER).decode("utf-8-sig", "backslashreplace").rstrip("\r\n")
    names = next(csv.reader([first]), [])
    if ",".join(name.strip() for name in names) == header:
        return None
    return f"the first line of the file is {first[:200]!r}, and not the header {header!r}"


def changed(file: InputFile) -> str | None:
    """Why a file is no longer what was listed; None while it is. Called when its batch begins."""
    try:
        stat = Path(file.path).stat()
    except FileNotFoundError:
        return "the file vanished before it was read"
    except OSError as error:
        return f"the file can't be read: {error.strerror}"
    if (stat.st_size, stat.st_mtime_ns) != (file.size, file.modified_ns):
        return f"the file changed after it was listed: it had {file.size} bytes, it has {stat.st_size}"
    return None
