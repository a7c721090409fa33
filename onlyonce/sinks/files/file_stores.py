"""Stores for the files of sharded sinks: a local folder, where names are final, or an object store with manifests.

Both compare the bytes of a file with what its unit has recorded before the file becomes final.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from uuid import uuid4

from pyarrow import ArrowInvalid, fs

from onlyonce import settings
from onlyonce.core import ownership, shards, stored_names
from onlyonce.core.errors import InvariantBroken, Refused, Retryable
from onlyonce.core.locations import Url, is_s3, location
from onlyonce.core.shards import Winner
from onlyonce.core.stored_names import WINDOW_END, WINDOW_START
from onlyonce.failpoints import passing
from onlyonce.tables import arrow_files, stores
from onlyonce.tables.arrow_files import Sink
from onlyonce.tables.stores import sync

PIECE = 1 << 20


UNREACHABLE = (OSError, ImportError, ValueError, Refused, Retryable)
"""Errors of a store that is away or refuses a request, whose package is not installed, or that no package knows."""


class Counted(io.RawIOBase):
    """A binary file that counts and hashes what is written to it."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file, self._hash, self.bytes = file, hashlib.sha256(), 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write all of the data, and return its length."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._hash.update(view)
        self.bytes += len(view)
        return len(view)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self.bytes

    @property
    def checksum(self) -> str:
        """The sha256 of what was written, in hexadecimal."""
        return self._hash.hexdigest()


def digest(file: BinaryIO) -> tuple[int, str]:
    """Return (bytes, sha256) of what can be read."""
    found, size = hashlib.sha256(), 0
    while piece := file.read(PIECE):
        found.update(piece)
        size += len(piece)
    return size, found.hexdigest()


def check(winner: Winner, where: object, there: tuple[int, str]) -> None:
    """Raise InvariantBroken unless a file is what its unit has recorded."""
    if there != (winner.bytes, winner.checksum):
        raise InvariantBroken(
            f"{where} should have {winner.bytes} bytes (sha256 {winner.checksum[:16]}…), but it has {there[0]} "
            f"(sha256 {there[1][:16]}…)",
            data=f"pane {winner.pane} of {winner.instance}, output {winner.output}, is not final; nothing was "
            "overwritten",
            hint="another program has written there. Move that file away if it is not yours, then: onlyonce finalize",
        )


def missing(winner: Winner, where: object) -> InvariantBroken:
    """Return the error for a missing file that the log vouches for."""
    return InvariantBroken(
        f"{where} does not exist, and neither does {winner.name}: {winner.rows} rows of {winner.instance}, output "
        f"{winner.output}",
        data="the log says that they were written; the pane is not final",
        hint="put the file back from a backup of the same moment; or, for a window: onlyonce backfill makes it again",
    )


# A folder with files. A temporary file gets its final name by a hard link, which fails if the name is taken.
#
# The file is linked, then its temporary name is removed. After a kill between the two, the next finalize finds both
# names and continues. Temporary files are in a hidden folder of the same file system, where no reader's glob finds
# them.


PENDING = stored_names.PENDING_FOLDER
SYNCS = 16
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""Errors of file systems that have no hard links."""


@dataclass(frozen=True)
class LocalStore:
    """The files of one output in a folder."""

    folder: Path

    @contextmanager
    def create(self, temporary: str) -> Iterator[Counted]:
        """Open a new temporary file, which `settle` syncs later. It is removed after an error."""
        path = self.folder / PENDING / temporary
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            try:
                yield Counted(file)
            except BaseException:
                path.unlink(missing_ok=True)
                raise

    def settle(self, temporaries: list[str]) -> None:
        """Fsync files and names. Several threads do it at the same time, which is ten times as fast."""
        with ThreadPoolExecutor(SYNCS) as pool:
            for _ in pool.map(sync, [self.folder / PENDING / name for name in temporaries]):
                pass
        if temporaries:
            sync(self.folder / PENDING)

    def remove(self, temporary: str) -> None:
        """Remove a temporary file."""
        (self.folder / PENDING / temporary).unlink(missing_ok=True)

    def publish(self, pane: list[Winner]) -> None:
        """Give the files of a pane their final names, one after the other. No file moves if a name is taken."""
        waiting = [winner for winner in pane if winner.finalized_at is None]
        for winner in waiting:
            with suppress(FileNotFoundError):
                _check(winner, self.folder / winner.name)
        for winner in waiting:
            self._publish(winner)

    def published(self, winners: list[Winner]) -> None:
        """Fsync the final names, and those of the folders in them: a new folder's name is in its parent."""
        names = [Path(winner.name) for winner in winners]
        for folder in {self.folder / parent for name in names for parent in name.parents}:
            sync(folder)

    def size(self, winner: Winner) -> int | None:
        """Return the size of a final file; None if it is missing."""
        path = self.folder / winner.name
        return path.stat().st_size if path.is_file() else None

    def read(self, winner: Winner) -> bytes:
        """Return the bytes of a final file."""
        return (self.folder / winner.name).read_bytes()

    def everything(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Yield (path, how to read it) of each file below the folder, temporaries too."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                yield str(path), path.read_bytes

    def note(self) -> str | None:
        """Return the content of the folder's note."""
        path = self.folder / ownership.FILE
        return path.read_text() if path.is_file() else None

    def put_note(self, note: str) -> None:
        """Write the folder's note if it has none, as whole as a final file. If two platforms write, one succeeds."""
        partial = f"{ownership.FILE}-{uuid4().hex}"
        with self.create(partial) as file:
            file.write(note.encode())
        self.settle([partial])
        _link(self.folder / PENDING / partial, self.folder / ownership.FILE)
        self.remove(partial)
        sync(self.folder)

    def temporaries(self) -> Iterator[tuple[str, float]]:
        """Yield (name, seconds since it last grew)."""
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
        except FileNotFoundError:  # published before, or by another finalizer just now: the final name decides
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
    """Give a file its second name; return False if the name is taken. Never overwrite a file."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if target.exists():  # if two finalizers run here, both have the same content
            return False
        source.rename(target)
    return True


def _check(winner: Winner, path: Path) -> None:
    with path.open("rb") as file:
        check(winner, path, digest(file))


# Stores behind pyarrow.fs or fsspec (s3://, gs://, hdfs://, …). No rename there is atomic, so none is used.
#
# A task writes each file once, under its attempt's name, and the file keeps that name. The log says which files are
# final. Each pane also has a manifest, which is written once all of its files were checked. Readers take the files that
# the manifests name, and never list the folder `parts`, which also has the files of lost attempts.


PARTS, MANIFESTS = stored_names.PARTS_FOLDER, stored_names.MANIFESTS_FOLDER


@dataclass(frozen=True)
class ObjectStore:
    """The files of one output under a URL.

    Secrets, region and endpoint come from the environment, unless the URL's query has them.
    """

    url: str

    @contextmanager
    def create(self, temporary: str) -> Iterator[Counted]:
        """Open a new object: complete when the block has ended, and removed after an error.

        Its name is random, so no other attempt has it.
        """
        stream = _stream(self.url, temporary)
        try:
            yield Counted(stream)
            stream.close()
        except BaseException:
            # Python closes an unreferenced stream, and then a half object would appear. If the store is unreachable,
            # the sweep removes it.
            if not isinstance(stream, Sink):
                with suppress(OSError):
                    stream.close()
            with suppress(OSError):
                self.remove(temporary)
            raise

    def settle(self, temporaries: list[str]) -> None:
        """Do nothing: an object is durable once the store has answered."""

    def remove(self, temporary: str) -> None:
        """Remove an object."""
        system, root = _open(self.url)
        if _is_there(system, f"{root}/{PARTS}/{temporary}"):
            system.delete_file(f"{root}/{PARTS}/{temporary}")

    def publish(self, pane: list[Winner]) -> None:
        """Check that the files of a pane are as recorded, then write its manifest."""
        system, root = _open(self.url)
        for winner in pane:
            passing("finalize-before-link")
            _check_object(system, winner, f"{root}/{PARTS}/{winner.temporary}")
            passing("finalize-after-rename")
        text = _manifest(pane)
        path = f"{root}/{MANIFESTS}/{manifest_name(pane[0])}"
        there = _content(system, path)
        # A store whose writes are not atomic may have a part of a killed write: a prefix of the expected manifest.
        if there is None or (there != text and text.startswith(there)):
            passing("finalize-before-manifest")
            _put(self.url, manifest_name(pane[0]), text, new=there is None)
            there = _content(system, path)
        passing("finalize-after-manifest")
        if there != text:
            raise InvariantBroken(
                f"{path} exists, but its content differs from what the log has for this pane",
                data="the pane is not final; nothing was overwritten",
                hint="compare it with onlyonce.output_files; move it away if it is not the platform's, then: "
                "onlyonce finalize",
            )

    def published(self, winners: list[Winner]) -> None:
        """Do nothing: an object is durable once the store has answered."""

    def size(self, winner: Winner) -> int | None:
        """Return the size of a final file; None if it is missing."""
        system, root = _open(self.url)
        info = system.get_file_info(f"{root}/{PARTS}/{winner.temporary}")
        return info.size if info.type == fs.FileType.File else None

    def read(self, winner: Winner) -> bytes:
        """Return the bytes of a final file."""
        system, root = _open(self.url)
        return _read(system, f"{root}/{PARTS}/{winner.temporary}")

    def everything(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Yield (URL, how to read it) of each object below: files of panes and of lost attempts, and manifests."""
        system, root = _open(self.url)
        base = self.url.partition("?")[0].rstrip("/")
        for info in system.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True)):
            if info.type == fs.FileType.File:
                yield f"{base}{info.path.removeprefix(root)}", partial(_read, system, info.path)

    def note(self) -> str | None:
        """Return the content of the note under the URL."""
        system, root = _open(self.url)
        content = _content(system, f"{root}/{ownership.FILE}")
        return content.decode() if content else None

    def put_note(self, note: str) -> None:
        """Write the note if there is none: by a conditional PUT, if the standard variables configure the store."""
        if (at := _plain(self.url)) is not None:
            stores.of(at).put_new(at / ownership.FILE, note.encode())
        elif self.note() is None:
            system, root = _open(self.url)
            system.create_dir(root, recursive=True)
            with system.open_output_stream(f"{root}/{ownership.FILE}") as file:
                file.write(note.encode())

    def temporaries(self) -> Iterator[tuple[str, float]]:
        """Yield (name, seconds since it was written). Final files are included, since they keep their names."""
        system, root = _open(self.url)
        now = datetime.now(UTC)
        for info in system.get_file_info(fs.FileSelector(f"{root}/{PARTS}", allow_not_found=True)):
            if info.type == fs.FileType.File:
                yield info.base_name, (now - info.mtime).total_seconds() if info.mtime else 0.0


def manifest_name(winner: Winner) -> str:
    """Return the name of the manifest of a file's pane."""
    shard = shards.Shard(winner.window_start, winner.window_end, 0, 1)
    naming = "{prefix}-{window_start}-{window_end}-pane-{pane}.{ext}"
    return shards.name(naming, winner.output, "json", shard).replace(shards.PANE, str(winner.pane))


def _manifest(pane: list[Winner]) -> bytes:
    first = pane[0]
    files = [
        {"name": w.name, "object": f"{PARTS}/{w.temporary}", "rows": w.rows, "bytes": w.bytes, "sha256": w.checksum}
        for w in sorted(pane, key=lambda winner: winner.shard)
    ]
    about = {
        "instance": first.instance, "output": first.output, "generation": first.generation, "pane": first.pane,
        WINDOW_START: _text(first.window_start), WINDOW_END: _text(first.window_end), "files": files,
    }  # fmt: skip
    return json.dumps(about, indent=1).encode() + b"\n"


def _text(time: datetime | None) -> str | None:
    return time.astimezone(UTC).isoformat() if time else None


def _check_object(system: Any, winner: Winner, path: str) -> None:
    if not _is_there(system, path):
        raise missing(winner, path)
    with system.open_input_stream(path) as file:
        check(winner, path, digest(file))


def _content(system: Any, path: str) -> bytes | None:
    return _read(system, path) if _is_there(system, path) else None


def _read(system: Any, path: str) -> bytes:
    with system.open_input_stream(path) as file:
        return bytes(file.read())


def _is_there(system: Any, path: str) -> bool:
    return bool(system.get_file_info(path).type == fs.FileType.File)


def _stream(url: str, temporary: str) -> Any:
    if (at := _plain(url)) is not None:
        return Sink(at / PARTS / temporary)
    system, root = _open(url)
    system.create_dir(f"{root}/{PARTS}", recursive=True)
    return system.open_output_stream(f"{root}/{PARTS}/{temporary}")


def _put(url: str, manifest: str, text: bytes, *, new: bool) -> None:
    """Write a manifest. `new`: by a conditional PUT, if the store has one; a manifest that another writer has written
    stays.
    """
    if (at := _plain(url)) is not None:  # a folder made by Arrow would be one more object
        write = stores.of(at).put_new if new else stores.of(at).put
        write(at / MANIFESTS / manifest, text)
        return
    system, root = _open(url)
    system.create_dir(f"{root}/{MANIFESTS}", recursive=True)
    with system.open_output_stream(f"{root}/{MANIFESTS}/{manifest}") as file:
        file.write(text)


def _plain(url: str) -> Url | None:
    """Return the location of a URL without options, which the standard variables configure; else None."""
    try:
        at = location(url)
    except Refused:
        return None
    return at if isinstance(at, Url) and is_s3(at) else None


def _open(url: str) -> tuple[Any, str]:
    if (at := _plain(url)) is not None:
        return arrow_files.system_of(at)
    try:
        system, root = fs.FileSystem.from_uri(url)
    except ArrowInvalid:  # not one of pyarrow's own
        import fsspec

        other, root = fsspec.core.url_to_fs(url)
        system = fs.PyFileSystem(fs.FSSpecHandler(other))
    return system, root.rstrip("/")


# The interface of a store. A local folder gives final names. In an object store several files can't be renamed at once.
# So there the log and a manifest for each pane say which files are final.


class Store(Protocol):
    """A store of files. It is sent to Spark's workers inside closures."""

    def create(self, temporary: str) -> AbstractContextManager[Counted]:
        """Open a new temporary file, which must not exist yet.

        It is complete when the block has ended, and removed after an error.
        """

    def settle(self, temporaries: list[str]) -> None:
        """Make temporary files durable. Called before the unit that names them commits."""

    def remove(self, temporary: str) -> None:
        """Remove a temporary file. It is not an error if the file is gone."""

    def publish(self, pane: list[Winner]) -> None:
        """Make all files of a pane final. This may be repeated, even at the same time.

        Raise InvariantBroken for a missing file, or a final name that has different content.
        """

    def published(self, winners: list[Winner]) -> None:
        """Make final names durable. Called before the log says that they are final."""

    def size(self, winner: Winner) -> int | None:
        """Return how many bytes a final file has; None if it is missing."""

    def read(self, winner: Winner) -> bytes:
        """Return the bytes of a final file."""

    def everything(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Yield (path or URL, how to read it) of each existing file, final or not."""

    def note(self) -> str | None:
        """Return the note that names the place's writer; None if there is no note."""

    def put_note(self, note: str) -> None:
        """Write the note that names the place's writer, if there is none.

        If two platforms write at the same time, one succeeds, provided that the store has conditional writes.
        """

    def temporaries(self) -> Iterator[tuple[str, float]]:
        """Yield (name, seconds since it last grew) of all temporary files."""


def store_of(place: str) -> Store:
    """Return the store of a declared place."""
    if "://" in place:
        return ObjectStore(place)
    return LocalStore(folder_of(place))


def folder_of(place: str) -> Path:
    """Return the folder of a place that is not a URL."""
    return settings.files_dir() / place
