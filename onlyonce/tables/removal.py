"""Remove a folder or the objects below a prefix, so that no reader takes a half-removed one for complete."""

from __future__ import annotations

import shutil
from pathlib import Path

from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, Url, location
from onlyonce.core.ownership import Place
from onlyonce.failpoints import passing
from onlyonce.tables import opening, stores

GONE = stored_names.DROPPED_PREFIX
"""Prefix of a folder that is being removed."""


def folder_of(place: Place, root: Location) -> Location:
    """Return the folder of a place, below a root if it is not an absolute path. Raise Refused if others share it."""
    if "://" in place.where:
        return _in_store(place)
    folder = Path(place.where) if place.where.startswith("/") else root / place.where
    above = (root,) if isinstance(root, Url) else (root.resolve(), *root.resolve().parents)
    if (folder.resolve() if isinstance(folder, Path) else folder) in above:
        raise _not_its_own(place)
    return folder


def remove(folder: Location) -> None:
    """Remove a folder, or the objects below a prefix. A killed removal is finished by the next one.

    Of a symbolic link, remove the folder that it leads to, then the link.
    """
    if isinstance(folder, Url):
        _remove_objects(folder)
        return
    if folder.is_symlink():
        remove(folder.resolve())
        folder.unlink()
        return
    gone = folder.parent / f"{GONE}{folder.name}"
    shutil.rmtree(gone, ignore_errors=True)
    if folder.exists():
        folder.rename(gone)
        passing("drop-after-rename")
        shutil.rmtree(gone)


def _remove_objects(folder: Url) -> None:
    """Remove the objects of a table: first the rows, then the log, from its end.

    A prefix can't be renamed atomically. In this order a reader of a half-removed table gets an error, never wrong
    rows, and the log still shows what the prefix was.
    """
    store, names = stores.of(folder), folder / opening.LOG
    for name in sorted({*store.names(folder)} - {opening.LOG}):
        store.clear(folder / name)
    passing("drop-after-rename")
    for name in sorted(store.names(names), reverse=True):
        store.clear(names / name)


def _in_store(place: Place) -> Location:
    try:
        at = location(place.where)
    except Refused as error:  # in another library than ours, or with options of its own
        raise Refused(
            f"{place.text} is in a store that is not removed from here",
            data="the existing files were not removed",
            hint="remove it with the store's own tools, then run the same command again without --tables",
        ) from error
    if isinstance(at, Url) and not at.key:
        raise _not_its_own(place)
    return at


def _not_its_own(place: Place) -> Refused:
    return Refused(f"{place.text} is not a folder of its own", data="it was not removed", hint="remove it by hand")
