"""A folder with files. A temporary file gets its final name by a hard link, which fails if the name is taken.

The file is linked, then its temporary name is removed. After a kill between the two, the next finalize finds both names
and goes on. Temporary files are in a hidden folder beside the final names, on the same file system, where no reader's
glob finds them.

Who calls it: `onlyonce.sinks.files.files_unit`, `onlyonce.sinks.files.finalize`, `onlyonce.sinks.files.sweep`. Errors:
InvariantBroken; OSError of the disk.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.sinks import owner
from onlyonce.model.sinks.shards import Winner
from onlyonce.sinks.files.contents import Counted, check, digest, missing
from onlyonce.storage import stores
from onlyonce.storage.durable import sync

PENDING = stored_names.PENDING_FOLDER
SYNCS = 16
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What file systems answer that have no second names."""


@dataclass(frozen=True)
class LocalStore:
    """The files of one output in a folder."""

    folder: Path

    @contextmanager
    def create(self, temporary: str) -> Iterator[Counted]:
        """A new temporary, for `settle` to put on the disk. Not there after an error."""
        path = self.folder / PENDING / temporary
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            try:
                yield Counted(file)
            except BaseException:
                path.unlink(missing_ok=True)
                raise

    def settle(self, temporaries: list[str]) -> None:
        """Put files and names on the disk. Side by side, so that the disk takes many in one turn: ten times as fast."""
        with ThreadPoolExecutor(SYNCS) as pool:
            for _ in pool.map(sync, [self.folder / PENDING / name for name in temporaries]):
                pass
        if temporaries:
            sync(self.folder / PENDING)

    def remove(self, temporary: str) -> None:
        """Take a temporary away."""
        (self.folder / PENDING / temporary).unlink(missing_ok=True)

    def publish(self, pane: list[Winner]) -> None:
        """Give the files of a pane their final names, one after the other."""
        for winner in pane:
            if winner.finalized_at is None:
                self._publish(winner)

    def published(self, winners: list[Winner]) -> None:
        """Put the final names on the disk."""
        for parent in {(self.folder / winner.name).parent for winner in winners}:
            sync(parent)

    def size(self, winner: Winner) -> int | None:
        """The size of a final file."""
        path = self.folder / winner.name
        return path.stat().st_size if path.is_file() else None

    def read(self, winner: Winner) -> bytes:
        """The bytes of a final file."""
        return (self.folder / winner.name).read_bytes()

    def everything(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """(path, how to read it) of each file below the folder, temporaries too."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                yield str(path), path.read_bytes

    def note(self) -> str | None:
        """Return the content of the folder's note."""
        path = self.folder / owner.FILE
        return path.read_text() if path.is_file() else None

    def put_note(self, note: str) -> None:
        """Write the folder's note if it has none. Of two platforms that write at once, one succeeds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stores.of(self.folder).put_new(self.folder / owner.FILE, note.encode())

    def temporaries(self) -> Iterator[tuple[str, float]]:
        """(name, seconds since it last grew)."""
        folder = self.folder / PENDING
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            with suppress(FileNotFoundError):
                yield path.name, time.time() - path.stat().st_mtime

    def _publish(self, winner: Winner) -> None:
        source, target = self.folder / PENDING / winner.temporary, self.folder / winner.name
        target.parent.mkdir(parents=True, exist_ok=True)
        passing("finalize-before-link")
        try:
            _check(winner, source)
            linked = _link(source, target)
        except FileNotFoundError:  # published before, or by another finalizer just now: the final name tells
            linked = False
        if not linked:
            try:
                _check(winner, target)
            except FileNotFoundError as error:
                raise missing(winner, source) from error
        passing("finalize-after-link")
        source.unlink(missing_ok=True)
        passing("finalize-after-rename")


def _link(source: Path, target: Path) -> bool:
    """Give a file its second name; False where the name is taken. Never overwrites what others have put there."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if target.exists():  # of two finalizers between these lines both bring the same content
            return False
        source.rename(target)
    return True


def _check(winner: Winner, path: Path) -> None:
    with path.open("rb") as file:
        check(winner, path, digest(file))
