"""What a file sink stores: delivered files, files of earlier panes, manifests, and temporary files of attempts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onlyonce.commitlog.sinks.files import Files
from onlyonce.database.connect import Database
from onlyonce.model.operate.mentions import Mentions
from onlyonce.model.sinks.shards import may_go, read_temporary
from onlyonce.sinks.files.stores import store_of
from onlyonce.sinks.stored import File, Mentioned, Stored

GOES = "no later run reads a file that onlyonce finalize has named: delete it there"


@dataclass(frozen=True)
class StoredInFiles(Stored):
    """The folder, or the prefix of an object store, of a file sink."""

    database: Database
    place: str

    def files(self) -> Iterator[File]:
        """Yield each file that is there."""
        for at, read in store_of(self.place).everything():
            yield File(at, read, GOES)

    def root(self) -> str:
        """Return the folder or prefix."""
        return self.place

    def clean(self, mentions: Mentions, mentioned: Mentioned) -> None:
        """Remove the temporary files that no attempt may commit."""
        store = store_of(self.place)
        there = {name: temporary for name, _ in store.temporaries() if (temporary := read_temporary(name))}
        known = Files(self.database).standings(self.place, there)
        for at, read in [*store.everything()]:
            name = at.rpartition("/")[2]
            if name in there and may_go(there[name], known[name]) and mentioned(File(at, read, GOES)):
                store.remove(name)
