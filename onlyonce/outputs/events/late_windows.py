"""The closed windows whose late records are not yet in their result, by the commit log. No Spark."""

from __future__ import annotations

import structlog

from onlyonce.commitlog.operate.removals import Removals
from onlyonce.commitlog.outputs.backfills import Backfills
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model.operate import retaining
from onlyonce.model.outputs import backfill as model
from onlyonce.model.outputs.backfill import Span

log = structlog.get_logger()


def spans(
    database: Database, pipeline: Pipeline, instance: str, root: Output, within: Span | None = None
) -> list[Span]:
    """Return the spans that a backfill recomputes to include late records: one span for each run of touching windows.

    A window of a chain waits until the outputs before it have included their late records. `within`: only windows that
    start in this span.
    """
    late = [window for window in windows(database, instance, root) if within is None or within.holds(window[0])]
    return model.spans(_ready(database, pipeline, instance, root, late))


def of_stream(database: Database, pipeline: Pipeline, instance: str, root: Output) -> list[Span]:
    """Return the spans that the stream itself recomputes: those of an output with late='recompute'."""
    return spans(database, pipeline, instance, root) if root.late == "recompute" else []


def windows(database: Database, instance: str, root: Output) -> list[tuple[int, int]]:
    """Return the (start, end) of the windows with late records that no backfill has included, in microseconds.

    Windows whose other records `keep_events` has removed are left out, and the log says how many."""
    found, kept = Backfills(database).late_windows(instance, root.name), Removals(database).kept_from(instance)
    first = 0 if kept is None else retaining.first_moment(kept, root.window)
    gone = sum(start < first for start, _ in found)
    if gone:
        log.warning("late records stay out: the others of their windows are removed", output=root.name, windows=gone)
    return [window for window in found if window[0] >= first]


def _ready(
    database: Database, pipeline: Pipeline, instance: str, root: Output, late: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    before = pipeline.upstream(root)
    if not late or not before:
        return late
    waiting = [window for one in before for window in Backfills(database).late_windows(instance, one.name)]
    return [window for window in late if not any(start < window[1] and end > window[0] for start, end in waiting)]
