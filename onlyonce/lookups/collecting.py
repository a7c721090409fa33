"""Copies of PostgreSQL tables go that nobody can ask for. No Spark. docs/specification/lookups.md.

A version stays while

- the log names it: a batch that is under way or is one of the last two of its life, or what wrote a window last whose
  records are still in `events`;
- a driver has found the table to have it in the last two days, or since the oldest batch or backfill that is under way
  began: a query may have been
  started with it, and has no batch yet;
- it is the last one, so that numbers go on.

What may go is marked first, and goes an hour later if it is marked still: a driver that takes a copy meanwhile does not
use what is marked.

Who calls it: `onlyonce.operate.collect`. Errors: those of the store; Retryable while the database is away. Not
promised: that a copy goes at once.
"""

from __future__ import annotations

import time
from datetime import timedelta

from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.outputs.lookups import SeenLookups
from onlyonce.database.connect import Database
from onlyonce.lookups import copies
from onlyonce.lookups.copies import Named
from onlyonce.model.storage.location import Location
from onlyonce.storage import stores

FOUND = timedelta(days=2)
MARKED = timedelta(hours=1)


def collect(database: Database) -> int:
    """Remove what nobody can ask for; gives how many versions went."""
    home = copies.home()
    found = [_Folder(home / name) for name in stores.of(home).names(home)]
    if not found:
        return 0
    oldest = Batches(database).oldest_begun()
    since = time.time() - FOUND.total_seconds() - oldest
    old = {folder: folder.old(since) for folder in found}
    # The log is asked last: what a driver has begun before the look at the files is named by then.
    named = SeenLookups(database).asked_for() if any(old.values()) else set()
    return sum(
        _let_go(folder.place, one, held=one not in old[folder] - named) for folder in found for one in folder.versions
    )


class _Folder:
    """The copies of one table."""

    def __init__(self, place: Location) -> None:
        self.place = place
        self.versions: dict[Named, set[str]] = {}
        for version, kind in copies.there(place):
            self.versions.setdefault(version, set()).add(kind)

    def old(self, since: float) -> set[Named]:
        """Those that no driver has found since then, but for the last one."""
        last = max((version for version, kinds in self.versions.items() if "parquet" in kinds), default=None)
        return {version for version in self.versions if version != last and not self._found(version, since)}

    def _found(self, version: Named, since: float) -> bool:
        taken = stores.of(self.place).look(copies.at(self.place, version, "taken")) or copies.look(self.place, version)
        return taken is not None and taken.modified >= since


def _let_go(place: Location, version: Named, *, held: bool) -> int:
    """1 where a version went now."""
    store, mark = stores.of(place), copies.at(place, version, "going")
    marked = store.look(mark)
    if held:
        store.delete(mark)
    elif marked is None:
        store.put(mark, b"")
    elif marked.modified < time.time() - MARKED.total_seconds():
        for kind in ("parquet", "taken", "going"):  # the mark last: a kill before that is finished by the next time
            store.delete(copies.at(place, version, kind))
        return 1
    return 0
