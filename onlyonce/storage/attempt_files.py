"""Removes data files that killed attempts have left in the platform's own tables: no commit names them, and none ever will. Without a JVM.

Who calls it: `onlyonce.operate.collect`. Errors: none; a table that can't be read is reported. Not promised: the removal of files that early
versions have left, which gave each attempt no folder of its own.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from onlyonce import settings
from onlyonce.model import attempts
from onlyonce.model.location import Url
from onlyonce.storage import opening

TABLES = ("events", "files", "ranges")


def sweep(instance: str, hours: float, warnings: list[str]) -> int:
    """Take away what is older than so many hours, of one pipeline or bounded run; gives the number of files."""
    removed, root = 0, settings.data_location(instance)
    if isinstance(root, Url):
        warnings.append(f"{root}: what killed attempts have left there is not swept so far")
        return 0
    for name in TABLES:
        path = root / name
        if not (path / "_delta_log").is_dir():
            continue
        try:
            removed += _sweep(path, instance, hours)
        except (DeltaError, OSError) as error:
            warnings.append(f"{path} can't be swept: {error}")
    return removed


def _sweep(path: Path, instance: str, hours: float) -> int:
    found = {folder: read for folder in path.iterdir() if (read := attempts.read(folder.name))}
    if not found:
        return 0
    # One version tells both: which files are named, and which transactions are in.
    table = opening.table(path)
    named = {place.split("/", 1)[0] for place in _named(table)}
    files, removed = set(_named(table)), 0
    for folder, attempt in found.items():
        if folder.name in named and _all_named(path, folder, files):
            continue
        there = table.transaction_version(attempt.app_id(instance))
        if there is None or there < attempt.version:
            continue  # it may still be committed, however old: by a driver that was stopped, as well
        removed += _remove(path, folder, files, hours)
    return removed


def _named(table: DeltaTable) -> list[str]:
    return [str(place) for place in table.get_add_actions(flatten=True).column("path").to_pylist()]


def _all_named(path: Path, folder: Path, named: set[str]) -> bool:
    return all(str(file.relative_to(path)) in named for file in folder.rglob("*") if file.is_file())


def _remove(path: Path, folder: Path, named: set[str], hours: float) -> int:
    removed = 0
    for file in sorted(folder.rglob("*"), reverse=True):  # what a folder holds comes before it
        with suppress(FileNotFoundError):
            if file.is_dir():
                with suppress(OSError):  # not empty
                    file.rmdir()
            elif str(file.relative_to(path)) not in named and time.time() - file.stat().st_mtime >= hours * 3600:
                file.unlink()
                removed += 1
    with suppress(OSError):
        folder.rmdir()
    return removed
