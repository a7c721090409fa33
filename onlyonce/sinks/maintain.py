"""Compact the small files of closed windows in the Delta tables of outputs, and remove files that no reader needs.

No Spark is needed. Each batch that closes windows adds at least one file to a table. The files of a date are compacted
once the stream can write no window that starts on that date, so the two never conflict. If a backfill conflicts, the
backfill wins, and the date is left for the next time. Compaction changes no row, and readers of a version don't notice
it. Replaced files stay for ONLYONCE_VACUUM_HOURS (a week), and longer while a batch or backfill that began before has
not ended.

Only tables of outputs with fixed or sliding windows are compacted. Outputs without windows, and sessions, have no date
that is closed for good. `events` has rules of its own (`onlyonce.operate.compact`). A table with deletion vectors,
column mapping, row tracking or in-commit timestamps is left alone, and the report names it (`not_maintained`).
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
from onlyonce.core.runs import first_line
from onlyonce.core.stored_names import WINDOW_DATE
from onlyonce.core.windows import Session, own
from onlyonce.database.connect import Database
from onlyonce.failpoints import passing
from onlyonce.tables import arrow_files, opening

FEW = 2
"""The fewest files of a date that are compacted."""

ICEBERG = """left alone: an Iceberg table is maintained by its engines
  data: the table has all rows, readable; small files, old snapshots and files that no snapshot names stay
  next: rewrite_data_files, expire_snapshots and remove_orphan_files by Spark, Trino or the catalog's own service.
    No property onlyonce.… may be removed"""


@dataclass(frozen=True)
class Maintained:
    """The result of compacting a table, or in a dry run what it would be.

    dates     how many were compacted
    removed   how many files that the table has no more
    hours     how long such files stay
    """

    dates: int
    files_before: int
    files_after: int
    removed: int
    hours: int
    closed: date | None

    def row(self) -> dict[str, object]:
        """Return the row for the report."""
        return {
            "closed before": self.closed, "dates": self.dates, "files before": self.files_before,
            "files after": self.files_after, "removed": self.removed, "kept (hours)": self.hours,
        }  # fmt: skip


def maintain_output(
    database: Database, pipeline: Pipeline, output: Output, *, dry_run: bool
) -> Maintained | str | None:
    """Maintain the table of an output, or return why it is left as it is.

    Return None if the output has no table with dates. If another writer conflicts, the table is left for the next time.
    """
    if isinstance(output.sink, Iceberg):
        return ICEBERG
    path = table_of(pipeline, output)
    if path is None:
        return None
    closed = closed_before(database, pipeline, output)
    try:
        if reason := not_maintained(path):
            return reason
        return maintain(path, closed, keep_hours(database), dry_run=dry_run)
    except (DeltaError, OSError, Refused) as error:
        # Another writer has committed, or the table can't be opened. The dates before it are compacted; no row was
        # changed. Other tables are maintained.
        return f"left for the next time: {first_line(error)}"


def table_of(pipeline: Pipeline, output: Output) -> Location | None:
    """Return the Delta table of an output whose dates close; None for any other output."""
    root = pipeline.root_of(output)
    if not isinstance(output.sink, Delta) or not root.has_windows or isinstance(root.window, Session):
        return None
    path = settings.table_location(target(pipeline, output).split(":", 1)[1])
    return path if opening.any_in(path) else None


def closed_before(database: Database, pipeline: Pipeline, output: Output) -> date | None:
    """Return the first date on which the stream may still write a window.

    All windows that start before the date are closed **and** written, by the same rule as for a backfill.
    """
    root = pipeline.root_of(output)
    assert root.window is not None
    assert not isinstance(root.window, Session)
    until = Backfills(database).reach(pipeline.name, root.name).closed_until(root)
    if until is None:
        return None
    # The windows that contain the time `until` are still open. They come in order.
    first_open, *_ = own(root.window).assign(until)
    start = to_time(first_open[0])
    return None if start is None else start.date()


def keep_hours(database: Database) -> int:
    """Return how long replaced files stay: as configured, and longer than any batch or backfill that is running."""
    oldest = Batches(database).oldest_begun()
    return max(settings.vacuum_hours(), ceil(oldest / 3600) + 1)


def maintain(path: Location, closed: date | None, hours: int, *, dry_run: bool) -> Maintained:
    """Compact the closed dates of a table that have small files, then vacuum.

    Raise DeltaError if another writer conflicts.
    """
    table = opening.table(path)
    before = len(table.file_uris())
    dates = _dates(table, closed)
    if not dry_run:
        for day in dates:
            passing("maintain-before-compact")
            table.optimize.compact(
                partition_filters=[(WINDOW_DATE, "=", day)], writer_properties=arrow_files.footer_of_delta_rs(table)
            )
            passing("maintain-after-compact")
    removed = table.vacuum(retention_hours=hours, dry_run=dry_run, enforce_retention_duration=False)
    passing("maintain-after-vacuum")
    return Maintained(len(dates), before, len(opening.table(path).file_uris()), len(removed), hours, closed)


def not_maintained(path: Location) -> str | None:
    """Return why only Spark's own Delta can maintain a table, and what to do; None if this job can maintain it.

    delta-rs would fail at each compaction, or take deletion vectors for unused files.
    """
    features = opening.only_for_spark(opening.table(path))
    if not features:
        return None
    return (
        f"left alone for as long as the table has {', '.join(features)}\n"
        f"  data: the table has all rows, readable; small files and files that were replaced stay in {path}\n"
        f"  next: OPTIMIZE and VACUUM delta.`{path}` with Spark (more than {settings.vacuum_hours()} HOURS), or "
        "switch it off there"
    )


def _dates(table: DeltaTable, closed: date | None) -> Sequence[str]:
    """Return the closed dates with at least FEW files."""
    if closed is None or WINDOW_DATE not in table.metadata().partition_columns:
        return []
    days = sorted(str(part[WINDOW_DATE]) for part in table.partitions() if part[WINDOW_DATE] is not None)
    passed = [day for day in dict.fromkeys(days) if date.fromisoformat(day) < closed]
    return [day for day in passed if len(table.file_uris(file_pruning_predicate=f"{WINDOW_DATE} = '{day}'")) >= FEW]
