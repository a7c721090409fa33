"""Remove what was kept long enough: ids older than the dedup horizon, units, staged rows, old runs, temporary files.

`onlyonce gc` and the DAG `onlyonce_catalog_gc` run it each hour, without Spark. It also adds old batches up into sums
and moves input files to an archive if one is named. It is safe while a stream or another gc run runs. It may be
killed at any point and run again (docs/specification/catalog-gc.md).

When another session reads the catalog for long, its buckets stay, with a warning, until the next gc run.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from onlyonce import job_main, logs, settings
from onlyonce.api import load as declarations
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.pipeline import Pipeline, unknown
from onlyonce.asked import parse
from onlyonce.catalog import expiry
from onlyonce.catalog.expiry import Collector
from onlyonce.catalog.merging import Merging
from onlyonce.catalog.range_filters import RangeFilters
from onlyonce.commitlog import removals
from onlyonce.commitlog.drivers import DriverRuns
from onlyonce.commitlog.removals import Retention
from onlyonce.core import gc
from onlyonce.core.durations import in_words
from onlyonce.core.errors import CommitStateUnknown, InvariantBroken, OnlyonceError, Retryable
from onlyonce.core.gc import BUCKET, NearHorizon, horizon_buckets
from onlyonce.core.locations import Location
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database, Scope, transaction
from onlyonce.failpoints import passing
from onlyonce.lookups import copies as lookups_copies
from onlyonce.operate import in_use
from onlyonce.operate.in_use import Mark
from onlyonce.sinks.files import sweep
from onlyonce.sources import folders
from onlyonce.tables import attempt_files, stores


def fold_sums(database: Database) -> int:
    """Add to the sums of each incarnation all batches that are old enough and add up; return their number.

    Totals are read from the sums, not from all batches that ever were. A kill leaves the rest for the next gc run.
    """
    folded, stuck = 0, set[str]()
    waiting = Retention(database).unfolded()
    while waiting:
        done = [Retention(database).fold(*one) for one in waiting]
        passing("retention-after-fold")
        folded += sum(done)
        # An incarnation whose next batch does not add up is left as it is.
        stuck |= {incarnation for (incarnation, _), added in zip(waiting, done, strict=True) if not added}
        waiting = [one for one in Retention(database).unfolded() if one[0] not in stuck]
    return folded


def note_final(database: Database) -> None:
    """Note for each incarnation of an output the batch up to which all its windows are final. Call it after
    `fold_sums`."""
    for incarnation, first, upto in Retention(database).unsettled():
        after: int | None = first
        while after is not None and after < upto:
            after = Retention(database).note_final(incarnation, after, upto)
            passing("retention-after-final")


# Input files that no run reads again move from the inbox to an archive: a folder, or a prefix of a store. Off by
# default.
#
# A file is moved when every batch that read it is committed. This holds for each declared pipeline that lists its
# inbox, and for each instance that registered it; a pipeline that is not recursive never reads the files below folders.
# No file is moved while a bounded run is running, or while a pipeline that lists the inbox has never run. Files that
# grow are never moved. A file that was replaced under its name stays, so that the next run refuses it.
#
# A file is first linked to its new name, then unlinked from the inbox. If the archive is on another file system, the
# file is copied under a hidden name instead of linked. After a kill between the two steps, the next gc run finds
# both names and finishes. It overwrites nothing. In a store the object is put only if its name is free. If the
# archive's file system has no hard links, each file stays in the inbox with a warning.
#
# `batches.source_to` keeps the path in the inbox. The archive has the same path below a folder of the pipeline's name.


AT_ONCE = 100
"""Files for each transaction; while it is open no new run registers itself."""


@dataclass(frozen=True)
class Move:
    """A file that may move: its path, its new path, and its mark in the manifest."""

    source: Path
    target: Location
    mark: Mark


def archive_inputs(
    database: Database, declared: Mapping[str, Pipeline], pipeline: Pipeline, folder: Location
) -> tuple[int, list[str]]:
    """Move the files of one pipeline's inbox that may move; return their number and the warnings. May be repeated."""
    outcome: dict[Path, str | None] = {}
    if apart := _spelled_apart(declared, pipeline):
        return 0, [apart]

    def some(scope: Scope) -> dict[Path, str | None]:
        due = [move for move in _due(scope, declared, pipeline, folder) if move.source not in outcome]
        return {move.source: _move(move) for move in due[:AT_ONCE]}

    # If an answer is lost nothing is lost: a file that was moved is no longer in the inbox.
    while more := Collector(database).without_new_runs(some):
        outcome |= more
    stayed = [warning for warning in outcome.values() if warning]
    return len(outcome) - len(stayed), stayed


def _spelled_apart(declared: Mapping[str, Pipeline], pipeline: Pipeline) -> str | None:
    """Return why the files of an inbox stay: another pipeline reads them by other paths, so its log can't be asked for
    them.
    """
    for other in declared.values():
        theirs = {*api_pipeline.folders(other)}
        for inbox in folders.shared(pipeline, other) if other.name != pipeline.name else ():
            if inbox not in theirs:
                return (
                    f"the files of {inbox} stay: {other.name} reads them too, and its inbox is written as "
                    f"{', '.join(map(str, sorted(theirs, key=str)))}; write both in the same way"
                )
    return None


def _due(scope: Scope, declared: Mapping[str, Pipeline], pipeline: Pipeline, folder: Location) -> list[Move]:
    if not pipeline.source.has_inbox or pipeline.source.in_store:
        return []  # files of several sources and objects stay where they are; a table owns its files
    inbox = settings.inbox(pipeline.name, pipeline.source.inbox)
    if any(other.sources and inbox in api_pipeline.folders(other) for other in declared.values()):
        return []
    there = {str(path): path for path in folders.files(inbox, recursive=folders.is_recursive(pipeline))}
    with_inbox = {name: other for name, other in declared.items() if other.source.has_inbox}
    sharing = sorted(
        name for name, other in with_inbox.items() if settings.inbox_location(name, other.source.inbox) == inbox
    )
    if any(declared[name].source.in_ranges for name in sharing):
        return []  # the program that appends to a file would append to the archive's
    runs = Collector(scope).runs(sharing)
    if {run.pipeline for run in runs if _on_stream(run)} != set(sharing) or any(_at_work(run) for run in runs):
        return []
    due = dict.fromkeys(there, True)
    last: dict[str, Mark] = {}
    for one in runs:
        seen = set()
        for entry in in_use.entries_taken_in(scope, one.instance, list(there.values())):
            seen.add(entry.path)
            unchanged = not _on_stream(one) or last.setdefault(entry.path, entry.mark) == entry.mark
            due[entry.path] &= entry.was_read and unchanged
        if _on_stream(one):
            reader = declared[one.pipeline]
            due = {
                path: still and (path in seen or folders.named_in(reader, there[path]) is None)
                for path, still in due.items()
            }
    return [
        Move(there[path], folder / pipeline.name / str(there[path].relative_to(inbox)), last[path])
        for path, still in sorted(due.items())
        if still and _mark(there[path]) == last[path]
    ]


def _on_stream(one: expiry.Run) -> bool:
    return one.instance == one.pipeline


def _at_work(one: expiry.Run) -> bool:
    return not _on_stream(one) and not one.ended


def _mark(path: Path) -> Mark | None:
    with suppress(OSError):
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns
    return None


def _move(move: Move) -> str | None:
    """Move one file; return a warning if it stays. Finish a move that a killed attempt began."""
    try:
        passing("archive-before-move")
        there = _linked(move.source, move.target, move.mark) if isinstance(move.target, Path) else _uploaded(move)
        if not there:
            return f"{move.source} stays: {move.target} is another file, or it has changed since it was registered"
        move.source.unlink()
    except OnlyonceError as error:  # the store's
        return f"{move.source} stays: {error.what}"
    except OSError as error:
        return f"{move.source} stays: {error.filename2 or error.filename}: {error.strerror}"
    passing("archive-after-move")
    return None


def _uploaded(move: Move) -> bool:
    """Put a file into a store; return whether the store has its content and the file is unchanged.

    The content is read into memory. An object with different content is never overwritten.
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
    """Link a file to a new name; link a copy of it if the new name is on another file system.

    A link, unlike a rename, fails if the name is taken. It also fails on a file system without links.
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
                stores.sync(part)
                os.link(part, target)
        stores.sync(target.parent)  # the file has no other name soon
    finally:
        part.unlink(missing_ok=True)


def _same(one: Path, other: Path) -> bool:
    return one.samefile(other) or filecmp.cmp(one, other, shallow=False)


# The gc itself, for each pipeline and bounded run. It raises the floor (`onlyonce.core.gc` decides, without a clock)
# and drops the buckets below the floor. It merges the small chunks of the other buckets, and makes filters over several
# buckets.


log = structlog.get_logger()

ATTEMPTS = 5
PAUSE_SECONDS = 1.0
"""Pause between two attempts at a drop, in which the readers that queued behind the first attempt run."""


def main(argv: list[str]) -> Report:
    """Collect all pipelines or one, once; return the report of what was removed.

    Raise InvariantBroken, after everything else, if a catalog has other ids than were written.
    """
    asked = parse("gc", argv)
    only = asked.pipeline
    database = Database(settings.database_url(), "onlyonce/collect")
    declared = declarations.load(asked.pipelines)
    if only is not None and only not in declared:
        raise unknown("pipeline", only, sorted(declared))
    known = Collector(database).instances()
    chosen = [(instance, pipeline) for instance, pipeline in known if only in (None, pipeline)]
    warnings = [_undeclared(instance, pipeline) for instance, pipeline in chosen if pipeline not in declared]
    rows, broken = _collected(database, declared, chosen, warnings)
    warnings += [_too_near(row) for row in Collector(database).near_horizon() if row.pipeline in dict(chosen)]
    kept = _retain(database, warnings)
    archived = _archive(database, declared, {pipeline for _, pipeline in chosen}, warnings)
    left = sum(
        attempt_files.sweep_attempts(instance, _file_hours(database, instance), warnings) for instance, _ in chosen
    )
    swept = sweep.sweep(database, declared, settings.keep_temporaries_hours())
    warnings += swept.warnings
    if broken:
        raise broken[0]
    temporaries = {"orphans of files": swept.facts["orphans"], "orphans removed": swept.facts["removed"]} | {
        "data files of killed drivers removed": left
    }
    return _report(rows, warnings, kept | archived | temporaries, swept.tables["orphans"])


def _collected(
    database: Database, declared: Mapping[str, Pipeline], chosen: list[tuple[str, str]], warnings: list[str]
) -> tuple[list[dict[str, Any]], list[InvariantBroken]]:
    """Collect each instance; return the rows of the report, and the errors of damaged catalogs.

    The errors end the run only after all other work, so that one damaged catalog does not hold up the others.
    """
    rows, broken = [], []
    for instance, pipeline in chosen:
        if pipeline in declared:
            try:
                rows.append(collect_instance(database, instance, declared[pipeline], warnings))
            except InvariantBroken as error:
                log.error("a catalog is not collected", instance=instance, what=error.what)
                broken.append(error)
    return rows, broken


def collect_instance(database: Database, instance: str, pipeline: Pipeline, warnings: list[str]) -> dict[str, Any]:
    """Collect one pipeline or bounded run; return its row of the report, and add to the warnings."""
    horizon = horizon_buckets(pipeline.dedup_horizon)
    before, after = Collector(database).raise_floor(instance, horizon)
    passing("gc-after-floor")
    waiting = Collector(database).below_floor(instance)
    gone, left = _drop_all(database, instance, waiting)
    if left:
        warnings.append(f"{instance}: {len(waiting) - len(gone)} bucket(s) are left for the next time: {left}")
    merged, made = _merge_all(database, instance)
    filters = _range_filters(database, instance)
    return {
        "pipeline": instance, "horizon": in_words(pipeline.dedup_horizon), "floor": _time(after),
        "moved": after - before, "buckets": len(gone),
        "chunks": sum(d.chunks for d in gone), "ids": sum(d.ids for d in gone), "bytes": sum(d.bytes for d in gone),
        "merged": merged, "into": made, "range filters": filters,
    }  # fmt: skip


def _drop_all(
    database: Database, instance: str, waiting: list[expiry.Bucket]
) -> tuple[list[expiry.Dropped], str | None]:
    """Drop the buckets; return the dropped ones, and what stopped it.

    A session that reads one bucket for long holds up the pipeline's other buckets too.
    """
    gone: list[expiry.Dropped] = []
    for bucket in waiting:
        try:
            dropped = _drop(database, instance, bucket)
        except (Retryable, CommitStateUnknown) as error:
            return gone, error.what
        if dropped:
            gone.append(dropped)
        passing("gc-after-drop")
    return gone, None


def _drop(database: Database, instance: str, bucket: expiry.Bucket) -> expiry.Dropped | None:
    """Drop one bucket in its own transaction, in up to five attempts. Raise Retryable if a reader does not end."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with transaction(database) as connection:
                return Collector(connection).drop(instance, bucket)
        except (Retryable, CommitStateUnknown):
            # Repeat a drop whose answer was lost, too: it finds that the bucket is gone.
            if attempt == ATTEMPTS:
                raise
            time.sleep(PAUSE_SECONDS)
    raise AssertionError("the last attempt returns or raises")


def _merge_all(database: Database, instance: str) -> tuple[int, int]:
    """Merge the small chunks of all live buckets; return how many chunks became how many.

    Free the space of merged chunks.
    """
    merged = made = 0
    for crowd in Merging(database).crowded(instance):
        while parts := Merging(database).merge_next(instance, crowd):
            passing("merge-after-commit")
            merged, made = merged + parts, made + 1
    for waste in Merging(database).wasteful(instance):
        # If another session reads the bucket for long, it is compacted the next time, or dropped as it is.
        with suppress(Retryable, CommitStateUnknown), transaction(database) as connection:
            Merging(connection).compact(instance, waste)
        passing("merge-after-compact")
    return merged, made


def _range_filters(database: Database, instance: str) -> int:
    """Make filters over several buckets, each in its own transaction; return how many.

    Remove the filters of dropped buckets.
    """
    RangeFilters(database).remove_below(instance)
    made = ids = 0
    for block in RangeFilters(database).wanted(instance):
        if ids >= gc.AT_ONCE:
            break
        ids += RangeFilters(database).make(instance, block)
        made += 1
    return made


def _file_hours(database: Database, instance: str) -> float:
    """Return for how many hours data files that are in no table stay: work under way may have begun to read them."""
    return max(settings.keep_temporaries_hours(), in_use.hours_under_way(database, instance))


def _retain(database: Database, warnings: list[str]) -> dict[str, Any]:
    """Remove units, staged rows and other old data of all pipelines, declared or not; return the facts of the report.

    The sums come first, since they are made from the units.
    """
    folded = fold_sums(database)
    note_final(database)
    days, units, delivered = settings.keep_units_days(), 0, 0
    while True:
        batches, removed = Retention(database).remove_units(days)
        passing("retention-after-units")
        units += removed
        if not batches:
            break
    elsewhere, left = removals.remove_elsewhere(database)
    warnings += left
    while rows := Retention(database).remove_delivered(days):
        delivered += rows
    runs = DriverRuns(database).remove(days)
    copies = lookups_copies.collect_copies(database)
    files = in_use.remove(Retention(database).settled(settings.keep_staged_days()))
    return {
        "batches folded into sums": folded,
        "units kept (days)": days,
        "units removed": units,
        "units removed elsewhere": elsewhere,
        "delivered rows removed": delivered,
        "old runs removed": runs,
        "staged rows kept (days)": settings.keep_staged_days(),
        "staged files removed": files,
        "copies of lookups removed": copies,
    }


def _archive(
    database: Database, declared: Mapping[str, Pipeline], chosen: set[str], warnings: list[str]
) -> dict[str, Any]:
    folder, files = settings.archive(), 0
    for name in sorted(chosen & declared.keys()) if folder else []:
        assert folder is not None
        moved, stayed = archive_inputs(database, declared, declared[name], folder)
        files += moved
        warnings += stayed
    return {"archive": str(folder) if folder else "off", "files archived": files}


def _too_near(row: NearHorizon) -> str:
    return (
        f"{row.pipeline}: {row.near_the_edge} of {row.duplicate} duplicates of the last horizon were caught in its "
        "oldest tenth. Lengthen dedup_horizon, or the next ones will be taken for new records"
    )


def _report(
    rows: list[dict[str, Any]], warnings: list[str], more: dict[str, Any], orphans: list[dict[str, Any]]
) -> Report:
    names = ("buckets", "chunks", "ids", "bytes", "merged", "into", "range filters")
    facts: dict[str, Any] = {name: sum(row[name] for row in rows) for name in names} | more
    title = f"collect: {facts['buckets']} bucket(s) dropped" if facts["buckets"] else "collect: nothing to drop"
    shown = {"by pipeline": rows} | ({"orphans of files": orphans} if orphans else {})
    return Report(title, f"collect__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts, shown, warnings)


def _undeclared(instance: str, pipeline: str) -> str:
    return f"{instance}: no pipeline {pipeline!r} is declared any more, so its horizon is unknown and its ids stay"


def _time(floor: int) -> datetime | None:
    return datetime.fromtimestamp(floor * BUCKET.total_seconds(), UTC) if floor > 0 else None


def cli() -> None:
    """Run `python -m onlyonce.operate.gc`."""
    logs.configure(job="gc")
    job_main.run(main)


if __name__ == "__main__":
    cli()
