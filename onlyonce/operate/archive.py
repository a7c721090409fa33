"""Moves input files that nobody will read again from the inbox to an archive, a folder or a prefix of a store.

Off unless one is named.

A file is moved when every batch that read it is committed: for each declared pipeline that lists its inbox, and for
each instance that registered it. No file is moved while a bounded run is at work, or while a pipeline that lists the
inbox has never run. Files that grow are never moved. A file that was replaced under its name stays, so that the next
run refuses it.

A file first gets its second name (or is copied under a hidden name, if the archive is on another file system), and then
loses the first. After a kill between the two, the next collection finds both and goes on. It overwrites nothing. To a
store it is put if no object of its name is there, and then leaves the inbox. If the archive's file system has no hard
links, each file stays in the inbox with a warning.

Who calls it: `onlyonce.operate.collect`. Errors: none of its own; files that can't be moved are named in the warnings.
Not promised: that a file keeps its path. `batches.source_to` has the path in the inbox; the archive has its way below
the inbox, in a folder of the pipeline's name.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from onlyonce import settings
from onlyonce.catalog import collector
from onlyonce.catalog.collector import Collector
from onlyonce.database.connect import Database
from onlyonce.database.transactions import Scope
from onlyonce.declare.pipeline import DeltaSource, Growing, Kafka, Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.failpoints import passing
from onlyonce.model.errors import OnlyonceError
from onlyonce.model.storage.location import Location
from onlyonce.operate import taken_in
from onlyonce.operate.taken_in import Mark
from onlyonce.sources.files import folders
from onlyonce.storage import stores

AT_ONCE = 100
"""Files for each transaction; while it is open no new run registers itself."""


@dataclass(frozen=True)
class Move:
    """A file that may go, as it was registered, and where to."""

    source: Path
    target: Location
    mark: Mark


def archive(
    database: Database, declared: Mapping[str, Pipeline], pipeline: Pipeline, folder: Location
) -> tuple[int, list[str]]:
    """Move what may go of one pipeline's inbox; gives the number of files and warnings. May be repeated at any time."""
    outcome: dict[Path, str | None] = {}

    def some(scope: Scope) -> dict[Path, str | None]:
        due = [move for move in _due(scope, declared, pipeline, folder) if move.source not in outcome]
        return {move.source: _move(move) for move in due[:AT_ONCE]}

    # An answer that was lost is no harm: what was moved is not there to be moved again.
    while more := Collector(database).without_new_runs(some):
        outcome |= more
    stayed = [warning for warning in outcome.values() if warning]
    return len(outcome) - len(stayed), stayed


def _due(scope: Scope, declared: Mapping[str, Pipeline], pipeline: Pipeline, folder: Location) -> list[Move]:
    if pipeline.sources or isinstance(pipeline.source, Kafka | DeltaSource) or inputs.in_store(pipeline):
        return []  # files of several sources stay where they are, as objects do, and those of a table are the table's
    inbox = settings.inbox(pipeline.name, pipeline.source.inbox)
    if any(other.sources and inbox in inputs.folders(other) for other in declared.values()):
        return []
    there = {str(path): path for path in folders.files(inbox, recursive=folders.is_recursive(pipeline))}
    with_inbox = {
        name: other
        for name, other in declared.items()
        if not other.sources and not isinstance(other.source, Kafka | DeltaSource)
    }
    sharing = sorted(
        name for name, other in with_inbox.items() if settings.inbox_location(name, other.source.inbox) == inbox
    )
    if any(isinstance(declared[name].source, Growing) for name in sharing):
        return []  # whoever appends to a file would go on in the archive
    runs = Collector(scope).runs(sharing)
    if {run.pipeline for run in runs if _on_stream(run)} != set(sharing) or any(_at_work(run) for run in runs):
        return []
    due = dict.fromkeys(there, True)
    last: dict[str, Mark] = {}
    for one in runs:
        seen = set()
        for entry in taken_in.entries(scope, one.instance, list(there.values())):
            seen.add(entry.path)
            unchanged = not _on_stream(one) or last.setdefault(entry.path, entry.mark) == entry.mark
            due[entry.path] &= entry.was_read and unchanged
        if _on_stream(one):
            due = {path: still and path in seen for path, still in due.items()}
    return [
        Move(there[path], folder / pipeline.name / str(there[path].relative_to(inbox)), last[path])
        for path, still in sorted(due.items())
        if still and _mark(there[path]) == last[path]
    ]


def _on_stream(one: collector.Run) -> bool:
    return one.instance == one.pipeline


def _at_work(one: collector.Run) -> bool:
    return not _on_stream(one) and not one.ended


def _mark(path: Path) -> Mark | None:
    with suppress(OSError):
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns
    return None


def _move(move: Move) -> str | None:
    """Move one file; gives a warning if it stays. What an earlier attempt has begun is finished."""
    try:
        passing("archive-before-move")
        there = _linked(move.source, move.target, move.mark) if isinstance(move.target, Path) else _uploaded(move)
        if not there:
            return f"{move.source} stays: {move.target} is another file, or it has changed since it was registered"
        move.source.unlink()
    except OnlyonceError as error:  # of the store
        return f"{move.source} stays: {error.what}"
    except OSError as error:
        return f"{move.source} stays: {error.filename2 or error.filename}: {error.strerror}"
    passing("archive-after-move")
    return None


def _uploaded(move: Move) -> bool:
    """Whether the store has its content now; all of it is in memory meanwhile.

    An object of another content is never overwritten.
    """
    done = stores.of(move.target).put_new(move.target, move.source.read_bytes())
    passing("archive-after-second-name")
    return done and _mark(move.source) == move.mark


def _linked(source: Path, target: Path, mark: Mark) -> bool:
    target.parent.mkdir(parents=True, exist_ok=True)
    _give_second_name(source, target)
    passing("archive-after-second-name")
    return _mark(target) == mark and _same(source, target)


def _give_second_name(source: Path, target: Path) -> None:
    """Link a file to a new name, or a copy of it if the name is on another file system.

    A link, unlike a rename, fails if the name is taken. On a file system without links it fails too.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        with suppress(FileExistsError):
            try:
                os.link(source, target)
            except FileExistsError:
                raise
            except OSError:
                shutil.copy2(source, part)
                os.link(part, target)
    finally:
        part.unlink(missing_ok=True)


def _same(one: Path, other: Path) -> bool:
    return one.samefile(other) or filecmp.cmp(one, other, shallow=False)
