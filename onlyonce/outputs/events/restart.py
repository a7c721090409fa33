"""Finds the windows and sessions that are final by the log.

A new life of an output reads their rows again, and must not write them again.

Who calls it: `outputs`. No errors of its own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.operate.compaction import Compactions
from onlyonce.commitlog.outputs.backfills import Backfills
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model.frontier import closed_until
from onlyonce.model.stored_names import CLOSED_BY, CONTROL, OO_BATCH, OO_KIND, OO_LINEAGE, OO_WINDOW
from onlyonce.model.windows import Session, micros
from onlyonce.outputs.windows import windowing
from onlyonce.receive import events, past_rows


def read_from(context: RunContext, start: int, files: int = events.UNSPLIT) -> DataFrame:
    """The stream of `events` from a version on, which may be the next one that is written.

    Delta's begins at one that is there: at the one before, whose rows are left out. Where commits from there on are
    compacted it begins with all that the table has: their rows are the same, and in one batch, as those of old versions
    would be."""
    first = begins_at(context, start)
    if first is None:
        return read_behind(context, start - 1, files)
    stream = events.stream(context.spark, context.events, first, files)
    known = Batches(context.database).received(context.instance, start - 2, start - 1)
    for one in known:
        known_row = (F.col(OO_LINEAGE) == one.lineage) & (F.col(OO_BATCH) == one.batch_id)
        stream = stream.filter((F.col(OO_KIND) == CONTROL) | ~known_row)
    return stream


def read_behind(context: RunContext, version: int, files: int = events.UNSPLIT) -> DataFrame:
    """The stream of `events` that begins with the table as it is, without the rows of batches up to a version."""
    stream = events.stream(context.spark, context.events, None, files)
    before = Compactions(context.database).last_in(context.instance, version)
    return stream.filter((F.col(OO_KIND) == CONTROL) | ~past_rows.in_batches(before))


def begins_at(context: RunContext, start: int) -> int | None:
    """The commit to `events` at which such a stream begins; None: with the table as it is."""
    first = max(start - 1, 0)
    return None if first <= Compactions(context.database).compacted(context.instance) else first


def without_final(
    context: RunContext, query: Query, root: Output, rows: DataFrame, since: int | None = None
) -> DataFrame:
    """A new life reads again what its oldest open window needs; windows that are final by the log stay out.

    `since`: all the rows are of later versions of `events` than this one. They are late for what had closed by then, so
    only what has closed after it is asked of the log: few windows, however many there are in all.
    """
    return without(context, query, root, rows, query.lineage, since)


def read_before(context: RunContext, query: Query, start: int) -> int:
    """A version of `events` than which all rows are later that a life reads from now on.

    `start`: the version from which it once began.

    What its committed batches have read is behind it, but for the last one, which Spark may repeat. So a life asks for
    few final windows at each start after its first ones, however many there were when it began.
    """
    return max(start - 1, Batches(context.database).read_before(query.lineage))


def without(
    context: RunContext, query: Query, root: Output, rows: DataFrame, but: str, since: int | None = None
) -> DataFrame:
    """The rows of windows that no life but this lineage has closed."""
    if not root.has_windows or isinstance(root.window, Session):
        return rows
    after = None if since is None else _closed(context, root, since)
    final = Batches(context.database).final_windows(context.instance, root.name, but, after)
    if query.first_window is not None:
        rows = rows.filter(F.col(f"{OO_WINDOW}.start") >= F.timestamp_micros(F.lit(query.first_window)))
    schema = f"{OO_WINDOW} struct<start: timestamp, end: timestamp>"
    known = context.spark.createDataFrame([(window,) for window in final], schema)
    return rows.join(F.broadcast(known), OO_WINDOW, "left_anti")


def not_written(context: RunContext, query: Query, root: Output, result: DataFrame) -> DataFrame:
    """A new life makes all sessions again, since a record alone has no window; those that were written stay out."""
    if CLOSED_BY not in query.start_from or not isinstance(root.window, Session):
        return result
    closed = _closed(context, root, int(query.start_from[CLOSED_BY]))
    if closed is None:
        return result
    return result.filter(windowing.after_merge(F.col(f"{OO_WINDOW}.end") > F.timestamp_micros(F.lit(closed))))


def _closed(context: RunContext, root: Output, version: int) -> int | None:
    """Up to where the output's windows were closed at a version of `events`."""
    assert root.window is not None
    known = Backfills(context.database).frontier_at(context.instance, version)
    return closed_until(known, root.window, micros(root.lateness))
