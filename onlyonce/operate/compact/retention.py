"""Old days of `events` go, as the pipeline's `keep_events` asks. No Spark. docs/specification/removal.md.

A day goes when nothing asks for its records by itself (`onlyonce/model/operate/retaining.py`). What goes is noted
first, then counted by batch and fate, then removed in one commit of the table, then noted as done. A kill anywhere is
finished by the next time.

Who calls it: `maintain`. Errors: DeltaError, OSError and ArrowException where the table can't be read or written. Not
promised: that a day goes as soon as it is old enough. What holds it is named in the report. Late records from before a
day that is gone go with the next day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from onlyonce import settings
from onlyonce.commitlog.operate.compaction import Compactions
from onlyonce.commitlog.operate.keep_events import KeepEvents
from onlyonce.commitlog.operate.removals import Removal, Removals
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Pipeline
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.batch import to_time
from onlyonce.model.operate import retaining
from onlyonce.model.operate.retaining import Decision
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import CONTROL, OO_EVENT_TIME, OO_KIND, OO_SYSTEM_TIME
from onlyonce.storage import delta, opening, removing, rewriting
from onlyonce.storage.removing import Cut, Gone
from onlyonce.storage.rewriting import File

TIMES = (OO_EVENT_TIME, OO_SYSTEM_TIME)
"""What tells the day of a record. An invalid one has no event time, so its system time does."""
INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Found:
    """What a removal would take now."""

    cuts: list[Cut]
    gone: Gone

    @property
    def counts(self) -> Counter[tuple[str, int, str]]:
        """Rows by life of receive, batch and fate."""
        return sum((cut.counts for cut in self.cuts), Counter())


@dataclass(frozen=True)
class Retained:
    """What was removed of `events`, or would be, and the time from which all records are there.

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
        """How many rows."""
        return self.counts.total()

    def row(self) -> dict[str, object]:
        """For the report."""
        return {
            "pipeline": self.pipeline, "keep_events": str(self.keep_events), "records from": self.kept_from,
            "held by": self.held_by, "removed": self.removed,
            **{fate: self.counts[fate] for fate in ("kept", "invalid", "remnant")}, "files": self.files,
        }  # fmt: skip


def retain(database: Database, pipeline: Pipeline, *, dry_run: bool) -> Retained | None:
    """Remove what may go of a pipeline's `events`; gives what was done, or with `dry_run` would be.

    None where all is kept for ever.
    """
    path = settings.data_location(pipeline.name) / stored_names.EVENTS_FOLDER
    removal = Removals(database).begun(pipeline.name)
    if (pipeline.keep_events is None and removal is None) or not delta.exists(path):
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
    """The files with rows that a removal takes, by what the table has now."""
    last = Compactions(database).last_in(instance, removal.upto)
    gone = _gone(removal.before, last)
    cuts = (removing.cut(path, file, TIMES, gone) for file in _with_old_rows(path, to_time(removal.before)))
    return Found([cut for cut in cuts if cut], gone)


def _with_old_rows(path: Location, before: datetime | None) -> Iterator[File]:
    """The files that may have rows from before a moment, by what the table's log says of their times."""
    table = opening.table(path)
    for by_time in zip(*(rewriting.files(table, [name]) for name in TIMES), strict=True):
        least = [file.least for file in by_time if file.least is not None]
        if by_time[0].partition.get(OO_KIND) != CONTROL and (not least or min(least) < before):
            yield by_time[0]


def _remove(database: Database, pipeline: Pipeline, path: Location) -> tuple[Removal, Found]:
    instance = pipeline.name
    app_id = stored_names.housekeeping(instance, stored_names.RETENTION_BY)
    removal = KeepEvents(database).begin(pipeline)
    if removal is None:  # another has done it meanwhile
        return Removal(0, 0, -1), Found([], _nothing)
    Compactions(database).raise_to(instance, removal.upto)
    passing("retention-after-begin")
    found = Found([], _nothing)
    while (delta.version(path, app_id) or 0) < removal.number:
        found = look(database, instance, path, removal)
        if not found.cuts:
            break
        counts, files = found.counts, len(found.cuts)
        Removals(database).count(instance, removal, counts, files)
        passing("retention-after-count")
        removing.remove(path, found.cuts, found.gone, app_id, removal.number)
    passing("retention-before-end")
    version = delta.latest(path)
    Removals(database).end(instance, removal, version)
    return removal, found


def _gone(before: int, last: Mapping[str, int]) -> Gone:
    """Rows of these batches from before an event time."""
    limit = pa.scalar(to_time(before), INSTANT)

    def mask(rows: pa.Table) -> pa.Array:
        old = pc.less(pc.coalesce(*(rows.column(name) for name in TIMES)).cast(INSTANT), limit)
        return pc.and_(old, removing.of_batches(rows, last))

    return mask


def _nothing(rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(False), rows.num_rows)


def _of(decision: Decision | None) -> tuple[int, int]:
    return (0, retaining.NOTHING) if decision is None else (decision.before, decision.upto)


def _retained(pipeline: Pipeline, kept_from: int, found: Found, decision: Decision | None) -> Retained:
    counts: Counter[str] = Counter()
    for (_, _, fate), rows in found.counts.items():
        counts[fate] += rows
    held_by = decision.held_by if decision else None
    return Retained(pipeline.name, pipeline.keep_events, to_time(kept_from or None), held_by, counts, len(found.cuts))
