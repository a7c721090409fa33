"""Folders below an inbox: which are read, and which are skipped and reported.

Names that begin with . or _ are temporary, as in Spark: such files and folders are silently left alone. Any other
folder is read with `recursive`. Without it the folder is skipped, and its name is noted for the console, the log and
the doctor. A link to a folder is never followed: with `links` it is skipped as a folder is, without `links` it is an
entry like a file, which the listing refuses as a link.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from onlyonce import settings
from onlyonce.api.pipeline import Pipeline
from onlyonce.api.pipeline import folder as folder_of
from onlyonce.api.pipeline import folders as folders_of
from onlyonce.core.locations import Location, Url
from onlyonce.tables.stores import Entry

HIDDEN = (".", "_")
NAMED = 20
"""The most skipped folders that a message names."""


@dataclass(frozen=True)
class Folders:
    """How the folders below an inbox are treated.

    recursive   whether their files are read
    skipped     the folders that a listing has skipped: `entries` and `holds` add to them, and the caller reads them
    """

    recursive: bool = False
    skipped: set[str] = field(default_factory=set)

    def entries(self, folder: str, *, links: bool) -> Iterator[os.DirEntry[str]]:
        """Yield entries that may be files, in no order. A folder that vanishes meanwhile yields nothing."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as found:
            for entry in found:
                if entry.name.startswith(HIDDEN):
                    continue
                if not _is_folder(entry, links=links):
                    yield entry
                elif self.recursive and not entry.is_symlink():
                    yield from self.entries(entry.path, links=links)
                else:
                    self.skipped.add(entry.path)

    def holds(self, prefix: Url, entry: Entry) -> bool:
        """Return whether an object below a prefix is input, and note the folder of a skipped one."""
        names = str(entry.at).removeprefix(str(prefix)).removeprefix("/").split("/")
        if any(not name or name.startswith(HIDDEN) for name in names):
            return False
        if len(names) > 1 and not self.recursive:
            self.skipped.add(f"{prefix}/{names[0]}")
            return False
        return True


def of(pipeline: Pipeline, skipped: set[str] | None = None) -> Folders:
    """Return how the folders below the inbox of a pipeline with one source are treated."""
    return Folders(is_recursive(pipeline), set() if skipped is None else skipped)


def files(folder: Path, *, recursive: bool) -> list[Path]:
    """Return the possible input files of a folder, directly in it or at any depth, by name."""
    return sorted(Path(entry.path) for entry in Folders(recursive).entries(str(folder), links=False))


def is_recursive(pipeline: Pipeline) -> bool:
    """Return whether a pipeline with one source reads the folders below its inbox."""
    return pipeline.source.has_inbox and pipeline.source.recursive


def shared(one: Pipeline, other: Pipeline) -> list[Location]:
    """Return the inboxes of a pipeline that another one reads too, however they are spelled."""
    theirs = {settings.resolved(inbox) for inbox in folders_of(other)}
    return [inbox for inbox in folders_of(one) if settings.resolved(inbox) in theirs]


def named_in(reader: Pipeline, at: Location) -> Location | None:
    """Return a file's path as the manifest of a pipeline with one source names it; None if the pipeline does not read
    the folder of the file.
    """
    inbox = folder_of(reader)
    if inbox is None:
        return None
    if isinstance(inbox, Url) or isinstance(at, Url):
        name = at if str(at).startswith(f"{inbox}/") else None
    else:
        folder, whole = at.parent.resolve(), inbox.resolve()
        name = inbox / folder.relative_to(whole) / at.name if folder.is_relative_to(whole) else None
    return name if name is not None and (is_recursive(reader) or name.parent == inbox) else None


def told(names: Iterable[str]) -> str:
    """Return skipped folders in words."""
    each = sorted(names)
    more = f", and {len(each) - NAMED:,} more" if len(each) > NAMED else ""
    return (
        f"{len(each):,} folder(s) below the inbox are skipped, and nothing in them is read: "
        f"{', '.join(each[:NAMED])}{more}"
    )


def _is_folder(entry: os.DirEntry[str], *, links: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=links)
    except OSError:  # a link in a circle
        return False
