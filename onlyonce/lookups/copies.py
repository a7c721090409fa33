"""The copies of PostgreSQL tables that lookups have seen: files in a folder for each table, for all pipelines.

No Spark.

| file | meaning |
|---|---|
| <number>-<content>.parquet | a version: the hash of its content identifies it, the number is for people |
| <number>-<content>.taken | its age says when a driver last found the table to have this content |
| <number>-<content>.going | a gc run found that it can't be needed again; from now on it is not used again |

Two drivers at the same time may give the same number to different contents. So a version is always named by number and
content.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

from onlyonce import settings
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.ends import SeenLookups
from onlyonce.core import stored_names
from onlyonce.core.locations import Location
from onlyonce.database.connect import Database
from onlyonce.tables import stores
from onlyonce.tables.stores import Entry

FOLDER = stored_names.LOOKUPS_FOLDER
"""The folder of all copies. No pipeline can have its name, and it is next to the pipelines' folders. So a backup of the
pipelines includes it.
"""
NAME = re.compile(r"(\d+)-([0-9a-f]+)\.(parquet|taken|going)")
Named = tuple[int, str]
"""The number and the content of a version."""


def home_of_copies() -> Location:
    """Return where the copies of all tables are."""
    return settings.data_location(FOLDER)


def folder_of_table(target: str) -> Location:
    """Return where the copies of a table are, by its target as a string."""
    return home_of_copies() / quote(target, safe="")


def copy_at(place: Location, version: Named, kind: str = "parquet") -> Location:
    """Return the location of a version's file."""
    return place / f"{version[0]}-{version[1]}.{kind}"


def copies_there(place: Location) -> Iterator[tuple[Named, str]]:
    """Yield the version and kind of each file in a folder, in no order."""
    for name in stores.of(place).names(place):
        if found := NAME.fullmatch(name):
            yield (int(found[1]), found[2]), found[3]


def look_at_copy(place: Location, version: Named) -> Entry | None:
    """Return the copy of a version; None if it is gone."""
    return stores.of(place).look(copy_at(place, version))


def keep_copy(place: Location, content: str, parquet: bytes) -> Named:
    """Return the version that has this content. Store it if it is new, and note that it was found now.

    A version marked as going is not used: the content gets another number.
    """
    found = list(copies_there(place))
    going = {version for version, kind in found if kind == "going"}
    known = [version for version, kind in found if kind == "parquet"]
    same = sorted(version for version in known if version[1] == content and version not in going)
    version = same[0] if same else (max((number for number, _ in known), default=0) + 1, content)
    store = stores.of(place)
    store.put(copy_at(place, version, "taken"), b"")
    if not same:
        store.put_new(copy_at(place, version), parquet)
    return version


# Removes copies of PostgreSQL tables that can't be needed again. docs/specification/lookups.md.
#
# A version stays while one of these holds:
#
# - The log names it: in a begun batch, in one of the last two batches of an incarnation, or in what was the last to
#   write a window whose records are still in `events`.
# - A driver has found the table to have it in the last two days, or since the oldest begun batch or backfill began. A
#   query may have been started with it, and has no batch yet.
# - It is the last one, so that numbers continue.
#
# A version that may be removed is marked first, and removed an hour later if it is still marked. A driver that makes a
# copy meanwhile does not use a marked version.


FOUND = timedelta(days=2)
MARKED = timedelta(hours=1)


def collect_copies(database: Database) -> int:
    """Remove the copies that can't be needed again; return how many versions were removed."""
    home = home_of_copies()
    found = [_Folder(home / name) for name in stores.of(home).names(home)]
    if not found:
        return 0
    oldest = Batches(database).oldest_begun()
    since = time.time() - FOUND.total_seconds() - oldest
    old = {folder: folder.old(since) for folder in found}
    # The log is read last: it then names what a driver has begun before the files were listed.
    named = SeenLookups(database).asked_for() if any(old.values()) else set()
    return sum(
        _let_go(folder.place, one, held=one not in old[folder] - named) for folder in found for one in folder.versions
    )


class _Folder:
    """The copies of one table."""

    def __init__(self, place: Location) -> None:
        self.place = place
        self.versions: dict[Named, set[str]] = {}
        for version, kind in copies_there(place):
            self.versions.setdefault(version, set()).add(kind)

    def old(self, since: float) -> set[Named]:
        """Return the versions that no driver has found since `since`, except the last one."""
        last = max((version for version, kinds in self.versions.items() if "parquet" in kinds), default=None)
        return {version for version in self.versions if version != last and not self._found(version, since)}

    def _found(self, version: Named, since: float) -> bool:
        taken = stores.of(self.place).look(copy_at(self.place, version, "taken")) or look_at_copy(self.place, version)
        return taken is not None and taken.modified >= since


def _let_go(place: Location, version: Named, *, held: bool) -> int:
    """Return 1 if a version was removed now, else 0."""
    store, mark = stores.of(place), copy_at(place, version, "going")
    marked = store.look(mark)
    if held:
        store.delete(mark)
    elif marked is None:
        store.put(mark, b"")
    elif marked.modified < time.time() - MARKED.total_seconds():
        for kind in ("parquet", "taken", "going"):  # the mark last: after a kill the next gc run removes the rest
            store.delete(copy_at(place, version, kind))
        return 1
    return 0
