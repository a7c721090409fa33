"""Compact the platform's own tables and the Delta tables of outputs, and shorten their logs. No Spark.

`onlyonce maintain` and the DAG `onlyonce_compact_tables` run it. It also removes records and batches of the log that
are older than a pipeline keeps (`keep_events`, `keep_log`). If another writer holds a table, the table is left for the
next run, with a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import compute as pc

from onlyonce import job_main, logs, settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Pipeline, unknown
from onlyonce.asked import parse
from onlyonce.commitlog.cuts import Compactions, KeepEvents, LiveIncarnation, LogCuts, OldIncarnation
from onlyonce.commitlog.removals import Removal, Removals
from onlyonce.core import retention, stored_names
from onlyonce.core.batch import to_time
from onlyonce.core.locations import Location
from onlyonce.core.retention import Decision
from onlyonce.core.runs import Report, first_line
from onlyonce.core.stored_names import (
    BATCH_NO,
    CONTROL,
    OO_EVENT_TIME,
    OO_FRONTIER,
    OO_INGESTION_TIME,
    OO_KIND,
    RESERVOIR_VERSION,
)
from onlyonce.core.windows import Session
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.failpoints import passing
from onlyonce.operate import in_use
from onlyonce.sinks import maintain
from onlyonce.sinks.maintain import Maintained
from onlyonce.sources import manifest
from onlyonce.tables import attempt_files, commit, opening, rewrite, stores
from onlyonce.tables.rewrite import Cut, File, Gone

PARTS = ("max_event_time", "ended", "silent_max_event_time", "silent_clock")


def folded_control_rows(rows: pa.Table) -> pa.Table:
    """Return, for each part of the frontier, the last row that has its largest value; of rows without values, one.

    An output closes windows by the largest values in its control rows, and no part of a frontier moves back
    (`onlyonce.core.frontier`). So these rows decide the same as all rows.
    """
    frontier = rows.column(OO_FRONTIER).combine_chunks()
    by_part = pa.table({part: pc.struct_field(frontier, part) for part in PARTS})
    by_part = by_part.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    latest = by_part.sort_by([(part, "descending") for part in PARTS])
    wanted = {latest["row"][0].as_py()} if rows.num_rows else set()
    for part in PARTS:
        largest = pc.max(latest[part])
        if largest.is_valid:
            wanted.add(latest["row"][pc.index(latest[part], largest).as_py()].as_py())
    return rows.take(pa.array(sorted(wanted), pa.int64()))


# Compaction of the platform's own tables. docs/specification/compaction.md.
#
# Each batch of receive adds a few small files to `events`, one to the manifest of the source, and an entry to the log
# of each table. Files of commits that no query reads one by one any more are merged into large ones, in order of time.
# Control rows are merged, and the log entries of such commits are removed. No other row changes, and no stream over the
# table notices (`tables/rewrite`).
#
# The version up to which `events` is compacted is noted in PostgreSQL first. From then on a query that starts at the
# beginning reads the table as it is. Rows of these commits are found by their batch instead.
#
# A query that does not advance holds what it has not read, and the report names the query.


EVENTS = (OO_EVENT_TIME, OO_INGESTION_TIME)
"""Columns by which the files of `events` are ordered."""
MANIFEST = (BATCH_NO,)
LOG_HOURS = 2.0
"""How long an entry of a table's log stays at least: longer than a reader takes to read a version that it has found.

Each poll and each commit lists the whole log, so its length is a part of a batch's cost. With one entry a minute, a
day's entries cost about 8 ms.
"""


@dataclass(frozen=True)
class Table:
    """A table, the version up to which its commits may be compacted, and the query that holds the next ones."""

    path: Location
    order: tuple[str, ...]
    upto: int
    held_by: str | None = None


@dataclass(frozen=True)
class Compacted:
    """The result of compacting a table, or in a dry run what it would be. `log_files`: the removed files of its log."""

    pipeline: str
    table: str
    upto: int
    held_by: str | None
    new_files: int
    files_before: int
    files_after: int
    log_files: int

    def row(self) -> dict[str, object]:
        """Return a row of the report."""
        return {
            "pipeline": self.pipeline, "table": self.table, "up to version": self.upto, "held by": self.held_by,
            "new files": self.new_files, "files before": self.files_before, "files after": self.files_after,
            "log files": self.log_files,
        }  # fmt: skip


FAILS = (DeltaError, OSError, pa.ArrowException)
"""The errors after which a table is left for the next time."""


def compact(database: Database, instance: str, warnings: list[str], *, dry_run: bool) -> list[Compacted]:
    """Compact the tables of a pipeline; return what was done or, with `dry_run`, what would be.

    A table that fails is named in `warnings`, and the others are compacted.
    """
    tables = [table for table in _tables(database, instance) if commit.exists(table.path)]
    done = []
    for table in tables:
        try:
            done.append(_compact(database, instance, table, dry_run=dry_run))
        except FAILS as error:
            warnings.append(f"{instance}: its table {table.path.name} is left for the next time: {first_line(error)}")
    return done


def _tables(database: Database, instance: str) -> Iterator[Table]:
    home = settings.data_location(instance)
    upto, held_by = Compactions(database).events_upto(instance)
    # A first batch that has not ended reads the table as it was then; after it the query reads commit by commit.
    first = in_use.first_batches(database, instance)
    upto, held_by = min([(upto, held_by), *((version, query) for query, version in first)], key=lambda one: one[0])
    yield Table(home / stored_names.EVENTS_FOLDER, EVENTS, upto, held_by)
    taken_in = _manifest_upto(Compactions(database).queries(instance))
    for name in attempt_files.NAMES:
        yield Table(home / name, MANIFEST, taken_in, "receive")
    # Manifests of several sources are read by batch number, not commit by commit.
    store, sources = stores.of(home), home / stored_names.SOURCES_FOLDER
    for path in (sources / source / name for source in sorted(store.names(sources)) for name in attempt_files.NAMES):
        if commit.exists(path):
            with suppress(FileNotFoundError):  # the last entries are merged already: nothing is left to compact
                yield Table(path, MANIFEST, manifest.last_append(path) - 1)


def _compact(database: Database, instance: str, of: Table, *, dry_run: bool) -> Compacted:
    table = opening.table(of.path)
    groups = list(_groups(table, of))
    before, done, shortened = len(table.file_uris()), 0, 0
    if not dry_run:
        if of.order is EVENTS:
            Compactions(database).raise_to(instance, of.upto)
            passing("compact-after-note")
        done = sum(_rewrite(of, instance, group) for group in groups)
        if done:
            opening.table(of.path).create_checkpoint()
        passing("compact-after-checkpoint")
        shortened = rewrite.shorten_log(of.path, of.upto, max(LOG_HOURS, in_use.hours_under_way(database, instance)))
        passing("compact-after-log")
    new, after = len(groups) if dry_run else done, len(opening.table(of.path).file_uris())
    return Compacted(instance, of.path.name, of.upto, of.held_by, new, before, after, shortened)


def _manifest_upto(incarnations: list[LiveIncarnation]) -> int:
    """Return the version before the first version of receive's last batch, since receive may read this batch again.

    Spark reads a manifest file by file, and a new incarnation starts at its end.
    """
    found = [one for one in incarnations if one.query == "receive"]
    if not found or found[0].source_from is None:
        return -1
    return int(found[0].source_from[RESERVOIR_VERSION]) - 1


def _groups(table: DeltaTable, of: Table) -> Iterator[list[File]]:
    """Yield the groups of files to merge: each of one partition, in order of time."""
    if of.upto < 0:  # nothing may be compacted, and the log may have lost its first entries
        return
    versions = range(of.upto + 1, table.version() + 1)
    newer = {file.path for version in versions for file in opening.added(of.path, version)}
    old = [
        file
        for file in rewrite.rewritten_files(table, of.order)
        if of.path / file.path not in newer and file.rows is not None
    ]
    # By the largest of each file's times: if a batch has a late record, its smallest time says little.
    old.sort(key=lambda file: (sorted(file.partition.items()), file.largest is not None, file.largest))
    for _, some in groupby(old, key=lambda file: file.partition):
        yield from retention.files_together(list(some))


def _rewrite(of: Table, instance: str, group: list[File]) -> bool:
    number = opening.table(of.path).version()
    app_id = stored_names.housekeeping(instance, stored_names.COMPACTION_BY)
    change = folded_control_rows if group[0].partition.get(OO_KIND) == CONTROL else _sorted_by(of.order)
    return rewrite.rewrite(of.path, group, app_id, number, change)


def _sorted_by(columns: tuple[str, ...]) -> rewrite.Rows:
    return lambda rows: rows.sort_by([(name, "ascending") for name in columns])


# Removal of old days of `events`, by the pipeline's `keep_events`. docs/specification/removal.md.
#
# A day is removed when no reader needs its single records (`onlyonce/core/retention.py`). A removal is noted first,
# then counted by batch and fate, then made in one commit of the table, then noted as done. The next run finishes a
# removal that was killed. The report names what holds a day. Late records from before a removed day are removed with
# the next day.


TIMES = (OO_EVENT_TIME, OO_INGESTION_TIME)
"""Columns that date a record: its event time; for an invalid record, which has none, its ingestion time."""
INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Found:
    """The records that a removal would remove now."""

    cuts: list[Cut]
    gone: Gone

    @property
    def counts(self) -> Counter[tuple[str, int, str]]:
        """Return rows by incarnation of receive, batch and fate."""
        return sum((cut.counts for cut in self.cuts), Counter())


@dataclass(frozen=True)
class Retained:
    """The records removed from `events`, or to remove, and the time from which all records are still present.

    `counts`: rows by fate.
    """

    pipeline: str
    keep_events: timedelta | None
    kept_from: datetime | None
    held_by: str | None
    counts: Counter[str]
    files: int

    @property
    def removed(self) -> int:
        """Return how many rows."""
        return self.counts.total()

    def row(self) -> dict[str, object]:
        """Return a row of the report."""
        return {
            "pipeline": self.pipeline, "keep_events": str(self.keep_events), "records from": self.kept_from,
            "held by": self.held_by, "removed": self.removed,
            **{fate: self.counts[fate] for fate in ("kept", "invalid", "expired")}, "files": self.files,
        }  # fmt: skip


def retain(database: Database, pipeline: Pipeline, *, dry_run: bool) -> Retained | None:
    """Remove old days of a pipeline's `events`; return what was done or, with `dry_run`, what would be.

    Return None if all is kept for ever.
    """
    path = settings.data_location(pipeline.name) / stored_names.EVENTS_FOLDER
    removal = Removals(database).begun(pipeline.name)
    if (pipeline.keep_events is None and removal is None) or not commit.exists(path):
        return None
    kept = Removals(database).kept_from(pipeline.name) or 0
    keep = pipeline.keep_events
    decision = KeepEvents(database).decide(pipeline, keep) if keep is not None and removal is None else None
    meant = removal or Removal(0, *_of(decision))
    found = look(database, pipeline.name, path, meant) if removal or meant.before > kept else Found([], _nothing)
    if dry_run or (removal is None and not found.cuts):
        return _retained(pipeline, meant.before if found.cuts else kept, found, decision)
    removed, taken = _remove(database, pipeline, path)
    return _retained(pipeline, removed.before, taken, decision)


def look(database: Database, instance: str, path: Location, removal: Removal) -> Found:
    """Return the files with rows that a removal takes, as the table is now."""
    last = Compactions(database).last_in(instance, removal.upto)
    gone = _gone(removal.before, last)
    cuts = (rewrite.cut_rows(path, file, TIMES, gone) for file in _with_old_rows(path, to_time(removal.before)))
    return Found([cut for cut in cuts if cut], gone)


def _with_old_rows(path: Location, before: datetime | None) -> Iterator[File]:
    """Yield the files that may have rows from before a moment, by the times in the table's log."""
    table = opening.table(path)
    for by_time in zip(*(rewrite.rewritten_files(table, [name]) for name in TIMES), strict=True):
        least = [file.least for file in by_time if file.least is not None]
        if by_time[0].partition.get(OO_KIND) != CONTROL and (not least or min(least) < before):
            yield by_time[0]


def _remove(database: Database, pipeline: Pipeline, path: Location) -> tuple[Removal, Found]:
    instance = pipeline.name
    app_id = stored_names.housekeeping(instance, stored_names.RETENTION_BY)
    removal = KeepEvents(database).begin(pipeline)
    if removal is None:  # another process has done it meanwhile
        return Removal(0, 0, -1), Found([], _nothing)
    Compactions(database).raise_to(instance, removal.upto)
    passing("retention-after-begin")
    found = Found([], _nothing)
    while (commit.version(path, app_id) or 0) < removal.number:
        found = look(database, instance, path, removal)
        if not found.cuts:
            break
        counts, files = found.counts, len(found.cuts)
        Removals(database).count(instance, removal, counts, files)
        passing("retention-after-count")
        rewrite.remove_rows(path, found.cuts, found.gone, app_id, removal.number)
    passing("retention-before-end")
    version = commit.latest(path)
    Removals(database).end(instance, removal, version)
    return removal, found


def _gone(before: int, last: Mapping[str, int]) -> Gone:
    """Return a mask of the rows of these batches from before an event time."""
    limit = pa.scalar(to_time(before), INSTANT)

    def mask(rows: pa.Table) -> pa.Array:
        old = pc.less(pc.coalesce(*(rows.column(name) for name in TIMES)).cast(INSTANT), limit)
        return pc.and_(old, rewrite.files_of_batches(rows, last))

    return mask


def _nothing(rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(False), rows.num_rows)


def _of(decision: Decision | None) -> tuple[int, int]:
    return (0, retention.NOTHING) if decision is None else (decision.before, decision.upto)


def _retained(pipeline: Pipeline, kept_from: int, found: Found, decision: Decision | None) -> Retained:
    counts: Counter[str] = Counter()
    for (_, _, fate), rows in found.counts.items():
        counts[fate] += rows
    held_by = decision.held_by if decision else None
    return Retained(pipeline.name, pipeline.keep_events, to_time(kept_from or None), held_by, counts, len(found.cuts))


# Removal of old batches of outputs from the log, by the pipeline's `keep_log`. docs/specification/log-retention.md.
#
# A batch is removed when no query of the log needs it by itself (`sql/statements/keep_log.sql`). Its counts are in the
# sums of its incarnation, and its counts of each window are added up by window. So totals and windows keep their
# numbers.


@dataclass(frozen=True)
class LogCut:
    """The rows cut off a log, or to cut off, and the moment from which it is complete. `incarnations`: of how many
    incarnations.
    """

    pipeline: str
    keep_log: timedelta
    whole_from: datetime | None
    held_by: str | None
    incarnations: int
    batches: int

    def row(self) -> dict[str, object]:
        """Return a row of the report."""
        return {
            "pipeline": self.pipeline, "keep_log": str(self.keep_log), "whole from": self.whole_from,
            "held by": self.held_by, "incarnations": self.incarnations, "batches": self.batches,
        }  # fmt: skip


def cut_log(database: Database, pipeline: Pipeline, *, dry_run: bool) -> LogCut | None:
    """Cut old batches off a pipeline's log; return what was done or, with `dry_run`, what would be.

    Return None if all is kept for ever.
    """
    keep, instance = pipeline.keep_log, pipeline.name
    if keep is None:
        return None
    limit, incarnations, holds = is_log_cut_due(database, pipeline)
    batches = 0
    if incarnations and not holds:
        if not dry_run:
            LogCuts(database).begin(instance, keep, limit)
            passing("keep-log-after-begin")
        batches = sum(_cut(database, pipeline, incarnation, limit, dry_run=dry_run) for incarnation in incarnations)
    since = LogCuts(database).kept(instance).since
    return LogCut(instance, keep, since, ", ".join(holds) or None, len(incarnations), batches)


def is_log_cut_due(database: Database, pipeline: Pipeline) -> tuple[datetime, list[OldIncarnation], list[str]]:
    """Return the moment before which batches may be cut, the incarnations that have some, and the work under way that
    holds all.

    Work that has begun may need any batch.
    """
    assert pipeline.keep_log is not None
    limit = LogCuts(database).limit(pipeline.keep_log)
    declared = {root.name for root in pipeline.roots()}
    found = LogCuts(database).incarnations(pipeline.name, _sessions(pipeline), limit)
    incarnations = [
        incarnation for incarnation in found if incarnation.query in declared and incarnation.read_upto is not None
    ]
    return limit, incarnations, Removals(database).under_way(pipeline.name)


def _sessions(pipeline: Pipeline) -> list[str]:
    return [root.name for root in pipeline.roots() if isinstance(root.window, Session)]


def _cut(database: Database, pipeline: Pipeline, incarnation: OldIncarnation, limit: datetime, *, dry_run: bool) -> int:
    first = None
    if incarnation.query in _sessions(pipeline):
        first = LogCuts(database).first_open(pipeline.name, incarnation.query)
    after: int | None = -1
    batches = 0
    while after is not None:
        after, gone = LogCuts(database).cut(incarnation, limit, after, first, dry_run=dry_run)
        batches += gone
        passing("keep-log-after-step")
    return batches


# The entry point: all tables once.


def main(argv: list[str]) -> Report:
    """Maintain all tables once, or one pipeline's tables. With --dry-run only report what would be done."""
    asked = parse("maintain", argv)
    logs.configure(job="maintain")
    database = Database(settings.database_url(), "onlyonce/maintain")
    migrate(database.url)
    declared = declarations.load(asked.pipelines)
    if asked.pipeline is not None and asked.pipeline not in declared:
        raise unknown("pipeline", asked.pipeline, sorted(declared))
    chosen = {name: pipeline for name, pipeline in sorted(declared.items()) if asked.pipeline in (None, name)}
    started = datetime.now(UTC)
    warnings: list[str] = []
    own: list[Compacted] = []
    outputs: list[tuple[str, str, Maintained]] = []
    removed: list[Retained] = []
    cut: list[LogCut] = []
    for name, pipeline in chosen.items():
        removed += _removed(database, pipeline, warnings, dry_run=asked.dry_run)
        cut += [one for one in [cut_log(database, pipeline, dry_run=asked.dry_run)] if one]
        own += compact(database, name, warnings, dry_run=asked.dry_run)
        for output in pipeline.outputs:
            found = maintain.maintain_output(database, pipeline, output, dry_run=asked.dry_run)
            if isinstance(found, str):
                warnings.append(f"{name}/{output.name}: {found}")
            elif found:
                outputs.append((name, output.name, found))
    everything: list[Compacted | Maintained] = [*own, *(one for _, _, one in outputs)]
    facts = {
        "files before": sum(one.files_before for one in everything),
        "files after": sum(one.files_after for one in everything),
        "removed": sum(one.removed for _, _, one in outputs),
        "log files removed": sum(one.log_files for one in own),
        "old records removed": sum(one.removed for one in removed),
        "batches cut from the log": sum(one.batches for one in cut),
    }
    word = "would be maintained" if asked.dry_run else "maintained"
    what = f"maintain: {len(own) + len(outputs)} table(s) {word}"
    tables = (
        {
            "own tables": [one.row() for one in own],
            "tables": [{"pipeline": name, "output": output} | one.row() for name, output, one in outputs],
        }
        | ({"old records": [one.row() for one in removed]} if removed else {})
        | ({"log": [one.row() for one in cut]} if cut else {})
    )
    return Report(what, f"maintain__{started:%Y-%m-%dT%H:%M:%S}", facts, tables, warnings)


def _removed(database: Database, pipeline: Pipeline, warnings: list[str], *, dry_run: bool) -> list[Retained]:
    try:
        found = retain(database, pipeline, dry_run=dry_run)
    except FAILS as error:
        warnings.append(f"{pipeline.name}: old records are left for the next time: {first_line(error)}")
        return []
    return [found] if found else []


def cli() -> None:
    """Run `python -m onlyonce.operate.compact`."""
    job_main.run(main)


if __name__ == "__main__":
    cli()
