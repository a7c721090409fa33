"""Files of a local disk behind the interface of stores.

The ETag is what tells one content from the next: inode, size and time of change.

Who calls it: `stores.of`. Errors: those of the interface; OSError of the disk. Not promised: that a folder which became
empty goes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from onlyonce.model import stored_names
from onlyonce.model.storage.location import Location
from onlyonce.storage.durable import sync
from onlyonce.storage.stores import Changed, Entry

PARTIAL = stored_names.PARTIAL_SUFFIX
"""A file with this ending has not got its name yet. A killed writer leaves it; nobody reads it."""


class LocalFiles:
    """The local side."""

    def entries(self, below: Location) -> Iterator[Entry]:
        """See the interface."""
        for folder, _, names in os.walk(_path(below)):
            for name in names:
                if not name.endswith(PARTIAL) and (entry := self.look(Path(folder, name))):
                    yield entry

    def unfinished(self, below: Location) -> Iterator[Location]:
        """See the interface."""
        for folder, folders, names in os.walk(_path(below), topdown=False):
            yield from (Path(folder, name) for name in names if name.endswith(PARTIAL))
            if not folders and not names:
                yield Path(folder)

    def names(self, at: Location) -> Iterator[str]:
        """See the interface."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(_path(at)) as found:
            yield from (one.name for one in found if not one.name.endswith(PARTIAL))

    def look(self, at: Location) -> Entry | None:
        """See the interface."""
        with suppress(FileNotFoundError, NotADirectoryError):
            stat = _path(at).stat()
            return Entry(at, stat.st_size, _etag(stat), stat.st_mtime) if _path(at).is_file() else None
        return None

    def read(self, at: Location) -> bytes:
        """See the interface."""
        return _path(at).read_bytes()

    def read_range(self, at: Location, begin: int, end: int, etag: str) -> bytes:
        """See the interface."""
        with _path(at).open("rb") as file:
            file.seek(begin)
            found = file.read(end - begin)
            # Looked at last: a file that was written over while it was read is another one by now.
            if _etag(os.fstat(file.fileno())) != etag:
                raise changed(at)
        return found

    def tail(self, at: Location, length: int) -> tuple[Entry, bytes]:
        """See the interface."""
        with _path(at).open("rb") as file:
            stat = os.fstat(file.fileno())
            file.seek(max(stat.st_size - length, 0))
            return Entry(at, stat.st_size, _etag(stat), stat.st_mtime), file.read()

    def put(self, at: Location, content: bytes) -> None:
        """See the interface."""
        partial = _partial(_path(at), content)
        partial.replace(_path(at))
        sync(_path(at).parent)

    def put_new(self, at: Location, content: bytes) -> bool:
        """See the interface."""
        partial = _partial(_path(at), content)
        try:
            os.link(partial, _path(at))
        except FileExistsError:
            return _path(at).read_bytes() == content
        finally:
            partial.unlink()
        sync(_path(at).parent)
        return True

    def delete(self, at: Location) -> None:
        """See the interface."""
        _path(at).unlink(missing_ok=True)

    def delete_all(self, below: Location, names: Sequence[str]) -> None:
        """See the interface."""
        for name in names:
            self.delete(below / name)

    def clear(self, below: Location) -> None:
        """See the interface."""
        if _path(below).is_dir():
            shutil.rmtree(_path(below), onerror=_unless_gone)
        else:
            self.delete(below)

    def renew(self, at: Location) -> None:
        """See the interface."""
        with suppress(FileNotFoundError):
            os.utime(_path(at))


def changed(at: Location) -> Changed:
    """What a reader is told whose file is another one by now."""
    return Changed(
        f"{at} has changed since it was listed", data="nothing of it was taken", hint="run the same command again"
    )


def _unless_gone(_: Any, __: str, told: tuple[Any, BaseException, Any]) -> None:
    if not isinstance(told[1], FileNotFoundError):
        raise told[1]


def _partial(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}{PARTIAL}")
    partial.write_bytes(content)
    sync(partial)
    return partial


def _path(at: Location) -> Path:
    assert isinstance(at, Path)
    return at


def _etag(stat: Any) -> str:
    return f"{stat.st_ino:x}-{stat.st_size:x}-{stat.st_mtime_ns:x}"
