"""Compact the small files of closed windows in the Delta tables of outputs, and remove what no reader needs any more.

No Spark.

Each batch that closes windows adds at least one file to a table. The files of a date are put together once the stream
can write no window that starts on that date, so the two never conflict. If a backfill conflicts, it wins, and the date
is left for the next time. Compaction changes no row, and readers of a version don't notice it. Replaced files stay for
ONLYONCE_VACUUM_HOURS (a week), and longer while a batch or backfill that began before has not ended.

Only tables of outputs with fixed or sliding windows are compacted. Outputs without windows, and sessions, have no date
that is closed for good. `events` has rules of its own (`onlyonce.operate.compact`).

Who calls it: `onlyonce.operate.compact`. Errors: DeltaError where others wrote. Not promised: that a table is
compacted while somebody else writes to its closed dates, or if it has deletion vectors, column mapping, row tracking or
in-commit timestamps (`onlyonce.tables.opening`): the report names it, and what to do instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from math import ceil

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from onlyonce import settings
from onlyonce.api.pipeline import Delta, Iceberg, Output, Pipeline, target
from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.batches import Batches
from onlyonce.core.batch import to_time
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import WINDOW_DATE
from onlyonce.core.windows import Session, own
from onlyonce.database.connect import Database
from onlyonce.failpoints import passing
from onlyonce.tables import arrow_files, opening

DATE = WINDOW_DATE
FEW = 2
"""A date with fewer files than this is left alone."""

ICEBERG = """left alone: an Iceberg table is maintained by its engines
  data: all rows are there and readable; small files, old snapshots and files that no snapshot names stay
  next: rewrite_data_files, expire_snapshots and remove_orphan_files by Spark, Trino or the catalog's own service.
    No property onlyonce.… may go"""


@dataclass(frozen=True)
class Maintained:
    """What was done with a table, or would be.

    dates    how many were compacted
    removed  how many files that the table has no more
    hours    how long such files stay
    """

    dates: int
    files_before: int
    files_after: int
    removed: int
    hours: int
    closed: date | None

    def row(self) -> dict[str, object]:
        """For the report."""
        return {
            "closed before": self.closed, "dates": self.dates, "files before": self.files_before,
            "files after": self.files_after, "removed": self.removed, "kept (hours)": self.hours,
        }  # fmt: skip


def maintain_output(
    database: Database, pipeline: Pipeline, output: Output, *, dry_run: bool
) -> Maintained | str | None:
    """Maintain the table of an output, or say why it is left as it is; None for one that has no table with dates."""
    if isinstance(output.sink, Iceberg):
        return ICEBERG
    path = table_of(pipeline, output)
    if path is None:
        return None
    closed = closed_before(database, pipeline, output)
    try:
        if told := not_maintained(path):
            return told
        return maintain(path, closed, keep_hours(database), dry_run=dry_run)
    except (DeltaError, OSError, Refused) as error:
        # Another writer wrote there, or the table can't be opened. Nothing of ours has happened; other tables go on.
        return f"left for the next time: {str(error).splitlines()[0]}"


def table_of(pipeline: Pipeline, output: Output) -> Location | None:
    """The Delta table of an output whose dates close; None for any other."""
    root = pipeline.root_of(output)
    if not isinstance(output.sink, Delta) or not root.has_windows or isinstance(root.window, Session):
        return None
    path = settings.table_location(target(pipeline, output).split(":", 1)[1])
    return path if opening.any_in(path) else None


def closed_before(database: Database, pipeline: Pipeline, output: Output) -> date | None:
    """The first date on which a window may still be written by the stream: all windows that start before it are
    written.

    By the same rule as a backfill's: what the stream has closed **and** written.
    """
    root = pipeline.root_of(output)
    assert root.window is not None
    assert not isinstance(root.window, Session)
    until = Backfills(database).reach(pipeline.name, root.name).closed_until(root)
    if until is None:
        return None
    first_open = to_time(own(root.window).assign(until)[0][0])
    return None if first_open is None else first_open.date()


def keep_hours(database: Database) -> int:
    """How long files that are no longer part of a table stay: as is set, and longer than anything that is under way."""
    oldest = Batches(database).oldest_begun()
    return max(settings.vacuum_hours(), ceil(oldest / 3600) + 1)


def maintain(path: Location, closed: date | None, hours: int, *, dry_run: bool) -> Maintained:
    """Compact the closed dates of a table that have small files, then vacuum. Raises DeltaError where others wrote."""
    table = opening.table(path)
    before = len(table.file_uris())
    dates = _dates(table, closed)
    if not dry_run:
        for day in dates:
            passing("maintain-before-compact")
            table.optimize.compact(
                partition_filters=[(DATE, "=", day)], writer_properties=arrow_files.footer_of_delta_rs(table)
            )
            passing("maintain-after-compact")
    removed = table.vacuum(retention_hours=hours, dry_run=dry_run, enforce_retention_duration=False)
    passing("maintain-after-vacuum")
    return Maintained(len(dates), before, len(opening.table(path).file_uris()), len(removed), hours, closed)


def not_maintained(path: Location) -> str | None:
    """What to do where a team has switched on what only Spark's own Delta can maintain; None where this job can.

    delta-rs would fail at each compaction, or take deletion vectors for files that nobody needs.
    """
    on = opening.only_for_spark(opening.table(path))
    if not on:
        return None
    return (
        f"left alone for as long as the table has {', '.join(on)}\n"
        f"  data: all rows are there and readable; small files and files that were replaced stay in {path}\n"
        f"  next: OPTIMIZE and VACUUM delta.`{path}` with Spark (more than {settings.vacuum_hours()} HOURS), or "
        "switch it off there"
    )


def _dates(table: DeltaTable, closed: date | None) -> Sequence[str]:
    """The closed dates with more than one file."""
    if closed is None or DATE not in table.metadata().partition_columns:
        return []
    days = sorted(str(part[DATE]) for part in table.partitions() if part[DATE] is not None)
    passed = [day for day in dict.fromkeys(days) if date.fromisoformat(day) < closed]
    return [day for day in passed if len(table.file_uris(file_pruning_predicate=f"{DATE} = '{day}'")) >= FEW]
