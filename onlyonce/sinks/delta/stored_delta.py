"""What an output's Delta table stores: its files, its log with the bounds of columns, and the table of deleted keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from onlyonce.model.operate.mentions import Mentions
from onlyonce.model.storage.location import Location
from onlyonce.sinks.stored import File, Mentioned, Stored, below, file_at
from onlyonce.storage import log_entries, opening, stores, table_features, table_statistics
from onlyonce.storage.beside import beside

GOES = "delete these rows in your table (with deletion vectors: REORG TABLE … APPLY (PURGE)), then VACUUM it"


@dataclass(frozen=True)
class StoredInDelta(Stored):
    """A Delta table and its table of deleted keys."""

    path: Location

    def files(self) -> Iterator[File]:
        """Yield the files of both tables, of old versions and of the change data feed too."""
        for table in (self.path, beside(self.path)):
            yield from below(table, GOES)

    def root(self) -> str:
        """Return the folder of the table."""
        return str(self.path)

    def clean(self, mentions: Mentions, mentioned: Mentioned) -> None:
        """Vacuum old versions, though a reader may be at work with one, and take the bounds of columns out of the log.

        A table with features that only Spark can vacuum stays as it is: the receipt names its files.
        """
        for table in (self.path, beside(self.path)):
            if log_entries.any_in(table) and any(mentioned(file) for file in below(table, GOES)):
                found = opening.table(table)
                if table_features.only_for_spark(found):
                    continue
                found.vacuum(0, dry_run=False, enforce_retention_duration=False)
                _remove_changes(
                    table,
                    lambda file: mentioned(file) or mentions.in_string(file.at.removeprefix(str(table))),  # noqa: B023
                )
                table_statistics.remove(table, lambda at: mentioned(file_at(at, GOES)))
            _remove_empty_folders(table)


def _remove_changes(table: Location, mentioned: Mentioned) -> None:
    """Delete files of the change data feed, which delta-rs does not vacuum.

    A file that no commit names may be of a commit under way, and stays.
    """
    store = stores.of(table)
    entries = [name.removesuffix(".json") for name in store.names(table / log_entries.LOG) if name.endswith(".json")]
    actions = (action for entry in entries if entry.isdecimal() for action in log_entries.actions(table, int(entry)))
    for path in (table / unquote(action["cdc"]["path"]) for action in actions if "cdc" in action):
        if mentioned(file_at(path, GOES)):
            store.delete(path)


def _remove_empty_folders(table: Location) -> None:
    """Remove the folders of partitions without rows: their names have values."""
    for at in stores.of(table).unfinished(table):
        with suppress(OSError):  # another writer has put a file into it
            if isinstance(at, Path) and at != table:
                at.rmdir()
