"""Compares the bytes of a sharded file with what its unit has recorded."""

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

from pyarrow import ArrowInvalid, fs

from onlyonce import settings
from onlyonce.core import ownership, shards, stored_names
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.locations import Url, is_s3, location
from onlyonce.core.shards import Winner
from onlyonce.core.stored_names import WINDOW_END, WINDOW_START
from onlyonce.failpoints import passing
from onlyonce.tables import arrow_files, stores
from onlyonce.tables.arrow_files import Sink
from onlyonce.tables.stores import sync

PIECE = 1 << 20


class Counted(io.RawIOBase):
    """A binary file that counts and hashes what is written to it."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file, self._hash, self.bytes = file, hashlib.sha256(), 0

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any) -> int:
        """All of it, whatever the file below takes at once."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._hash.update(view)
        self.bytes += len(view)
        return len(view)

    def tell(self) -> int:
        """How much was written."""
        return self.bytes

    @property
    def checksum(self) -> str:
        """sha256 of what was written, in hexadecimal."""
        return self._hash.hexdigest()


def digest(file: BinaryIO) -> tuple[int, str]:
    """(bytes, sha256) of what can be read."""
    found, size = hashlib.sha256(), 0
    while piece := file.read(PIECE):
        found.update(piece)
        size += len(piece)
    return size, found.hexdigest()


def check(winner: Winner, where: object, there: tuple[int, str]) -> None:
    """Stop unless a file is what its unit has recorded. Raises InvariantBroken."""
    if there != (winner.bytes, winner.checksum):
        raise InvariantBroken(
            f"{where} should have {winner.bytes} bytes (sha256 {winner.checksum[:16]}…), but it has {there[0]} "
            f"(sha256 {there[1][:16]}…)",
            data=f"pane {winner.pane} of {winner.instance}, output {winner.output}, is not final; nothing was "
            "overwritten",
            hint="somebody else has written there. Move that file away if it is not yours, then: onlyonce finalize",
        )


def missing(winner: Winner, where: object) -> InvariantBroken:
    """The error for a file that the log vouches for and that is nowhere."""
    return InvariantBroken(
        f"{where} is not there, and neither is {winner.name}: {winner.rows} rows of {winner.instance}, output "
        f"{winner.output}",
        data="the log says that they were written; the pane is not final",
        hint="put the file back from a backup of the same moment; or, for a window: onlyonce backfill makes it anew",
    )


# A folder with files. A temporary file gets its final name by a hard link, which fails if the name is taken.
#
# The file is linked, then its temporary name is removed. After a kill between the two, the next finalize finds both
# names and goes on. Temporary files are in a hidden folder beside the final names, on the same file system, where no
# reader's glob finds them.
#
# Who calls it: `onlyonce.sinks.files.sink_files`, `onlyonce.sinks.files.finalize`, `onlyonce.sinks.files.sweep`.
# Errors: InvariantBroken; OSError of the disk.


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
        path = self.folder / ownership.FILE
        return path.read_text() if path.is_file() else None

    def put_note(self, note: str) -> None:
        """Write the folder's note if it has none. Of two platforms that write at once, one succeeds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stores.of(self.folder).put_new(self.folder / ownership.FILE, note.encode())

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


# Anything behind pyarrow.fs or fsspec (s3://, gs://, hdfs://, …), where no rename is atomic and none is used.
#
# A task writes each file once, under its attempt's name, and the file keeps that name. The log says which files are
# final. Each pane also has a manifest, which is written when all of its files were found. Readers take the files that
# the manifests name, and never list the folder `parts`, which also has the files of lost attempts.
#
# Who calls it: like `local_store`. Errors: InvariantBroken; OSError of the store.


PARTS, MANIFESTS = stored_names.PARTS_FOLDER, stored_names.MANIFESTS_FOLDER


@dataclass(frozen=True)
class ObjectStore:
    """The files of one output under a URL.

    Secrets are in the environment, and so are region and endpoint, unless the URL's query says them.
    """

    url: str

    @contextmanager
    def create(self, temporary: str) -> Iterator[Counted]:
        """A new object; there, as a whole, when the block has ended, and not there after an error.

        Its name is random, so nobody else has it."""
        stream = _stream(self.url, temporary)
        try:
            yield Counted(stream)
            stream.close()
        except BaseException:
            # Python closes what it forgets, and then the half would show. Where the store is away, the sweep takes it.
            if not isinstance(stream, Sink):
                with suppress(OSError):
                    stream.close()
            with suppress(OSError):
                self.remove(temporary)
            raise

    def settle(self, temporaries: list[str]) -> None:
        """A store's answer is for good."""

    def remove(self, temporary: str) -> None:
        """Take an object away."""
        system, root = _open(self.url)
        if _is_there(system, f"{root}/{PARTS}/{temporary}"):
            system.delete_file(f"{root}/{PARTS}/{temporary}")

    def publish(self, pane: list[Winner]) -> None:
        """See that the files of a pane are what was recorded, then write its manifest."""
        system, root = _open(self.url)
        for winner in pane:
            passing("finalize-before-link")
            _check_object(system, winner, f"{root}/{PARTS}/{winner.temporary}")
            passing("finalize-after-rename")
        text = _manifest(pane)
        path = f"{root}/{MANIFESTS}/{manifest_name(pane[0])}"
        there = _content(system, path)
        # A store whose writes are not atomic shows the half of one that was killed: the beginning of what the log says.
        if there is None or (there != text and text.startswith(there)):
            passing("finalize-before-manifest")
            _put(self.url, manifest_name(pane[0]), text)
            there = _content(system, path)
        passing("finalize-after-manifest")
        if there != text:
            raise InvariantBroken(
                f"{path} is there with other content than the log has for this pane",
                data="the pane is not final; nothing was overwritten",
                hint="compare it with onlyonce.output_files; move it away if it is not the platform's, then: "
                "onlyonce finalize",
            )

    def published(self, winners: list[Winner]) -> None:
        """A store's answer is for good."""

    def size(self, winner: Winner) -> int | None:
        """The size of a final file."""
        system, root = _open(self.url)
        info = system.get_file_info(f"{root}/{PARTS}/{winner.temporary}")
        return info.size if info.type == fs.FileType.File else None

    def read(self, winner: Winner) -> bytes:
        """The bytes of a final file."""
        system, root = _open(self.url)
        return _read(system, f"{root}/{PARTS}/{winner.temporary}")

    def everything(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """(URL, how to read it) of each object below: files of panes and of lost attempts, and manifests."""
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
        """Write the note if there is none: by a conditional PUT where the store is spoken to by the standard
        variables."""
        if (at := _plain(self.url)) is not None:
            stores.of(at).put_new(at / ownership.FILE, note.encode())
        elif self.note() is None:
            system, root = _open(self.url)
            system.create_dir(root, recursive=True)
            with system.open_output_stream(f"{root}/{ownership.FILE}") as file:
                file.write(note.encode())

    def temporaries(self) -> Iterator[tuple[str, float]]:
        """(name, seconds since it was written); those that are final too, since they keep their names."""
        system, root = _open(self.url)
        now = datetime.now(UTC)
        for info in system.get_file_info(fs.FileSelector(f"{root}/{PARTS}", allow_not_found=True)):
            if info.type == fs.FileType.File:
                yield info.base_name, (now - info.mtime).total_seconds() if info.mtime else 0.0


def manifest_name(winner: Winner) -> str:
    """The name of the manifest of a file's pane."""
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


def _put(url: str, manifest: str, text: bytes) -> None:
    if (at := _plain(url)) is not None:  # a folder of Arrow's making would be an object among others
        stores.of(at).put(at / MANIFESTS / manifest, text)
        return
    system, root = _open(url)
    system.create_dir(f"{root}/{MANIFESTS}", recursive=True)
    with system.open_output_stream(f"{root}/{MANIFESTS}/{manifest}") as file:
        file.write(text)


def _plain(url: str) -> Url | None:
    """A URL without options is spoken to as all other data in a store is: by the standard variables."""
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


# Where the files of a sharded sink are, and the interface of such a store.
#
# A local folder gives final names. In an object store several files can't be renamed at once, so there the log and a
# manifest for each pane say which files are final.


class Store(Protocol):
    """One place. It travels to Spark's workers inside closures."""

    def create(self, temporary: str) -> AbstractContextManager[Counted]:
        """A new temporary, which must not be there yet; whole when the block has ended, gone after an error."""

    def settle(self, temporaries: list[str]) -> None:
        """These are there after a power cut too. Asked before the unit that names them commits."""

    def remove(self, temporary: str) -> None:
        """Take a temporary away. No error when it is gone."""

    def publish(self, pane: list[Winner]) -> None:
        """Make all files of a pane final. May be repeated, at the same time too.

        Raises InvariantBroken for a file that is missing, or a final name that other content has.
        """

    def published(self, winners: list[Winner]) -> None:
        """Their final names are there after a power cut too. Asked before the log says that they are final."""

    def size(self, winner: Winner) -> int | None:
        """How many bytes a file that is final has; None when it is not there."""

    def read(self, winner: Winner) -> bytes:
        """The bytes of a file that is final."""

    def everything(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """(path or URL, how to read it) of each file that is there, final or not."""

    def note(self) -> str | None:
        """Return what the place says of its writer; None if it says nothing."""

    def put_note(self, note: str) -> None:
        """Write what the place says of its writer, if it says nothing.

        If two platforms write at once, one succeeds where a store can tell them apart.
        """

    def temporaries(self) -> Iterator[tuple[str, float]]:
        """(name, seconds since it last grew) of all temporaries that are there."""


def store_of(place: str) -> Store:
    """The store of a place as it is declared."""
    if "://" in place:
        return ObjectStore(place)
    return LocalStore(folder_of(place))


def folder_of(place: str) -> Path:
    """The folder of a place that is no URL."""
    return settings.files_dir() / Path(place).expanduser()
