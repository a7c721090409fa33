"""Anything behind pyarrow.fs or fsspec (s3://, gs://, hdfs://, …), where no rename is atomic and none is used.

A task writes each file once, under its attempt's name, and the file keeps that name. The log says which files are
final. Each pane also has a manifest, which is written when all of its files were found. Readers take the files that the
manifests name, and never list the folder `parts`, which also has the files of lost attempts.

Who calls it: like `local_store`. Errors: InvariantBroken; OSError of the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyarrow import ArrowInvalid, fs

from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.errors import InvariantBroken, Refused
from onlyonce.model.sinks import owner, shards
from onlyonce.model.sinks.shards import Winner
from onlyonce.model.storage.location import Url, is_s3, location
from onlyonce.sinks.files.contents import Counted, check, digest, missing
from onlyonce.storage import stores
from onlyonce.storage.stores import arrow
from onlyonce.storage.stores.sink import Sink

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
            _check(system, winner, f"{root}/{PARTS}/{winner.temporary}")
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
        content = _content(system, f"{root}/{owner.FILE}")
        return content.decode() if content else None

    def put_note(self, note: str) -> None:
        """Write the note if there is none: by a conditional PUT where the store is spoken to by the standard
        variables."""
        if (at := _plain(self.url)) is not None:
            stores.of(at).put_new(at / owner.FILE, note.encode())
        elif self.note() is None:
            system, root = _open(self.url)
            system.create_dir(root, recursive=True)
            with system.open_output_stream(f"{root}/{owner.FILE}") as file:
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
        "window_start": _text(first.window_start), "window_end": _text(first.window_end), "files": files,
    }  # fmt: skip
    return json.dumps(about, indent=1).encode() + b"\n"


def _text(time: datetime | None) -> str | None:
    return time.astimezone(UTC).isoformat() if time else None


def _check(system: Any, winner: Winner, path: str) -> None:
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
        return arrow.system_of(at)
    try:
        system, root = fs.FileSystem.from_uri(url)
    except ArrowInvalid:  # not one of pyarrow's own
        import fsspec

        other, root = fsspec.core.url_to_fs(url)
        system = fs.PyFileSystem(fs.FSSpecHandler(other))
    return system, root.rstrip("/")
