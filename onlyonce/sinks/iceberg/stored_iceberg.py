"""What an Iceberg table stores: data files, manifests with the bounds of columns, and metadata, of all snapshots that
it has; and what killed writers and expired snapshots have left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from onlyonce.model.operate.dropping import Place
from onlyonce.sinks.iceberg import catalogs
from onlyonce.sinks.stored import File, Stored
from onlyonce.storage.state_tables import NotDecoded

CURRENT = "delete these rows in your table, then expire the snapshots before that"
OLDER = "the table has it until expire_snapshots and remove_orphan_files of your engine remove it"
ORPHAN = "no snapshot has it: remove_orphan_files of your engine removes it"
"""A file of a task that was killed, of a commit that lost against another, or of a snapshot that was expired. Another
engine's commit may be under way with it, so it stays."""


@dataclass(frozen=True)
class StoredInIceberg(Stored):
    """A table of an Iceberg catalog."""

    target: str

    def files(self) -> Iterator[File]:
        """Yield each file of each snapshot, and each other one in the table's folders, by its path in the store."""
        table, there = catalogs.of_target(Place(self.target)), list[str]()
        if table is None:
            return
        with catalogs.answering(self.target):
            current = {task.file.file_path for task in table.scan().plan_files()}
            paths = dict.fromkeys(_paths(table), OLDER) | dict.fromkeys(current, CURRENT)
            if isinstance(table.io, PyArrowFileIO):
                there = [path for folder in _folders(table) for path in _below(table.io, folder)]
            else:
                yield File(table.location(), _unlisted, ORPHAN)
        for path, goes in (dict.fromkeys(there, ORPHAN) | paths).items():
            yield File(path, lambda path=path: _read(table, path), goes)  # type: ignore[misc]

    def root(self) -> str | None:
        """Return the folder of the table."""
        table = catalogs.of_target(Place(self.target))
        return table.location() if table else None


def _paths(table: Table) -> Iterator[str]:
    yield table.metadata_location
    yield from (entry.metadata_file for entry in table.metadata.metadata_log)
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                yield entry.data_file.file_path


def _folders(table: Table) -> set[str]:
    elsewhere = (table.properties.get(name) for name in ("write.data.path", "write.metadata.path"))
    return {folder.rstrip("/") for folder in (table.location(), *elsewhere) if folder}


def _below(io: PyArrowFileIO, folder: str) -> Iterator[str]:
    scheme, bucket, path = io.parse_location(folder, io.properties)
    found = io.fs_by_scheme(scheme, bucket).get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    yield from (folder.removesuffix(path) + file.path for file in found if file.type == FileType.File)


def _unlisted() -> bytes:
    raise NotDecoded("files without a snapshot, of which py-io-impl of the catalog gives no list")


def _read(table: Table, path: str) -> bytes:
    with catalogs.answering(path):
        file = table.io.new_input(path)
        if file.exists():
            with file.open() as content:
                return bytes(content.read())
    raise FileNotFoundError(path)
