"""The manifests of an instance, and the removal of data files that killed attempts have left behind. Without a JVM."""

from __future__ import annotations

import time

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from onlyonce import settings
from onlyonce.core import locations, stored_names
from onlyonce.core.locations import Location, below
from onlyonce.tables import opening, stores

NAMES = (stored_names.FILES_MANIFEST, stored_names.RANGES_MANIFEST, stored_names.SOURCE_BATCHES_MANIFEST)


def of(instance: str) -> list[Location]:
    """Return each possible location of a manifest, whether or not one exists.

    These are the manifests of the source, or of each of several sources and of their turns.
    """
    home = settings.data_location(instance)
    sources = home / stored_names.SOURCES_FOLDER
    folders = [home, *(sources / one for one in stores.of(home).names(sources))]
    return [folder / name for folder in folders for name in NAMES]


# Removes data files that killed attempts have left behind in the platform's own tables: no commit names them, and none
# ever will. Early versions gave each attempt no folder of its own; their files stay.


def sweep_attempts(instance: str, hours: float, warnings: list[str]) -> int:
    """Remove such files that are older than this number of hours, of one pipeline or bounded run; return their number.

    A table that can't be read is reported in `warnings`.
    """
    removed = 0
    for path in (settings.data_location(instance) / stored_names.EVENTS_FOLDER, *of(instance)):
        if not opening.any_in(path):
            continue
        try:
            removed += _sweep(path, instance, hours)
        except (DeltaError, OSError) as error:
            warnings.append(f"{path} can't be swept: {error}")
    return removed


def _sweep(path: Location, instance: str, hours: float) -> int:
    found = {path / name: read for name in stores.of(path).names(path) if (read := locations.read_attempt(name))}
    if not found:
        return 0
    # One version of the table has both: the files that are named, and the transactions that are committed.
    table = opening.table(path)
    named = {place.split("/", 1)[0] for place in _named(table)}
    files, removed = set(_named(table)), 0
    for folder, attempt in found.items():
        if folder.name in named and _all_named(path, folder, files):
            continue
        there = table.transaction_version(attempt.app_id(instance))
        if there is None or there < attempt.version:
            continue  # it may still be committed, however old: even by a stopped driver
        removed += _remove(path, folder, files, hours)
    return removed


def _named(table: DeltaTable) -> list[str]:
    return [str(place) for place in table.get_add_actions(flatten=True).column("path").to_pylist()]


def _all_named(path: Location, folder: Location, named: set[str]) -> bool:
    return all(str(below(entry.at, path)) in named for entry in stores.of(folder).entries(folder))


def _remove(path: Location, folder: Location, named: set[str], hours: float) -> int:
    store, removed, stay = stores.of(folder), 0, 0
    for entry in store.entries(folder):
        if str(below(entry.at, path)) not in named and time.time() - entry.modified >= hours * 3600:
            store.delete(entry.at)
            removed += 1
        else:
            stay += 1
    if not stay:
        store.clear(folder)
    return removed
