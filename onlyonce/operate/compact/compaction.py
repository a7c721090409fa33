"""The platform's own tables are compacted, and their logs kept short. No Spark. docs/specification/compaction.md.

Each batch of receive adds a few small files to `events` and one to the registry of the source, and an entry to the log
of each table. Here the files of commits that nobody reads one by one any more become large ones, in order of time,
control rows are folded, and what a log has for such commits goes. No other row changes, and no stream over the table
notices (`storage/rewriting`). That commits to `events` up to a version are compacted is noted in PostgreSQL first: from
then on whoever starts at the beginning takes the table as it is, and whoever wants rows of those commits looks for them
by their batch (`receive/past_rows`).

Who calls it: `maintain`. Errors: DeltaError, OSError and ArrowException where a table can't be read or written. Not
promised: that all is compacted. A query that stands still holds what it has not read, and the report names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from deltalake import DeltaTable

from onlyonce import settings
from onlyonce.commitlog.operate.compaction import Compactions, Life
from onlyonce.database.connect import Database
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.operate import compacting
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import BATCH_NO, CONTROL, OO_EVENT_TIME, OO_KIND, OO_SYSTEM_TIME, RESERVOIR_VERSION
from onlyonce.operate.compact import control_rows, under_way
from onlyonce.storage import delta, log_entries, manifests, opening, rewriting, stores
from onlyonce.storage.rewriting import File

EVENTS = (OO_EVENT_TIME, OO_SYSTEM_TIME)
"""What files of `events` are ordered by."""
REGISTRY = (BATCH_NO,)
LOG_HOURS = 2.0
"""How long an entry of a table's log stays at least: longer than anybody takes to read a version that he has found.
Each look and each commit lists the whole log, so its length is a part of what a batch costs: some 8 ms for the entries
of a day, one a minute."""


@dataclass(frozen=True)
class Table:
    """A table, up to which version its commits may be compacted, and the query that holds the next ones."""

    path: Location
    order: tuple[str, ...]
    upto: int
    held_by: str | None = None


@dataclass(frozen=True)
class Compacted:
    """What was done with a table, or would be. `log_files`: how many of its log went."""

    pipeline: str
    table: str
    upto: int
    held_by: str | None
    new_files: int
    files_before: int
    files_after: int
    log_files: int

    def row(self) -> dict[str, object]:
        """For the report."""
        return {
            "pipeline": self.pipeline, "table": self.table, "up to version": self.upto, "held by": self.held_by,
            "new files": self.new_files, "files before": self.files_before, "files after": self.files_after,
            "log files": self.log_files,
        }  # fmt: skip


def compact(database: Database, instance: str, *, dry_run: bool) -> list[Compacted]:
    """Compact the tables of a pipeline; gives what was done, or with `dry_run` would be."""
    tables = [table for table in _tables(database, instance) if delta.exists(table.path)]
    return [_compact(database, instance, table, dry_run=dry_run) for table in tables]


def _tables(database: Database, instance: str) -> Iterator[Table]:
    home = settings.data_location(instance)
    upto, held_by = Compactions(database).events_upto(instance)
    # A first batch that is not ended is of the table as it was; behind it its query reads on commit by commit.
    first = under_way.first_batches(database, instance)
    upto, held_by = min([(upto, held_by), *((version, query) for query, version in first)], key=lambda one: one[0])
    yield Table(home / stored_names.EVENTS_FOLDER, EVENTS, upto, held_by)
    taken_in = _registry_upto(Compactions(database).queries(instance))
    for name in manifests.NAMES:
        yield Table(home / name, REGISTRY, taken_in, "receive")
    # Those of several sources are read by the numbers of batches, and not commit by commit.
    store, sources = stores.of(home), home / stored_names.SOURCES_FOLDER
    for path in (sources / source / name for source in sorted(store.names(sources)) for name in manifests.NAMES):
        if delta.exists(path):
            yield Table(path, REGISTRY, delta.latest(path) - 1)


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
        shortened = rewriting.shorten_log(of.path, of.upto, max(LOG_HOURS, under_way.hours(database, instance)))
        passing("compact-after-log")
    new, after = len(groups) if dry_run else done, len(opening.table(of.path).file_uris())
    return Compacted(instance, of.path.name, of.upto, of.held_by, new, before, after, shortened)


def _registry_upto(lives: list[Life]) -> int:
    """Of a registry Spark reads file by file, and receive may read its last batch again.

    A new life goes on at its end.
    """
    found = [one for one in lives if one.query == "receive"]
    if not found or found[0].source_from is None:
        return -1
    return int(found[0].source_from[RESERVOIR_VERSION]) - 1


def _groups(table: DeltaTable, of: Table) -> Iterator[list[File]]:
    """The files that are put together: of one partition each, in order of time."""
    versions = range(of.upto + 1, table.version() + 1)
    newer = {file.path for version in versions for file in log_entries.added(of.path, version)}
    old = [
        file for file in rewriting.files(table, of.order) if of.path / file.path not in newer and file.rows is not None
    ]
    # By the last of their times: of a batch with a late record the first says little.
    old.sort(key=lambda file: (sorted(file.partition.items()), file.largest is not None, file.largest))
    for _, some in groupby(old, key=lambda file: file.partition):
        yield from compacting.together(list(some))


def _rewrite(of: Table, instance: str, group: list[File]) -> bool:
    number = opening.table(of.path).version()
    app_id = stored_names.housekeeping(instance, stored_names.COMPACTION_BY)
    change = control_rows.folded if group[0].partition.get(OO_KIND) == CONTROL else _sorted_by(of.order)
    return rewriting.rewrite(of.path, group, app_id, number, change)


def _sorted_by(columns: tuple[str, ...]) -> rewriting.Rows:
    return lambda rows: rows.sort_by([(name, "ascending") for name in columns])
