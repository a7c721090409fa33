"""The copies of a PostgreSQL table that lookups have seen: files in a folder for each table, for all pipelines that
look it up.

No Spark.

| file | says |
|---|---|
| <number>-<content>.parquet | a version: the content's hash tells it from others, the number is for people |
| <number>-<content>.taken | by its age when a driver last found the table to have this content |
| <number>-<content>.going | a collection found that nobody can ask for it; from now on it is not used anew |

Who calls it: `postgres_versions`, `collecting`. Errors: those of the store. Not promised: that a number means one
content; two drivers at once may give the same one, so whoever names a version names both.
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
"""Among the folders of pipelines, none of which can have this name; so a backup of these has it too."""
NAME = re.compile(r"(\d+)-([0-9a-f]+)\.(parquet|taken|going)")
Named = tuple[int, str]
"""The number and the content of a version."""


def home_of_copies() -> Location:
    """Where the copies of all tables are."""
    return settings.data_location(FOLDER)


def folder_of_table(target: str) -> Location:
    """Where the copies of a table are, by its target as text."""
    return home_of_copies() / quote(target, safe="")


def copy_at(place: Location, version: Named, kind: str = "parquet") -> Location:
    """A file of a version."""
    return place / f"{version[0]}-{version[1]}.{kind}"


def copies_there(place: Location) -> Iterator[tuple[Named, str]]:
    """The version and kind of each file in a folder, in no order."""
    for name in stores.of(place).names(place):
        if found := NAME.fullmatch(name):
            yield (int(found[1]), found[2]), found[3]


def look_at_copy(place: Location, version: Named) -> Entry | None:
    """The copy of a version; None where it is gone."""
    return stores.of(place).look(copy_at(place, version))


def keep_copy(place: Location, content: str, parquet: bytes) -> Named:
    """The version that has this content, stored now if it is new, and noted as found now.

    One that is going is not used: it gets another number.
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


# Copies of PostgreSQL tables go that nobody can ask for. No Spark. docs/specification/lookups.md.
#
# A version stays while
#
# - the log names it: a batch that is under way or is one of the last two of its life, or what wrote a window last whose
#   records are still in `events`;
# - a driver has found the table to have it in the last two days, or since the oldest batch or backfill that is under
# way
#   began: a query may have been
#   started with it, and has no batch yet;
# - it is the last one, so that numbers go on.
#
# What may go is marked first, and goes an hour later if it is marked still: a driver that takes a copy meanwhile does
# not use what is marked.
#
# Who calls it: `onlyonce.operate.gc`. Errors: those of the store; Retryable while the database is away. Not
# promised: that a copy goes at once.


FOUND = timedelta(days=2)
MARKED = timedelta(hours=1)


def collect_copies(database: Database) -> int:
    """Remove what nobody can ask for; gives how many versions went."""
    home = home_of_copies()
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
        for version, kind in copies_there(place):
            self.versions.setdefault(version, set()).add(kind)

    def old(self, since: float) -> set[Named]:
        """Those that no driver has found since then, but for the last one."""
        last = max((version for version, kinds in self.versions.items() if "parquet" in kinds), default=None)
        return {version for version in self.versions if version != last and not self._found(version, since)}

    def _found(self, version: Named, since: float) -> bool:
        taken = stores.of(self.place).look(copy_at(self.place, version, "taken")) or look_at_copy(self.place, version)
        return taken is not None and taken.modified >= since


def _let_go(place: Location, version: Named, *, held: bool) -> int:
    """1 where a version went now."""
    store, mark = stores.of(place), copy_at(place, version, "going")
    marked = store.look(mark)
    if held:
        store.delete(mark)
    elif marked is None:
        store.put(mark, b"")
    elif marked.modified < time.time() - MARKED.total_seconds():
        for kind in ("parquet", "taken", "going"):  # the mark last: a kill before that is finished by the next time
            store.delete(copy_at(place, version, kind))
        return 1
    return 0
