"""What an Iceberg table stores: data files, manifests with the bounds of columns, and metadata, of all snapshots that it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table import Table

from onlyonce.model.operate.dropping import Place
from onlyonce.sinks.iceberg import catalogs
from onlyonce.sinks.stored import File, Stored

CURRENT = "delete these rows in your table, then expire the snapshots before that"
OLDER = "the table has it until expire_snapshots and remove_orphan_files of your engine remove it"


@dataclass(frozen=True)
class StoredInIceberg(Stored):
    """A table of an Iceberg catalog."""

    target: str

    def files(self) -> Iterator[File]:
        """Yield each file of each snapshot, by its path in the store."""
        place = Place(self.target)
        with catalogs.opened(str(place.variable)) as found:
            table = catalogs.find(found, place.where)
            if table is None:
                return
            with catalogs.answering(place.where):
                current = {task.file.file_path for task in table.scan().plan_files()}
                paths = [*dict.fromkeys(_paths(table))]
            for path in paths:
                yield File(path, lambda path=path: _read(table, path), CURRENT if path in current else OLDER)  # type: ignore[misc]


def _paths(table: Table) -> Iterator[str]:
    yield table.metadata_location
    yield from (entry.metadata_file for entry in table.metadata.metadata_log)
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                yield entry.data_file.file_path


def _read(table: Table, path: str) -> bytes:
    with catalogs.answering(path):
        file = table.io.new_input(path)
        if file.exists():
            with file.open() as content:
                return bytes(content.read())
    raise FileNotFoundError(path)
