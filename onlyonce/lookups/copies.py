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
from collections.abc import Iterator
from urllib.parse import quote

from onlyonce import settings
from onlyonce.model import stored_names
from onlyonce.model.storage.location import Location
from onlyonce.storage import stores
from onlyonce.storage.stores import Entry

FOLDER = stored_names.LOOKUPS_FOLDER
"""Among the folders of pipelines, none of which can have this name; so a backup of these has it too."""
NAME = re.compile(r"(\d+)-([0-9a-f]+)\.(parquet|taken|going)")
Named = tuple[int, str]
"""The number and the content of a version."""


def home() -> Location:
    """Where the copies of all tables are."""
    return settings.data_location(FOLDER)


def folder(target: str) -> Location:
    """Where the copies of a table are, by its target as text."""
    return home() / quote(target, safe="")


def at(place: Location, version: Named, kind: str = "parquet") -> Location:
    """A file of a version."""
    return place / f"{version[0]}-{version[1]}.{kind}"


def there(place: Location) -> Iterator[tuple[Named, str]]:
    """The version and kind of each file in a folder, in no order."""
    for name in stores.of(place).names(place):
        if found := NAME.fullmatch(name):
            yield (int(found[1]), found[2]), found[3]


def look(place: Location, version: Named) -> Entry | None:
    """The copy of a version; None where it is gone."""
    return stores.of(place).look(at(place, version))


def keep(place: Location, content: str, parquet: bytes) -> Named:
    """The version that has this content, stored now if it is new, and noted as found now.

    One that is going is not used: it gets another number.
    """
    found = list(there(place))
    going = {version for version, kind in found if kind == "going"}
    known = [version for version, kind in found if kind == "parquet"]
    same = sorted(version for version in known if version[1] == content and version not in going)
    version = same[0] if same else (max((number for number, _ in known), default=0) + 1, content)
    store = stores.of(place)
    store.put(at(place, version, "taken"), b"")
    if not same:
        store.put_new(at(place, version), parquet)
    return version
